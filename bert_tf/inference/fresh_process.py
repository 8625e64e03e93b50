"""Runs a SavedModel in a fresh process without bert_tf.

The process imports TensorFlow while its parent reads and traces the model, so
this module defers its imports. It is run by path, without bert_tf, and loads
the SavedModel as TensorFlow Serving does. Its standard input is JSON: a folder
and a list of [signature, {input: tensor}]. The last line of its standard output
is a list of {output: tensor}. A tensor is a base64-encoded TensorProto.
"""

import base64
import contextlib
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Self

# At most this many characters of an error are shown.
_SHOWN = 300


def pack(array: Any) -> str:
    """Encodes an array as a base64 TensorProto."""
    import tensorflow as tf

    proto = tf.make_tensor_proto(array)
    return base64.b64encode(proto.SerializeToString()).decode()


def unpack(packed: str) -> Any:
    """Decodes the result of `pack`."""
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    data = base64.b64decode(packed)
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(data))


class FreshProcess:
    """A process that starts on construction and ends with the context."""

    def __init__(self) -> None:
        # Another folder and -P keep this project out of the import path.
        self._elsewhere = tempfile.TemporaryDirectory()
        self._messages = tempfile.TemporaryFile(mode="w+", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A full pipe would block the process.
            stderr=self._messages,
            text=True,
            cwd=self._elsewhere.name,
            env={
                # As in `libraries.py`; TensorFlow writes ~/.keras/keras.json.
                "TF_ENABLE_ONEDNN_OPTS": "1",
                "KERAS_HOME": os.devnull,
                **os.environ,
                # The parent may hold the memory of all GPUs.
                "CUDA_VISIBLE_DEVICES": "-1",
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._process:
            self._process.kill()
        self._messages.close()
        self._elsewhere.cleanup()

    def ask(
        self,
        folder: pathlib.Path,
        requests: Sequence[tuple[str, dict[str, str]]],
    ) -> None:
        """Sends a folder and requests, once.

        Args:
          folder: the SavedModel.
          requests: signatures and their inputs by name.
        """
        assert self._process.stdin is not None
        # If the process has ended, `answers` raises the error.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as asked:
            json.dump([str(folder.absolute()), requests], asked)

    def answers(self, name: str) -> list[dict[str, Any]]:
        """Waits for the outputs of each request, by name.

        Args:
          name: name of the folder, for errors.

        Raises:
          UserError: the process failed to load or run the SavedModel.
        """
        assert self._process.stdout is not None
        answered = self._process.stdout.read()
        if code := self._process.wait():
            self._messages.seek(0)
            lines = self._messages.read().strip().splitlines()
            from bert_tf.errors import UserError

            raise UserError(
                f"{name}: a fresh process cannot load and run it (exit code "
                f"{code}: {' '.join(lines[-1:])}); the export was not finished."
            )
        return json.loads(answered.splitlines()[-1])


def _run() -> None:
    """Answers all requests, or exits with a one-line error."""
    # Garbage collection takes a tenth of the time of this short process.
    gc.disable()
    # Keras imports it for image utilities: a quarter of the start-up time.
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers the ops of text models

    folder, requests = json.load(sys.stdin)
    try:
        with tf.compat.v1.Session(graph=tf.Graph()) as session:
            loaded = tf.compat.v1.saved_model.loader.load(
                session, [tf.saved_model.SERVING], folder
            )
            answers = [
                _answer(session, loaded.signature_def[signature], inputs)
                for signature, inputs in requests
            ]
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        # TensorFlow's long messages end with the reason.
        text = " ".join(str(error).split())
        sys.exit(f"{type(error).__name__}: {text[-_SHOWN:]}")
    if "bert_tf" in sys.modules:
        sys.exit("bert_tf was imported: the folder does not stand alone.")
    print(json.dumps(answers))


def _answer(
    session: Any, signature: Any, inputs: dict[str, str]
) -> dict[str, str]:
    outputs = session.run(
        {name: info.name for name, info in signature.outputs.items()},
        {
            signature.inputs[name].name: unpack(value)
            for name, value in inputs.items()
        },
    )
    return {name: pack(value) for name, value in outputs.items()}


if __name__ == "__main__":
    _run()
