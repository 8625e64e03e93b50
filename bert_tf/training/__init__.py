"""The one training loop: strategies, precision, resume."""
