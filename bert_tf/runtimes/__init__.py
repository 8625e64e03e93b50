"""Files of other runtimes from the traced Keras model, and their runs."""

import os
import sys

# Otherwise ONNX Runtime sends telemetry and writes device ids to the home
# folder. It reads the variable when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Likewise OpenVINO, in a fork of this process; it needs no such package.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
