"""What byte-level BPE and unigram models share as TensorFlow operations."""

from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_tf.text import unicode_tables
from bert_tf.text.added_tokens import AddedTokens, Pieces
from bert_tf.text.normalizer import Normalizer
from bert_tf.text.subwords import Subwords
from bert_tf.text.tokenizer import GraphTokenizer, text_ids

# Replace NUL, at which string operations may stop: noncharacters of four bytes.
NUL = "\U0010fffe", "\U0010ffff", "\U000ffffe"
# A table of replacements without entries, as SentencePiece stores it.
_NO_REPLACEMENTS = (1024).to_bytes(4, "little") + bytes(1025)


class SubwordTokenizer(GraphTokenizer):
    """The base of tokenizers that split text into subwords; a `Tokenizer`.

    Bytes that are not UTF-8 are decoded as U+FFFD. Added tokens are recognized
    in text as by Hugging Face's tokenizers; special tokens are split like other
    text unless `split_special_tokens` is False. A token with some bytes of a
    character spans the character. Subclasses define `_pieces`, and
    `_make_normalizer` if text is normalized before.
    """

    data: Subwords

    def __init__(
        self, data: Subwords, split_special_tokens: bool = True
    ) -> None:
        """Builds the tables.

        Args:
          data: tokens and rules.
          split_special_tokens: see the class.
        """
        super().__init__()
        self.data = self.vocabulary = data
        self.split_special_tokens = split_special_tokens
        with tf.init_scope(), tf.device("/CPU:0"):
            self._tokens = tf.constant(data.tokens)
            self._spelled = tf.constant(data.spelled)
            self._normalizer = self._make_normalizer()
            self._added_tokens = AddedTokens(
                data.recognized_tokens(split_special_tokens),
                data,
                self._normalizer,
                nul=NUL,
            )

    @classmethod
    def from_data(
        cls, data: Subwords, split_special_tokens: bool = True
    ) -> "SubwordTokenizer":
        """Builds the tokenizer; see the constructor."""
        return cls(data, split_special_tokens)

    @staticmethod
    def _operation(model: bytes) -> tf_text.SentencepieceTokenizer:
        """Makes the operation of a model.

        The operation owns the model. One that was created eagerly would be lost
        with keras.utils.clear_session(), so each function has its own.
        """
        return tf_text.SentencepieceTokenizer(model=model, out_type=tf.int32)

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""
        return self.data.lower_case

    @property
    def stand_alone(self) -> frozenset[int]:
        """The code points that always are separate words."""
        return unicode_tables.stand_alone()

    @property
    def added_ids(self) -> tuple[int, ...]:
        """The ids of tokens that are recognized in text before it is split."""
        return self._added_tokens.ids

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.data):,} tokens)"

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes texts, string [B], as before splitting."""
        return self._normalizer.normalize(texts)

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Joins tokens to text, without special tokens.

        Args:
          ids: int32 [B, tokens], dense or ragged, or [tokens].

        Returns:
          string [B], or a scalar; U+FFFD for bytes that are not UTF-8.
        """
        ids, is_single = text_ids(ids, self.data)
        with tf.device("/CPU:0"):
            spelled = tf.gather(self._spelled, ids.flat_values)
            joined = tf.strings.reduce_join(
                ids.with_flat_values(spelled), axis=-1
            )
            texts = tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8")
        return texts[0] if is_single else texts

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Flat ids, row splits, and flat character offsets of a batch."""
        with tf.device("/CPU:0"):
            return self._added_tokens.split(texts, self._pieces)

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def _tokenize(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Flat ids and row splits of a batch; offsets are not computed."""
        ids, splits, *_ = self._tokenize_with_offsets(texts)
        return ids, splits

    def _make_normalizer(self) -> Normalizer:
        return Normalizer()

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """Splits normalized texts: ids, row splits, byte starts and ends."""
        raise NotImplementedError


def with_replacements(model: ModelProto) -> bytes:
    """Serializes a model; the operation logs a line for one without a table."""
    if not model.normalizer_spec.precompiled_charsmap:
        model.normalizer_spec.precompiled_charsmap = _NO_REPLACEMENTS
    serialized: bytes = model.SerializeToString()
    return serialized
