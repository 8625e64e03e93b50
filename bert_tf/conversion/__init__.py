"""Converts checkpoints between families and verifies the result."""

from bert_tf.conversion.convert import ConversionReport

# Its name before it was `bert_tf.convert`.
from bert_tf.conversion.convert import convert as convert_checkpoint
from bert_tf.conversion.proof import Comparison

__all__ = ["Comparison", "ConversionReport", "convert_checkpoint"]
