"""Derives the architecture of a SavedModel of Model Garden's encoder.

TensorFlow Hub's and Kaggle's encoders have no configuration. Sizes follow from
the arrays, the activation from the operations of the graphs, and epsilon from
Keras' metadata of the layers, in keras_metadata.pb or, before TensorFlow 2.5,
in saved_model.pb. Dropout rates, which matter only in training, are BERT's.

Source: tf-models-official 2.20, official/nlp/tools/export_tfhub_lib.py.
"""

import pathlib
import re
from collections.abc import Callable

from bert_tf.checkpoints.recognition import SAVED_MODEL_FILE
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.foreign_files import read_bytes

METADATA_FILE = "keras_metadata.pb"
# Without metadata.
_EPSILON = 1e-12
# The operations of each activation; the tanh form of GELU has a power.
_OPERATIONS = {"gelu_erf": ("Erf", "Erfc"), "gelu": ("Pow",), "relu": ("Relu",)}


def saved_model_config(
    folder: pathlib.Path,
    shape_of: Callable[[str], tuple[int, ...] | None],
    source: str,
) -> BertConfig:
    """Returns the architecture of an encoder's SavedModel.

    `shape_of` returns the shape of the variable at a path, see
    `model_garden.py`.

    Raises:
      UserError: the arrays or the graphs belong to another model.
    """
    layer = "encoder/_transformer_layers/{}/"
    kernel = f"{layer}_intermediate_dense/kernel"
    layers = 0
    while shape_of(kernel.format(layers)) is not None:
        layers += 1
    try:
        (words, width), (types, _), (positions, _) = (
            shape_of(f"encoder/_{table}embedding_layer/embeddings") or ()
            for table in ("", "type_", "position_")
        )
        query = f"{layer}_attention_layer/_query_dense/kernel".format(0)
        hidden, heads, _ = shape_of(query) or ()
        _, inner = shape_of(kernel.format(0)) or ()
    except ValueError:
        raise UserError(
            f"{source}: lacks arrays that determine a BERT's sizes; put its "
            "bert_config.json into the folder."
        ) from None
    if width != hidden:
        raise UserError(
            f"{source}: embeddings are {width} wide and layers {hidden}; a "
            "BERT has one width."
        )
    metadata = read_bytes(folder / SAVED_MODEL_FILE)
    activation = _activation(metadata, folder)
    if (folder / METADATA_FILE).exists():
        metadata += read_bytes(folder / METADATA_FILE)
    if b'"norm_first": true' in metadata:
        raise UserError(
            f"{folder}: norm_first is true; a BERT normalises after each "
            "sub-layer."
        )
    try:
        return BertConfig(
            vocab_size=words,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=inner,
            hidden_act=activation,
            max_position_embeddings=positions,
            type_vocab_size=types,
            layer_norm_eps=_epsilon(metadata, folder),
        )
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _activation(serialized: bytes, folder: pathlib.Path) -> str:
    """Returns the activation of the feed-forward layers."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString(serialized)
    except DecodeError:
        raise UserError(
            f"{folder / SAVED_MODEL_FILE}: damaged SavedModel."
        ) from None
    operations = {
        node.op
        for graph in model.meta_graphs
        for function in graph.graph_def.library.function
        for node in function.node_def
    }
    found = [
        activation
        for activation, names in _OPERATIONS.items()
        if operations & set(names)
    ]
    if len(found) != 1:
        raise UserError(
            f"{folder / SAVED_MODEL_FILE}: computes "
            f"{' and '.join(found) or 'no activation'} of "
            f"{', '.join(_OPERATIONS)}; one of these can be read."
        )
    return found[0]


def _epsilon(metadata: bytes, folder: pathlib.Path) -> float:
    found = {
        float(text)
        for text in re.findall(rb'"epsilon": ([0-9.]+(?:e-?\d+)?)', metadata)
    }
    if len(found) > 1:
        raise UserError(
            f"{folder}: layer normalisations have the epsilons "
            f"{', '.join(map(str, sorted(found)))}; a BERT has one."
        )
    return found.pop() if found else _EPSILON
