"""Files of other runtimes from the traced Keras model, and their runs."""

import os

# Otherwise ONNX Runtime sends telemetry and writes device ids to the home
# folder. It reads the variable when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
