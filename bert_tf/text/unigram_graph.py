"""SentencePiece's unigram model as TensorFlow operations."""

from typing import Any

import tensorflow as tf
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_tf.text.added_tokens import Pieces
from bert_tf.text.normalizer import CodePointNormalizer, Normalizer
from bert_tf.text.subword_graph import (
    NUL,
    SubwordTokenizer,
    with_replacements,
)
from bert_tf.text.unigram import Unigram


class UnigramTokenizer(SubwordTokenizer):
    """Splits text into the ids of a unigram model; see `SubwordTokenizer`.

    TensorFlow Text's SentencePiece operation is the reference, as in the
    authors' code. The range of a piece at the start of a word includes the
    blank before it.
    """

    data: Unigram

    def __init__(self, data: Unigram, split_special_tokens: bool = True):
        """Builds the tables.

        Args:
          data: the model and its rules.
          split_special_tokens: see `SubwordTokenizer`.
        """
        super().__init__(data, split_special_tokens)
        self._model = with_replacements(
            ModelProto.FromString(data.scored_model())
        )

    def _make_normalizer(self) -> Normalizer:
        replacements = self.data.replacements()
        if not replacements:
            return Normalizer()
        return CodePointNormalizer(replacements, self.data.case_forms())

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """The pieces of normalised texts: ids, rows, byte starts and ends."""
        texts = tf.strings.regex_replace(texts, r"\x00", NUL[0])
        operation = self._operation(self._model)
        ids, starts, ends = operation.tokenize_with_offsets(texts)
        return (
            ids.flat_values,
            ids.row_splits,
            tf.cast(starts.flat_values, tf.int64),
            tf.cast(ends.flat_values, tf.int64),
        )

    def detokenize(self, ids: Any) -> tf.Tensor:
        """See `SubwordTokenizer.detokenize`."""
        # The blank that is added before every text.
        return tf.strings.regex_replace(super().detokenize(ids), "^ ", "")
