"""Model cards, and publishing a finished model."""
