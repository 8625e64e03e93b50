"""Keras layers of BERT, written with keras.ops alone."""

from bert_tf.layers.attention import SelfAttention, attention_adder
from bert_tf.layers.base import Dense, LayerNorm
from bert_tf.layers.bilstm import BiLSTM
from bert_tf.layers.block import TransformerBlock
from bert_tf.layers.embeddings import Embeddings
from bert_tf.layers.heads import MaskedLMHead, NextSentenceHead, Pooler

__all__ = [
    "BiLSTM",
    "Dense",
    "Embeddings",
    "LayerNorm",
    "MaskedLMHead",
    "NextSentenceHead",
    "Pooler",
    "SelfAttention",
    "TransformerBlock",
    "attention_adder",
]
