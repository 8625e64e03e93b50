"""Writes a model as a SavedModel version, checked before it appears."""

import contextlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.checkpoints.checkpoint import write_labels
from bert_tf.errors import UserError, whole_number, writing_failed
from bert_tf.families.requests import Request, Tensors
from bert_tf.families.text_model import TextModel
from bert_tf.files import new_folder, write_text
from bert_tf.inference.fresh_process import FreshProcess, pack, unpack
from bert_tf.inference.served_folder import describe_model
from bert_tf.runtimes.runtime import MODEL_FILE
from bert_tf.text.layout import HOST

EXTRA = "assets.extra"
WARM_UP_FILE = "tf_serving_warmup_requests"
RECIPE_FILE = "recipe.json"
# Recipe settings that name files and folders.
_PLACES = (
    *("init_from", "teacher", "ensemble", "data_dir", "train_file"),
    *("dev_file", "test_file", "config_file", "vocab_file"),
    *("task", "objective"),
)
# Tolerances between this and the fresh process. The last digits depend on how
# the graph was optimised. bfloat16 has 8 bits of mantissa, so one rounding is
# 2**-9 of a value; fused operations save roundings, and twelve layers add up.
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.05, "float16": 0.01}


def write_saved_model(
    served: TextModel,
    path: str | os.PathLike,
    version: int | None = None,
    recipe: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    fresh: FreshProcess | None = None,
) -> pathlib.Path:
    """Writes the next version of a model; see `write_version` for the rest.

    Args:
      served: the model.
      path: the folder of all versions.
      version: number of the version; None is the highest plus one.
      recipe, training, fresh: see `write_version`.

    Returns:
      The folder of the version.

    Raises:
      UserError: the version exists or is no number; or see `write_version`.
    """
    path = pathlib.Path(path)
    folder = path / str(_version(path, version))
    write_version(served, folder, recipe, training, fresh=fresh)
    return folder


def write_version(
    served: TextModel,
    folder: pathlib.Path,
    recipe: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    argument: str = "path",
    fresh: FreshProcess | None = None,
) -> None:
    """Writes a model as a version for TensorFlow Serving.

    The folder has the SavedModel with the vocabulary among its assets and, in
    assets.extra, the warm-up requests of TensorFlow Serving, labels.json,
    recipe.json and model.json, which describes the model. It appears after a
    fresh process without bert_tf has loaded it and computed the same outputs.

    Args:
      served: the model.
      folder: the new folder of the version.
      recipe: settings of the model's training, if any; of paths, only the file
        names are written.
      training: entries of model.json besides `describe_model`; see
        `describe_training`.
      argument: argument that names the folder, for errors.
      fresh: the process that checks, if it has been started.

    Raises:
      UserError: the folder is not empty, or the written model computes other
        outputs; nothing is left in this case.
    """
    requests = served.all_requests()
    with (
        new_folder(folder, argument) as beside,
        contextlib.nullcontext(fresh) if fresh else FreshProcess() as fresh,
    ):
        signatures = write_files(served, beside, folder, recipe, training)
        _check(
            fresh,
            beside,
            signatures,
            requests,
            served.compute_dtype,
            str(folder),
        )


def write_files(
    served: TextModel,
    folder: pathlib.Path,
    version: pathlib.Path,
    recipe: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> dict[str, Callable[..., Tensors]]:
    """Writes the files of a version; see `write_version`.

    A version whose network is computed by another runtime can only be loaded
    in this process, while its signatures exist.

    Args:
      served: the model.
      folder: an empty folder.
      version: where it will be, BASE/NUMBER.
      recipe, training: see `write_version`.

    Returns:
      The signatures by name.
    """
    signatures = save(served, folder)
    extra = folder / EXTRA
    extra.mkdir()
    write_labels(extra, served.labels or None)
    if recipe is not None:
        text = json.dumps(_without_places(recipe), indent=2)
        write_text(extra / RECIPE_FILE, text + "\n")
    description = describe_model(served) | dict(training or {})
    text = json.dumps(description, indent=2)
    write_text(extra / MODEL_FILE, text + "\n")
    logs = [
        _prediction_log(version.parent.name, request, served.method)
        for request in served.all_requests()
    ]
    try:
        with tf.io.TFRecordWriter(str(extra / WARM_UP_FILE)) as writer:
            for log in logs:
                writer.write(log.SerializeToString(deterministic=True))
    except tf.errors.OpError as error:
        raise writing_failed(error, version) from None
    return signatures


def _without_places(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with paths cut to file names; hub names stay."""

    def cut(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = value.split(",")
        if name not in _PLACES and not any(map(os.path.isabs, parts)):
            return value
        return ",".join(
            part if "://" in part else pathlib.PurePath(part).name
            for part in parts
        )

    return {name: cut(name, value) for name, value in recipe.items()}


def _version(path: pathlib.Path, version: int | None) -> int:
    if path.exists() and not path.is_dir():
        raise UserError(f"`path`={path}: is a file, no folder.")
    versions = [
        int(folder.name)
        for folder in (path.iterdir() if path.is_dir() else ())
        if re.fullmatch("[0-9]+", folder.name)
    ]
    if version is None:
        return max(versions, default=0) + 1
    whole_number("version", version, 0)
    if version in versions:
        raise UserError(
            f"`version`={version}: {path / str(version)} exists already; "
            f"{max(versions) + 1} would be the next one."
        )
    return version


def save(
    served: TextModel, folder: pathlib.Path
) -> dict[str, Callable[..., Tensors]]:
    """Writes only the SavedModel, and returns its signatures by name."""
    functions: dict[str, Any] = served.all_signatures()
    signatures = {
        name: function.get_concrete_function()
        for name, function in functions.items()
    }
    # Only the variables that the graphs read: saving the Keras model would
    # trace and write all of its functions.
    written = tf.Module()
    written.weights = list(
        {
            id(variable): variable
            for graph in signatures.values()
            for variable in graph.variables
        }.values()
    )
    with tempfile.TemporaryDirectory() as temporary:
        served.tokenizer.save(temporary)
        written.vocabulary_files = [
            tf.saved_model.Asset(os.path.join(temporary, name))
            for name in served.tokenizer.data.FILES
        ]
        # Tracing gradients would double the time of the export.
        options = tf.saved_model.SaveOptions(
            experimental_custom_gradients=False
        )
        try:
            tf.saved_model.save(written, str(folder), signatures, options)
        except tf.errors.OpError as error:
            raise writing_failed(error, folder) from None
    if served.method:
        # TensorFlow 2 marks every signature as one for :predict.
        path = folder / "saved_model.pb"
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        for graph in model.meta_graphs:
            definition = graph.signature_def[served.method]
            definition.method_name = f"tensorflow/serving/{served.method}"
        path.write_bytes(model.SerializeToString(deterministic=True))
        # It no longer matches the file, and is optional.
        (folder / "fingerprint.pb").unlink(missing_ok=True)
    return signatures


def _prediction_log(
    model: str, request: Request, method: str | None
) -> prediction_log_pb2.PredictionLog:
    """Converts a request to TensorFlow Serving's log format."""
    log = prediction_log_pb2.PredictionLog()
    if request.signature == method:
        kind = log.classify_log if method == "classify" else log.regress_log
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


def _check(
    fresh: FreshProcess,
    folder: pathlib.Path,
    signatures: Mapping[str, Callable[..., Tensors]],
    requests: Sequence[Request],
    compute_dtype: str,
    name: str,
) -> None:
    """Compares a SavedModel's outputs in a fresh process with those in memory.

    Errors call the folder `name`.
    """
    asked = [
        (
            request.signature,
            {n: pack(np.asarray(v)) for n, v in request.inputs.items()},
        )
        for request in requests
    ]
    fresh.ask(folder, asked)
    # On the CPU, as the fresh process, since a GPU rounds differently.
    with tf.device(HOST):
        computed = [
            signatures[request.signature](
                **{n: tf.constant(v) for n, v in request.inputs.items()}
            )
            for request in requests
        ]
    tolerance = TOLERANCES.get(compute_dtype, TOLERANCES["float32"])
    for request, expected, given in zip(
        requests, computed, fresh.answers(name), strict=True
    ):
        if set(expected) != set(given):
            raise UserError(
                f"{name}: the signature {request.signature} gives "
                f"{', '.join(sorted(given))}, and in memory "
                f"{', '.join(sorted(expected))}; the export was not finished."
            )
        for output, value in expected.items():
            difference = _difference(
                value.numpy(), unpack(given[output]), tolerance
            )
            if difference:
                raise UserError(
                    f"{name}: {output} of the signature {request.signature} "
                    f"is not what the model in memory gives ({difference}); "
                    "the export was not finished."
                )


def _difference(
    expected: np.ndarray, given: np.ndarray, tolerance: float
) -> str | None:
    """Describes how two arrays differ; returns None if they are equal."""
    if expected.shape != given.shape or expected.dtype != given.dtype:
        return (
            f"{given.dtype} {list(given.shape)}, not {expected.dtype} "
            f"{list(expected.shape)}"
        )
    if expected.dtype.kind == "f":
        if np.allclose(given, expected, tolerance, tolerance, equal_nan=False):
            return None
        with np.errstate(invalid="ignore"):
            return f"up to {np.abs(given - expected).max():.3g} apart"
    if np.array_equal(given, expected):
        return None
    index = tuple(np.argwhere(given != expected)[0])
    return f"{given[index]!r} in place of {expected[index]!r}"
