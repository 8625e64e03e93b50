"""Whether a written SavedModel gives what the model in memory gives."""

import base64
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from bert_tf.errors import UserError
from bert_tf.serving.text_model import Request

# The last digits depend on how the graph was optimised. A bfloat16 has 8 bits
# of mantissa, so one rounding is 2**-9 of a value; a fused operation saves one
# and twelve layers add them up.
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.05, "float16": 0.01}
_SCRIPT = pathlib.Path(__file__).with_name("fresh_process.py")


def check_in_fresh_process(
    folder: pathlib.Path,
    signatures: Mapping[str, Callable],
    requests: Sequence[Request],
    compute_dtype: str,
    name: str,
) -> None:
    """Compares the answers of a written SavedModel to those in memory.

    A new process without bert_tf loads the folder as TensorFlow Serving does,
    into a session.

    Args:
      folder: the SavedModel.
      signatures: the functions in memory, by name.
      requests: what to ask both.
      compute_dtype: of the model; how near numbers must be depends on it.
      name: what to call the folder in errors.

    Raises:
      UserError: it does not load, or an answer differs.
    """
    answers = _answers(folder, requests, name)
    tolerance = TOLERANCES[compute_dtype]
    for request, given in zip(requests, answers, strict=True):
        inputs = {n: tf.constant(v) for n, v in request.inputs.items()}
        wanted = signatures[request.signature](**inputs)
        if set(wanted) != set(given):
            raise UserError(
                f"{name}: the signature {request.signature} gives "
                f"{', '.join(sorted(given))}, and in memory "
                f"{', '.join(sorted(wanted))}; the export was not finished."
            )
        for output, value in wanted.items():
            difference = _difference(value.numpy(), given[output], tolerance)
            if difference:
                raise UserError(
                    f"{name}: {output} of the signature {request.signature} "
                    f"is not what the model in memory gives ({difference}); "
                    "the export was not finished."
                )


def _difference(
    wanted: np.ndarray, given: np.ndarray, tolerance: float
) -> str | None:
    """How two arrays differ, or None."""
    if wanted.shape != given.shape or wanted.dtype != given.dtype:
        return (
            f"{given.dtype} {list(given.shape)}, not {wanted.dtype} "
            f"{list(wanted.shape)}"
        )
    if wanted.dtype.kind == "f":
        if np.allclose(given, wanted, tolerance, tolerance, equal_nan=False):
            return None
        with np.errstate(invalid="ignore"):
            return f"up to {np.abs(given - wanted).max():.3g} apart"
    if np.array_equal(given, wanted):
        return None
    place = tuple(np.argwhere(given != wanted)[0])
    return f"{given[place]!r} in place of {wanted[place]!r}"


def _answers(
    folder: pathlib.Path, requests: Sequence[Request], name: str
) -> list[dict[str, np.ndarray]]:
    """What a fresh process answers."""
    asked = [
        [request.signature, {n: _pack(v) for n, v in request.inputs.items()}]
        for request in requests
    ]
    with tempfile.TemporaryDirectory() as temporary:
        # Run from elsewhere and with -P, so that nothing of this project can
        # be imported by chance.
        done = subprocess.run(
            [sys.executable, "-P", _SCRIPT, folder.absolute()],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            cwd=temporary,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UserError(
            f"{name}: a fresh process cannot load and run it (exit code "
            f"{done.returncode}: {' '.join(lines[-1:])}); the export was "
            "not finished."
        )
    return [
        {name: _unpack(value) for name, value in answer.items()}
        for answer in json.loads(done.stdout.splitlines()[-1])
    ]


def _pack(array: np.ndarray) -> str:
    proto = tf.make_tensor_proto(np.asarray(array))
    return base64.b64encode(proto.SerializeToString()).decode()


def _unpack(packed: str) -> np.ndarray:
    data = base64.b64decode(packed)
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(data))
