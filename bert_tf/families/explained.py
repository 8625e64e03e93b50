"""What is explained: the rows that a model reads, and a number made of them.

The number is, of whatever a model chooses among, the log odds of the target,
ln(p / (1 - p)): unlike a logit it does not change where all logits grow by the
same, and unlike a probability it does not stop changing near 1.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.architectures.parts import HEADS_ON_POOLER, TASK_HEADS
from bert_tf.errors import UserError
from bert_tf.families.requests import Tensors, valid_text
from bert_tf.families.text_model import TextModel, encoder_of
from bert_tf.families.words import WordFinder
from bert_tf.features import MASKED_LM_POSITIONS
from bert_tf.text.layout import TokenIds, pack_rows, token_ids
from bert_tf.text.tokenizer_protocol import Tokenizer

LOG_ODDS, SCORE = "log odds", "score"
# Tokens, padding included, that go through a model at a time.
TOKENS_AT_ONCE = 2048
# Of one answer: its gradient keeps what was computed of all of them, and its
# attention is as many numbers for each of them in every head.
_MAX_TOKENS = 2048
Target = str | int | None


class Place(NamedTuple):
    """A word's place in a text.

    Attributes:
      column: the text's name.
      start: its first character.
      end: its exclusive end.
    """

    column: str
    start: int
    end: int


class Subject(NamedTuple):
    """An answer to be explained.

    Attributes:
      texts: what was asked, by name.
      words: their words, whether the model reads them or not.
      inputs: the encoder's, int32 [R, S], of the rows that the answer is from.
      owner: int [R, S], the word that each token is of; -1 of [CLS], [SEP]
        and padding.
      target: what is explained, in words.
      unit: what is measured, `LOG_ODDS` or `SCORE`.
      measure: from logits, float32 [M, R, ...] or [M, R, S, ...], to it, [M].
    """

    texts: dict[str, str]
    words: tuple[Place, ...]
    inputs: Tensors
    owner: np.ndarray
    target: str
    unit: str
    measure: Callable[[tf.Tensor], tf.Tensor]


class Forward:
    """From a model's inputs to the logits of its head.

    Unlike the model itself it takes word_embeddings.

    Args:
      model: a model of one task on an encoder, or a `BertPretrainer`, whose
        inputs have masked_lm_positions [R, 1].
    """

    def __init__(self, model: keras.Model):
        self.encoder = encoder_of(model)
        self._masked_lm = getattr(model, "masked_lm", None)
        if self._masked_lm is None:
            (self._head,) = (x for x in model.layers if x.name in TASK_HEADS)

    def __call__(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The logits, float32.

        Returns:
          [R, C], [R, S, C] of a head on tokens, or [R, 1, V] of a masked LM.
        """
        inputs = dict(inputs)
        positions = inputs.pop(MASKED_LM_POSITIONS.name, None)
        outputs = self.encoder(inputs, training=False)
        if self._masked_lm is not None:
            return self._masked_lm(
                outputs["sequence_output"],
                positions,
                self.encoder.embeddings.word_table,
            )
        if self._head.name in HEADS_ON_POOLER:
            return self._head(outputs["pooled_output"])
        return self._head(outputs["sequence_output"])

    def in_blocks(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The same of any number of rows, some at a time."""
        count, length = inputs["input_ids"].shape
        size = max(TOKENS_AT_ONCE // length, 1)
        return tf.concat(
            [
                self({n: v[begin : begin + size] for n, v in inputs.items()})
                for begin in range(0, count, size)
            ],
            0,
        )


class TokenizedTexts:
    """Texts in a row's place A or B: their tokens and words.

    Args:
      tokenizer: of the model.
      find_words: finds the words.
      texts: by name.
      num_before: words that are counted before these.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        find_words: WordFinder,
        texts: Mapping[str, str],
        num_before: int = 0,
    ):
        self.texts = dict(texts)
        strings = valid_text(tf.constant(list(texts.values())))
        ids, begins, ends = tokenizer.tokenize_with_offsets(strings)
        codes = tf.strings.unicode_decode(strings, "UTF-8")
        self.found = find_words(codes, ids, begins, ends)
        self.tokens = token_ids(ids)
        self.begins, self.ends = begins.flat_values, ends.flat_values
        names = list(texts)
        self.words = tuple(
            Place(names[row], start, end)
            for row, start, end in zip(
                self.found.row.numpy().tolist(),
                self.found.begin.numpy().tolist(),
                self.found.end.numpy().tolist(),
                strict=True,
            )
        )
        count = np.arange(len(self.begins))
        self.owner = (
            num_before
            - 1
            + np.searchsorted(self.found.token.numpy(), count, side="right")
        )

    def range_of(self, start: int, end: int) -> tuple[int, int]:
        """The tokens of a stretch of characters, as begin and end."""
        first = np.searchsorted(self.ends, start, side="right")
        return int(first), int(np.searchsorted(self.begins, end))


def check_size(served: TextModel, found: Subject) -> None:
    """Raises `UserError` where there is nothing to explain, or too much."""
    columns = " and ".join(f"`{name}`" for name in served.columns)
    if (found.owner < 0).all():
        raise UserError(f"{columns}: no word that could be explained.")
    if found.owner.size > _MAX_TOKENS:
        raise UserError(
            f"{columns}: the model reads {len(found.owner)} rows of up to "
            f"{found.owner.shape[1]} tokens; at most {_MAX_TOKENS:,} tokens "
            "can be explained. Shorten it."
        )


def log_odds(logits: tf.Tensor, target: int) -> tf.Tensor:
    """ln(p / (1 - p)) of one of C classes, [...], of logits [..., C]."""
    others = tf.concat([logits[..., :target], logits[..., target + 1 :]], -1)
    return logits[..., target] - tf.reduce_logsumexp(others, -1)


def check_others(count: int) -> None:
    """Raises `UserError` where a model has one answer alone."""
    if count < 2:
        raise UserError(
            "`target`: the model has nothing else to choose, so its answer "
            "does not depend on the text."
        )


def encoder_inputs(
    served: TextModel, rows: Sequence[TokenIds | None]
) -> dict[str, tf.Tensor]:
    """The encoder's inputs of rows."""
    first, second = rows
    assert first is not None
    packed = pack_rows(first, second, served.tokenizer.packing)
    return packed.padded(tf.reduce_max(packed.lengths))


def subject_of_rows(
    served: TextModel,
    first: TokenizedTexts,
    second: TokenizedTexts | None,
    rows: Sequence[TokenIds | None],
    target: str,
    unit: str,
    measure: Callable[[tf.Tensor], tf.Tensor],
) -> Subject:
    """A subject of rows of one or two texts."""
    inputs, packing = encoder_inputs(served, rows), served.tokenizer.packing
    owner = np.full(inputs["input_ids"].shape, -1)
    for number, places_of_row in enumerate(owner):
        begin = len(packing.begin)
        for texts, read in zip((first, second), rows, strict=True):
            if texts is None or read is None:
                continue
            count, start = int(read.count[number]), int(read.begin[number])
            places_of_row[begin : begin + count] = texts.owner[
                start : start + count
            ]
            begin += count + len(packing.middle)
    return Subject(
        {**first.texts, **(second.texts if second else {})},
        (*first.words, *(second.words if second else ())),
        inputs,
        owner,
        target,
        unit,
        measure,
    )
