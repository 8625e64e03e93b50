"""Keras layers of BERT, written with keras.ops alone."""

from bert_tf.layers.attention import SelfAttention, attention_bias
from bert_tf.layers.base import Dense, GlorotDense, LayerNorm
from bert_tf.layers.bilstm import BiLSTM
from bert_tf.layers.block import TransformerBlock
from bert_tf.layers.embeddings import Embeddings, FactorizedEmbeddings
from bert_tf.layers.heads import (
    MaskedLMHead,
    NextSentenceHead,
    Pooler,
    ReplacedTokensHead,
)
from bert_tf.layers.rotary import RotaryAttention

__all__ = [
    "BiLSTM",
    "Dense",
    "Embeddings",
    "FactorizedEmbeddings",
    "GlorotDense",
    "LayerNorm",
    "MaskedLMHead",
    "NextSentenceHead",
    "Pooler",
    "ReplacedTokensHead",
    "RotaryAttention",
    "SelfAttention",
    "TransformerBlock",
    "attention_bias",
]
