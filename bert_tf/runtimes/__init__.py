"""Models as files of other runtimes, measured on the task's dev split."""

import os

# ONNX Runtime asks its maker's servers while a session lives and writes the
# ids of devices into the home folder. It reads this when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
