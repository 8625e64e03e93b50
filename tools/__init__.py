"""One small file per command: flags in, one library call out."""
