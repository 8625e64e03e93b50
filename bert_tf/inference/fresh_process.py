"""A process without bert_tf that answers from a written SavedModel.

Whoever starts the process early lets it import TensorFlow while the model is
read and traced; so nothing is imported here before it is needed. The process
runs this file by its path, without bert_tf, and loads the SavedModel as
TensorFlow Serving does. Its standard input is, in JSON, a folder and a list of
[signature, {input: tensor}], and the last line of its standard output a list of
{output: tensor}, a tensor being a TensorProto in base64.
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

# Characters of an error that are shown.
_SHOWN = 300


def pack(array: Any) -> str:
    """An array as a tensor of the file's docstring."""
    import tensorflow as tf

    proto = tf.make_tensor_proto(array)
    return base64.b64encode(proto.SerializeToString()).decode()


def unpack(packed: str) -> Any:
    """The array that `pack` packed."""
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    data = base64.b64decode(packed)
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(data))


class FreshProcess:
    """Starts when it is made, and ends with the `with` block."""

    def __init__(self) -> None:
        # Run from elsewhere and with -P, so that nothing of this project can
        # be imported by chance.
        self._elsewhere = tempfile.TemporaryDirectory()
        self._messages = tempfile.TemporaryFile(mode="w+", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A pipe that nobody reads would stop it.
            stderr=self._messages,
            text=True,
            cwd=self._elsewhere.name,
            env={
                # As `libraries.py` sets it.
                "TF_ENABLE_ONEDNN_OPTS": "1",
                # TensorFlow would write ~/.keras/keras.json; see
                # `libraries.py`.
                "KERAS_HOME": os.devnull,
                **os.environ,
                # This process may hold the memory of all GPUs.
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
        """Has it load a folder and answer requests, once.

        Args:
          folder: the SavedModel.
          requests: signature and inputs by name.
        """
        assert self._process.stdin is not None
        # Where it has ended already, `answers` says why.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as asked:
            json.dump([str(folder.absolute()), requests], asked)

    def answers(self, name: str) -> list[dict[str, Any]]:
        """Waits for the answers: of each request, outputs by name.

        Args:
          name: of the folder, for errors.

        Raises:
          UserError: it could not load the folder or answer.
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
    """Answers all requests, or ends with the error in one line."""
    # It ends soon: looking for garbage takes a tenth of its time.
    gc.disable()
    # Keras would import it, for pictures of images: a quarter of the start.
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
        # The reason stands at the end of TensorFlow's long messages.
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
