"""One small file per fine-tuning task."""
