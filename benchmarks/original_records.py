"""Runs google-research/bert's create_pretraining_data.py under TensorFlow 2.

python -m benchmarks.original_records FOLDER --input_file=... [its flags]

FOLDER holds a checkout of github.com/google-research/bert, which is written for
TensorFlow 1; its names are those of tf.compat.v1. At the end a line of JSON
says how long the work took, without the imports.
"""

import json
import pathlib
import runpy
import sys
import time

import tensorflow as tf

SCRIPT = "create_pretraining_data.py"


def main() -> None:
    """Runs the script as its own command would be."""
    folder = pathlib.Path(sys.argv[1])
    sys.modules["tensorflow"] = tf.compat.v1
    sys.path.insert(0, str(folder))
    sys.argv = [SCRIPT, *sys.argv[2:]]
    started, used = time.perf_counter(), time.process_time()
    try:
        runpy.run_path(str(folder / SCRIPT), run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    took = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - used,
    }
    print(json.dumps(took))


if __name__ == "__main__":
    main()
