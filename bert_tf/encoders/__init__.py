"""The encoders, one file per architecture."""

import importlib
import os
from typing import Any

from bert_tf.architecture_list import find_architecture
from bert_tf.checkpoints import load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders.bert import BertEncoder

__all__ = ["BertEncoder", "encoder_class", "load_encoder"]


def encoder_class(config: BertConfig) -> type[BertEncoder]:
    """Returns the encoder of an architecture and imports only its module."""
    path = find_architecture(config.model_type, "config").encoder
    module, _, name = path.rpartition(".")
    encoder: type[BertEncoder] = getattr(importlib.import_module(module), name)
    return encoder


def load_encoder(
    source: str | os.PathLike,
    dtype: Any = None,
    rematerialize: bool = False,
    ignore: str = "",
) -> BertEncoder:
    """Builds the encoder of a model folder of any architecture.

    Args:
      source: a model folder of any family, hf://organisation/name or
        keras_hub://preset; see `load_checkpoint`.
      dtype: Keras dtype policy or its name.
      rematerialize: see `BertEncoder`.
      ignore: a regular expression of arrays to ignore; see `load_checkpoint`.

    Returns:
      The `BertEncoder`, or the subclass of its architecture, with its weights.

    Raises:
      UserError: the source is no model, or its arrays do not fit its
        configuration.
    """
    checkpoint = load_checkpoint(source, ignore=ignore)
    encoder = encoder_class(checkpoint.config)
    return encoder.of_checkpoint(checkpoint, dtype, rematerialize)
