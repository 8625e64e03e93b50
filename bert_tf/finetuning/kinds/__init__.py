"""The kinds of task: their labels, objectives, answers and metrics."""
