"""Multiple choice: which of several texts goes with a text."""
