"""What a training step holds in memory: predicted, measured, planned."""
