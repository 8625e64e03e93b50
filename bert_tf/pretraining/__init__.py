"""Pre-training: model, objective and the run."""
