"""Encoders, a file for each architecture."""

from bert_tf.config import BertConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.encoders.distilbert import DistilBertEncoder
from bert_tf.encoders.electra import ElectraEncoder

__all__ = [
    "BertEncoder",
    "DistilBertEncoder",
    "ElectraEncoder",
    "encoder_class",
]

_CLASSES = {
    encoder.config_class: encoder
    for encoder in (BertEncoder, DistilBertEncoder, ElectraEncoder)
}


def encoder_class(config: BertConfig) -> type[BertEncoder]:
    """The encoder of an architecture."""
    return _CLASSES[type(config)]
