"""One folder for each kind of answer: its data, task, answers and report."""
