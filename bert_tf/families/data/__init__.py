"""Reading task files: tables, GLUE, TensorFlow Datasets, predictions."""
