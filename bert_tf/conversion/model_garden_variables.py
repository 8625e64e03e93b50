"""The variables in Model Garden's checkpoints and SavedModels, by their names.

As in `sources.py`, names are written down here a second time.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints.params_file import load_params
from bert_tf.checkpoints.recognition import OBJECT_GRAPH, find_prefix
from bert_tf.checkpoints.tensorflow_reader import open_checkpoint
from bert_tf.conversion.numpy_forward import (
    GOOGLE_ACTIVATIONS,
    Form,
    SourceVariables,
)
from bert_tf.errors import UserError
from bert_tf.foreign_files import read_bytes
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object

# Names of encoders of 2020 and before.
_EARLIER_NAMES = {
    "self_attention_output/": "self_attention/attention_output/",
    "encoder/layer_": "transformer/layer_",
    "embedding_postprocessor/type_embeddings": "type_embeddings/embeddings",
    "embedding_postprocessor/position_embeddings": (
        "position_embedding/embeddings"
    ),
    "embedding_postprocessor/layer_norm": "embeddings/layer_norm",
}


class ModelGardenVariables(SourceVariables):
    """Variables by their own names in Model Garden.

    A name is what it ends with: what stands before it is what the user called
    the model. Kernels are [in, out], those of attention have the heads apart.

    Args:
      config: layers, heads, activation and epsilon in the keys of
        bert_config.json.
      arrays: the arrays by the full names of their variables.
      source: the checkpoint, for errors.
    """

    _LAYER = "transformer/layer_{}/"
    TABLES = {
        "word": "word_embeddings/embeddings",
        "segment": "type_embeddings/embeddings",
        "position": "position_embedding/embeddings",
    }
    LINEAR = {
        "query": f"{_LAYER}self_attention/query/",
        "key": f"{_LAYER}self_attention/key/",
        "value": f"{_LAYER}self_attention/value/",
        "attention_output": f"{_LAYER}self_attention/attention_output/",
        "intermediate": f"{_LAYER}intermediate/",
        "output": f"{_LAYER}output/",
    }
    HEADS = {
        "masked_lm": "cls/predictions/transform/dense/",
        "next_sentence": "next_sentence/logits/",
        "classifier": "sentence_prediction/logits/",
        "token_classifier": "token/predictions/transform/logits/",
        "span": "span/predictions/transform/logits/",
    }
    # The hidden layer of a head stands in for the encoder's pooler.
    POOLERS = (
        "next_sentence/pooler_dense/",
        "sentence_prediction/pooler_dense/",
        "pooler_transform/",
    )
    NORMS = {
        "embeddings": "embeddings/layer_norm/",
        "attention": f"{_LAYER}self_attention_layer_norm/",
        "output": f"{_LAYER}output_layer_norm/",
        "masked_lm": "cls/predictions/transform/LayerNorm/",
    }
    NORM_ENDS = ("gamma", "beta")
    WORD_BIAS = "cls/predictions/output_bias/bias"

    def __init__(
        self,
        config: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        source: str,
    ) -> None:
        super().__init__(Form.of(config, GOOGLE_ACTIVATIONS), arrays)
        self._source = source
        poolers = [p for p in self.POOLERS if self._names(f"{p}kernel")]
        self.heads = {"pooler": poolers[0]} if poolers else {}
        self.heads |= {
            part: name
            for part, name in self.HEADS.items()
            if self._names(f"{name}kernel")
        }

    def _names(self, end: str) -> list[str]:
        return [n for n in self.arrays if n == end or n.endswith(f"/{end}")]

    def array(self, name: str) -> np.ndarray:
        """The one array whose name ends like this."""
        names = self._names(name)
        if len(names) != 1:
            raise UserError(
                f"{self._source}: has {len(names)} variables called {name}; a "
                "conversion can be proved where Model Garden's own names were "
                "kept, each once."
            )
        return self.arrays[names[0]]

    def kernel_and_bias(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Kernels are used as they lie."""
        return self.array(f"{name}kernel"), self.array(f"{name}bias")


def open_model_garden(folder: pathlib.Path) -> ModelGardenVariables:
    """Opens the variables of a folder of Model Garden."""
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
            for earlier, later in _EARLIER_NAMES.items():
                name = name.replace(earlier, later)
            keys[name] = key
    arrays = opened.renamed(keys)
    if (folder / "bert_config.json").exists():
        config = read_json_object(folder / "bert_config.json")
    elif (folder / "saved_model.pb").exists():
        config = _config_of_saved_model(folder, arrays)
    else:
        config = _config_of_params(folder)
    return ModelGardenVariables(config, arrays, str(prefix))


def _config_of_saved_model(
    folder: pathlib.Path, arrays: LazyArrays
) -> dict[str, Any]:
    """What the computation depends on, from the arrays and the graphs."""
    query = re.compile(
        r"(.*/)?transformer/layer_\d+/self_attention/query/kernel"
    )
    queries = [n for name, n in arrays.shapes.items() if query.fullmatch(name)]
    graphs = read_bytes(folder / "saved_model.pb")
    # A node's operation is its second field, a string with its length.
    activations = {"gelu_erf": b"\x12\x03Erf", "relu": b"\x12\x04Relu"}
    found = [name for name, node in activations.items() if node in graphs]
    return {
        "num_hidden_layers": len(queries),
        "num_attention_heads": queries[0][1],
        "hidden_act": found[0] if found else "gelu",
    }


def _config_of_params(folder: pathlib.Path) -> dict[str, Any]:
    """What the computation depends on, from the trainer's parameters."""
    params = load_params(folder / "params.yaml")
    encoder = params["task"]["model"]["encoder"]
    values = encoder[encoder["type"]]
    return {
        "num_hidden_layers": values.get("num_layers", 12),
        "num_attention_heads": values.get("num_attention_heads", 12),
        "hidden_act": values.get("hidden_activation", "gelu"),
    }
