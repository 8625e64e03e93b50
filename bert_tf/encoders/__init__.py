"""Encoders, a file for each architecture."""

from bert_tf.encoders.bert import BertEncoder

__all__ = ["BertEncoder"]
