"""What the data doctor finds in the rows before training."""
