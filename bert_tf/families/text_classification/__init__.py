"""Text classification: a class, a number or several labels."""
