"""Pre-training records: building them from text and reading them back."""
