"""The folder of a version: written beside, proven, and then renamed."""

import os
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.checkpoints.labels import write_labels
from bert_tf.errors import UserError
from bert_tf.files import new_folder
from bert_tf.finetuning.results import write_json
from bert_tf.serving.description import describe_model
from bert_tf.serving.fresh_check import check_in_fresh_process
from bert_tf.serving.text_model import Request, TextModel
from bert_tf.text.vocabulary import VOCABULARY_FILE

EXTRA = "assets.extra"
WARM_UP_FILE = "tf_serving_warmup_requests"
RECIPE_FILE = "recipe.json"
MODEL_FILE = "model.json"
_CLASSIFY = "tensorflow/serving/classify"
_REGRESS = "tensorflow/serving/regress"


def write_saved_model(
    served: TextModel,
    output_dir: str | os.PathLike,
    version: int | None = None,
    recipe: str | None = None,
    requests: Sequence[Request] | None = None,
    training: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a model as a version that TensorFlow Serving takes.

    The folder has the SavedModel with vocab.txt among its assets, and in
    assets.extra the requests that TensorFlow Serving warms it up with,
    labels.json, recipe.json and model.json, which says what the model is. A
    fresh process without bert_tf has loaded it and given the same answers
    before it appears.

    Args:
      served: the model; see `TextModel`.
      output_dir: the folder of all versions.
      version: the number of this one; None is one more than the highest.
      recipe: the text of recipe.json, of the training, if there is one.
      requests: real requests to check and to warm up with; None takes those
        of `served`.
      training: what model.json says beside `describe_model`; see
        `describe_training`.

    Returns:
      The folder of the version.

    Raises:
      UserError: the version is there already or no number, or the folder
        does not give what the model in memory gives; nothing is left then.
    """
    output_dir = pathlib.Path(output_dir)
    folder = output_dir / str(_version(output_dir, version))
    requests = served.requests() if requests is None else list(requests)
    with new_folder(folder) as beside:
        signatures = save(served, beside)
        _write_extra(served, beside, folder.parent.name, recipe, requests)
        write_json(
            beside / EXTRA / MODEL_FILE,
            describe_model(served) | dict(training or {}),
        )
        check_in_fresh_process(
            beside, signatures, requests, served.compute_dtype, str(folder)
        )
    return folder


def _version(output_dir: pathlib.Path, version: int | None) -> int:
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(f"`output_dir`={output_dir}: is a file, no folder.")
    there = [
        int(path.name)
        for path in (output_dir.iterdir() if output_dir.is_dir() else ())
        if re.fullmatch("[0-9]+", path.name)
    ]
    if version is None:
        return max(there, default=0) + 1
    if version < 0:
        raise UserError(f"`version`={version}: it takes 0 or more.")
    if version in there:
        raise UserError(
            f"`version`={version}: {output_dir / str(version)} exists already; "
            f"{max(there) + 1} would be the next one."
        )
    return version


def save(served: TextModel, folder: pathlib.Path) -> dict:
    """Writes the SavedModel alone; returns its signatures by name."""
    signatures = served.signatures()
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, VOCABULARY_FILE)
        served.tokenizer.vocabulary.save(path)
        served.vocabulary_file = tf.saved_model.Asset(path)
        tf.saved_model.save(served, str(folder), signatures=signatures)
    _set_methods(folder, served.method_names())
    return signatures


def _set_methods(folder: pathlib.Path, methods: dict[str, str]) -> None:
    """Says which signatures are for :classify and :regress.

    TensorFlow 2 writes every signature as one for :predict.
    """
    if not methods:
        return
    path = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in model.meta_graphs:
        for name, method in methods.items():
            graph.signature_def[name].method_name = method
    path.write_bytes(model.SerializeToString(deterministic=True))
    # It is that of the file as it was; readers take its absence.
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def _write_extra(
    served: TextModel,
    folder: pathlib.Path,
    name: str,
    recipe: str | None,
    requests: Sequence[Request],
) -> None:
    extra = folder / EXTRA
    extra.mkdir()
    write_labels(extra, served.labels or None)
    if recipe is not None:
        (extra / RECIPE_FILE).write_text(recipe, encoding="utf-8")
    methods = served.method_names()
    with tf.io.TFRecordWriter(str(extra / WARM_UP_FILE)) as writer:
        for request in requests:
            log = prediction_log(name, request, methods)
            writer.write(log.SerializeToString())


def prediction_log(
    model: str, request: Request, methods: dict[str, str]
) -> prediction_log_pb2.PredictionLog:
    """A request as TensorFlow Serving records it."""
    log = prediction_log_pb2.PredictionLog()
    method = methods.get(request.signature)
    if method in (_CLASSIFY, _REGRESS):
        kind = log.classify_log if method == _CLASSIFY else log.regress_log
        for example in request.inputs["inputs"]:
            kind.request.input.example_list.examples.add().ParseFromString(
                example
            )
    else:
        kind = log.predict_log
        for name, values in request.inputs.items():
            proto = tf.make_tensor_proto(np.asarray(values))
            kind.request.inputs[name].CopyFrom(proto)
    kind.request.model_spec.name = model
    kind.request.model_spec.signature_name = request.signature
    return log
