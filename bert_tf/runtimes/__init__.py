"""Exports to other runtimes, with int8 scored on the task's dev split."""

import os

# Otherwise ONNX Runtime sends telemetry and writes device ids to the home
# folder. It reads the variable when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
