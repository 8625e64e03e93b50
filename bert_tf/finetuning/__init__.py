"""Fine-tuning: tasks, the data they read, runs and reports."""
