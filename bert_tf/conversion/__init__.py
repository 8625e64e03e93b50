"""Converts checkpoints between families and verifies the result."""

from bert_tf.conversion.convert import ConversionReport, convert_checkpoint
from bert_tf.conversion.proof import Comparison

__all__ = ["Comparison", "ConversionReport", "convert_checkpoint"]
