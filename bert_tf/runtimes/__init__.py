"""Models as files of other runtimes, measured on the task's dev split."""
