"""Worker processes that tokenise; without TensorFlow for most texts."""

import os

from bert_tf.processes import serve

if __name__ == "__main__":
    # Where TensorFlow is needed after all: there is a worker a processor.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    serve(lambda writer: writer.write)
