"""report.html and report.json of a fine-tuning."""
