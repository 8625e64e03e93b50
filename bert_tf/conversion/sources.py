"""The variables in a source's own files, by its family."""

import pathlib
from typing import Any

from bert_tf.checkpoints import open_arrays
from bert_tf.checkpoints.h5_file import open_h5_arrays
from bert_tf.checkpoints.hugging_face_files import open_weights
from bert_tf.checkpoints.tensorflow_reader import (
    OBJECT_GRAPH,
    find_prefix,
    open_checkpoint,
)
from bert_tf.conversion.numpy_forward import SourceVariables
from bert_tf.conversion.views import GoogleVariables, HuggingFaceVariables
from bert_tf.conversion.views_keras import (
    KerasHubVariables,
    ModelGardenVariables,
)
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object


def open_variables(folder: pathlib.Path, family: str) -> SourceVariables:
    """Opens a folder's own variables, which are read when asked for.

    Args:
      folder: a model folder that `load_checkpoint` can read.
      family: its family, see `recognise`.
    """
    return {
        "bert_tf": _own,
        "google_tf1": _google,
        "model_garden": _model_garden,
        "hugging_face": _hugging_face,
        "keras_hub": _keras_hub,
    }[family](folder)


def _own(folder: pathlib.Path) -> SourceVariables:
    return GoogleVariables(
        read_json_object(folder / "bert_config.json"),
        open_arrays(folder / "bert_model.safetensors"),
    )


def _google(folder: pathlib.Path) -> SourceVariables:
    return GoogleVariables(
        read_json_object(folder / "bert_config.json"),
        open_checkpoint(find_prefix(folder, object_based=False)),
    )


def _hugging_face(folder: pathlib.Path) -> SourceVariables:
    return HuggingFaceVariables(
        read_json_object(folder / "config.json"), open_weights(folder)
    )


def _keras_hub(folder: pathlib.Path) -> SourceVariables:
    whole = folder / "model.weights.h5"
    files = [whole] if whole.exists() else folder.glob("model_*.weights.h5")
    opened: dict[str, tuple[LazyArrays, str]] = {}
    for path in (*sorted(files), folder / "task.weights.h5"):
        if path.exists():
            arrays = open_h5_arrays(path)
            place = path.name[: len("task")].replace("mode", "model")
            for name in arrays:
                opened[f"{place}/{_name_of_today(name)}"] = arrays, name
    return KerasHubVariables(
        read_json_object(folder / "config.json")["config"],
        LazyArrays(
            {new: arrays.shapes[old] for new, (arrays, old) in opened.items()},
            lambda new: opened[new][0][opened[new][1]],
        ),
    )


def _name_of_today(name: str) -> str:
    """A path as Keras 3 writes it; Keras 2.13 and early 3 wrote others."""
    name = name.replace("_layer_checkpoint_dependencies/", "layers/")
    return name.replace("_self_attention_layer/_", "_self_attention_layer/")


def _model_garden(folder: pathlib.Path) -> SourceVariables:
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    prefix = find_prefix(folder, object_based=True)
    opened = open_checkpoint(prefix)
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(opened[OBJECT_GRAPH])
    keys: dict[str, str] = {}
    for node in graph.nodes:
        for value in node.attributes:
            key, name = value.checkpoint_key, value.full_name
            if "optimizer/" in key or ".OPTIMIZER_SLOT/" in key:
                continue
            # Two heads have the same name; the one for spans is a network of
            # its own, so its layer lies one level deeper.
            if "predictions/transform/logits/" in name:
                span = "/layer_with_weights-0/" in key
                name = f"{'span' if span else 'token'}/{name}"
            keys[name] = key
    return ModelGardenVariables(
        _model_garden_config(folder),
        LazyArrays(
            {name: opened.shapes[key] for name, key in keys.items()},
            lambda name: opened[keys[name]],
        ),
        str(prefix),
    )


def _model_garden_config(folder: pathlib.Path) -> dict[str, Any]:
    """What the computation depends on, of either file that tells it."""
    if (folder / "bert_config.json").exists():
        return read_json_object(folder / "bert_config.json")
    import yaml

    text = (folder / "params.yaml").read_text(encoding="utf-8")
    encoder = yaml.safe_load(text)["task"]["model"]["encoder"]
    values = encoder[encoder["type"]]
    return {
        "num_hidden_layers": values.get("num_layers", 12),
        "num_attention_heads": values.get("num_attention_heads", 12),
        "hidden_act": values.get("hidden_activation", "gelu"),
    }
