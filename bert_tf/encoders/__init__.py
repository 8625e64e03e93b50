"""Encoders, a file for each architecture."""

import importlib

from bert_tf.architecture_list import find_architecture
from bert_tf.config import BertConfig
from bert_tf.encoders.bert import BertEncoder

__all__ = ["BertEncoder", "encoder_class"]


def encoder_class(config: BertConfig) -> type[BertEncoder]:
    """The encoder of an architecture, whose module alone is imported."""
    place = find_architecture(config.model_type, "config").encoder
    module, _, name = place.rpartition(".")
    encoder: type[BertEncoder] = getattr(importlib.import_module(module), name)
    return encoder
