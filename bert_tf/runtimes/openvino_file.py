"""Writes OpenVINO files that take token ids, and runs them.

The file is that of ONNX, as OpenVINO reads it.
"""

import concurrent.futures
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino

from bert_tf.runtimes.graph import Arrays, Graph
from bert_tf.runtimes.onnx_file import onnx_model

FILE = "model.xml"
# Whether rows have a fixed length.
PADDED = False
_RESULT = "result/"


def write_model(path: pathlib.Path, graph: Graph, source: str) -> None:
    """Writes a float32 model that takes any number of rows of any length.

    The weights are in a second file, `path` with the suffix .bin.

    Args:
      path: the file, with the suffix .xml.
      graph: the traced model.
      source: name of the model, for errors.

    Raises:
      UserError: see `onnx_model`.
    """
    serialized = onnx_model(graph, source).SerializeToString()
    model = openvino.Core().read_model(serialized, b"")
    # A tensor also has the names of operations that are merged into its own,
    # and names of nodes are made unique.
    for name, result in zip(graph.outputs, model.results, strict=True):
        result.set_friendly_name(_RESULT + name)
    openvino.save_model(model, path, compress_to_fp16=False)


def has_bfloat16() -> bool:
    """Returns whether OpenVINO can compute in bfloat16 on this processor.

    Where it cannot, it computes in float32, whatever it is asked for.
    """
    kinds = _in_a_thread(
        lambda: openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    )
    return "BF16" in kinds


def _in_a_thread(function: Callable[[], Any]) -> Any:
    """Calls a function that uses OpenVINO's CPU plugin.

    The plugin replaces the stack on which the thread that opens it handles
    signals, and unmaps it when a model is freed, in whatever thread. The next
    signal, such as SIGTERM, would end the process without a message.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


class Runner:
    """Runs a file with OpenVINO on the CPU, from any number of threads.

    Args:
      path: the file.
      cores: cores that compute a batch; 0 takes all.
      bfloat16: whether to compute products in bfloat16.

    Attributes:
      shapes: the shapes of the outputs by name; None where it depends on the
        inputs.
    """

    def __init__(
        self, path: pathlib.Path, cores: int = 0, bfloat16: bool = False
    ):
        available = len(os.sched_getaffinity(0))
        streams = available // (cores or available)
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if bfloat16 else "f32",
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": available,
        }
        model = _in_a_thread(
            lambda: openvino.Core().compile_model(path, "CPU", settings)
        )
        self.shapes = {
            each.node.friendly_name.removeprefix(_RESULT): tuple(
                size.get_length() if size.is_static else None
                for size in each.partial_shape
            )
            for each in model.outputs
        }
        # Those that no output depends on are left out.
        self._inputs = [each.node.friendly_name for each in model.inputs]
        self._model = model
        self._request = threading.local()
        # In a thread of TensorFlow, OpenVINO 2026.4 would delete the thread's
        # state in Python, and the process would crash.
        self._threads = concurrent.futures.ThreadPoolExecutor(streams)

    def __call__(self, inputs: Arrays) -> Arrays:
        """Maps int32 [B, S] inputs by name to outputs by name."""
        given = {name: inputs[name] for name in self._inputs}
        return self._threads.submit(self._infer, given).result()

    def _infer(self, inputs: Arrays) -> Arrays:
        if not hasattr(self._request, "of_thread"):
            self._request.of_thread = self._model.create_infer_request()
        found = self._request.of_thread.infer(inputs)
        # The next call overwrites the tensors of the request.
        return {
            name: np.array(found[number])
            for number, name in enumerate(self.shapes)
        }
