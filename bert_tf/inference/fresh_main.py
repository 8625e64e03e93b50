"""Loads a SavedModel as TensorFlow Serving does and answers requests.

Run by its path, by `fresh_process.py`; it must not import bert_tf. Standard
input is, in JSON, a folder and a list of [signature, {input: tensor}], and the
last line of standard output a list of {output: tensor}, a tensor being a
TensorProto in base64.
"""

import base64
import gc
import json
import sys

# It ends soon: looking for garbage takes a tenth of its time.
gc.disable()
# Keras would import it, for pictures of images: a quarter of the start.
sys.modules["matplotlib"] = None  # type: ignore[assignment]

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401 - registers the ops of text models
from tensorflow.core.framework import tensor_pb2  # noqa: E402

# Characters of an error that are shown.
_SHOWN = 300


def main() -> None:
    """Answers all requests, or ends with the error in one line."""
    try:
        _run()
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        # The reason stands at the end of TensorFlow's long messages.
        text = " ".join(str(error).split())
        sys.exit(f"{type(error).__name__}: {text[-_SHOWN:]}")


def _run() -> None:
    folder, requests = json.load(sys.stdin)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.loader.load(
            session, [tf.saved_model.SERVING], folder
        )
        answers = [
            _answer(session, loaded.signature_def[signature], inputs)
            for signature, inputs in requests
        ]
    if "bert_tf" in sys.modules:
        sys.exit("bert_tf was imported: the folder does not stand alone.")
    print(json.dumps(answers))


def _answer(session, signature, inputs: dict[str, str]) -> dict[str, str]:
    outputs = session.run(
        {name: info.name for name, info in signature.outputs.items()},
        {
            signature.inputs[name].name: _unpack(value)
            for name, value in inputs.items()
        },
    )
    return {name: _pack(value) for name, value in outputs.items()}


def _pack(array) -> str:
    proto = tf.make_tensor_proto(array)
    return base64.b64encode(proto.SerializeToString()).decode()


def _unpack(packed: str):
    data = base64.b64decode(packed)
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(data))


if __name__ == "__main__":
    main()
