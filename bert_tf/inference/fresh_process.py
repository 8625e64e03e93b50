"""A process without bert_tf that answers from a written SavedModel.

No TensorFlow here: whoever starts the process early lets it import TensorFlow
while the model is read and traced.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Self

from bert_tf.errors import UserError

_MAIN = pathlib.Path(__file__).with_name("fresh_main.py")


class FreshProcess:
    """Starts when it is made, and ends with the `with` block.

    Tensors are TensorProtos in base64; see `fresh_main.py`.
    """

    def __init__(self) -> None:
        # Run from elsewhere and with -P, so that nothing of this project can
        # be imported by chance.
        self._elsewhere = tempfile.TemporaryDirectory()
        self._messages = tempfile.TemporaryFile(mode="w+", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-P", _MAIN],
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
            raise UserError(
                f"{name}: a fresh process cannot load and run it (exit code "
                f"{code}: {' '.join(lines[-1:])}); the export was not finished."
            )
        return json.loads(answered.splitlines()[-1])
