"""What is explained of an answer: the rows that a model reads, and a score.

The score of a target that a model chooses among others is its log odds,
ln(p / (1 - p)). Unlike a logit, they do not change if all logits grow by the
same amount; unlike a probability, they do not saturate near 1.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

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

LOG_ODDS, SCORE = "log odds", "score"
# Tokens, padding included, that a model computes at a time.
TOKENS_AT_ONCE = 2048
# The gradient of an answer stores the activations of all its tokens, and its
# attention has as many numbers for each of them in every head.
_MAX_TOKENS = 2048
Target = str | int | None


class Place(NamedTuple):
    """The characters of a word.

    Attributes:
      column: the name of its text.
      start: its first character.
      end: its exclusive end.
    """

    column: str
    start: int
    end: int


class Subject(NamedTuple):
    """An answer to be explained.

    Attributes:
      texts: the texts that were asked, by name.
      words: their words, also those that the model does not read.
      inputs: the encoder's inputs, int32 [R, S], of the rows that the answer
        depends on.
      owner: int [R, S], the index of each token's word; -1 for [CLS], [SEP] and
        padding.
      target: the explained target, in words.
      unit: what is measured, `LOG_ODDS` or `SCORE`.
      measure: computes it, [M], from logits, float32 [M, R, ...] or
        [M, R, S, ...].
    """

    texts: dict[str, str]
    words: tuple[Place, ...]
    inputs: Tensors
    owner: np.ndarray
    target: str
    unit: str
    measure: Callable[[tf.Tensor], tf.Tensor]


class Forward:
    """Computes the logits of a model's head.

    Unlike the model itself, it accepts word_embeddings.

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
        """Computes the logits of R rows.

        Returns:
          float32 [R, C]; of a head on tokens [R, S, C]; of a masked LM
          [R, 1, V].
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
        """Computes the logits of any number of rows, in blocks."""
        count, length = inputs["input_ids"].shape
        size = max(TOKENS_AT_ONCE // length, 1)
        return tf.concat(
            [
                self({n: v[begin : begin + size] for n, v in inputs.items()})
                for begin in range(0, count, size)
            ],
            0,
        )


@dataclasses.dataclass(frozen=True)
class TokenizedTexts:
    """T tokens and the words of texts that are text A or B of a row.

    Attributes:
      texts: the texts by name.
      words: their words.
      tokens: the tokens of each text.
      begins: int [T], the first character of each token in its text.
      ends: int [T], their exclusive ends.
      owner: int [T], the index of each token's word; -1 for blanks in a text
        without words.
    """

    texts: dict[str, str]
    words: tuple[Place, ...]
    tokens: TokenIds
    begins: np.ndarray
    ends: np.ndarray
    owner: np.ndarray

    @classmethod
    def of(
        cls, served: TextModel, texts: Mapping[str, str], first_word: int = 0
    ) -> Self:
        """Tokenizes texts by name.

        A blank before a word belongs to it. Words without a token of their own
        are joined to the word before, with whose token they begin.

        Args:
          served: the model.
          texts: the texts.
          first_word: the index of the first word in `owner`.
        """
        strings = valid_text(tf.constant(list(texts.values())))
        ids, begins, ends = served.tokenizer.tokenize_with_offsets(strings)
        codes = tf.strings.unicode_decode(strings, "UTF-8")
        words = WordFinder(served.tokenizer)(codes)
        row, word_begin, word_end, _ = (each.numpy() for each in words)
        token_row = ids.value_rowids().numpy()
        flat_begins = begins.flat_values.numpy()
        flat_ends = ends.flat_values.numpy()
        shift = codes.row_starts().numpy()
        owner = np.searchsorted(
            word_end + shift[row], flat_begins + shift[token_row], side="right"
        )
        # Blanks at the end of a text belong to its last word.
        last = np.searchsorted(row, token_row, side="right") - 1
        owner = np.minimum(owner, last)
        owned = owner >= np.searchsorted(row, token_row)
        numbers = np.unique(owner[owned])
        longer = owned.copy()
        longer[owned] = flat_begins[owned] < word_end[owner[owned]]
        np.maximum.at(word_end, owner[longer], flat_ends[longer])
        names = list(texts)
        places = tuple(
            Place(names[row[n]], int(word_begin[n]), int(word_end[n]))
            for n in numbers
        )
        owner = first_word + np.searchsorted(numbers, owner)
        return cls(
            dict(texts),
            places,
            token_ids(ids),
            flat_begins,
            flat_ends,
            np.where(owned, owner, -1),
        )

    def range_of(self, start: int, end: int) -> tuple[int, int]:
        """The begin and end of the tokens of a range of characters."""
        first = np.searchsorted(self.ends, start, side="right")
        return int(first), int(np.searchsorted(self.begins, end))


def check_size(served: TextModel, found: Subject) -> None:
    """Raises `UserError` if there is no word to explain, or too many."""
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
    """Computes the log odds of one of C classes, [...], from [..., C]."""
    others = tf.concat([logits[..., :target], logits[..., target + 1 :]], -1)
    return logits[..., target] - tf.reduce_logsumexp(others, -1)


def check_others(count: int) -> None:
    """Raises `UserError` if a model has only one possible answer."""
    if count < 2:
        raise UserError(
            "`target`: the model has nothing else to choose, so its answer "
            "does not depend on the text."
        )


def encoder_inputs(
    served: TextModel, rows: Sequence[TokenIds | None]
) -> dict[str, tf.Tensor]:
    """Returns the encoder's inputs for rows of texts A and B."""
    first, second = rows
    assert first is not None
    packed = pack_rows(first, second, served.tokenizer.packing)
    return packed.padded(tf.reduce_max(packed.lengths))


def subject_of_rows(
    served: TextModel,
    texts: Sequence[TokenizedTexts],
    rows: Sequence[TokenIds | None],
    target: str,
    measure: Callable[[tf.Tensor], tf.Tensor],
    unit: str = LOG_ODDS,
) -> Subject:
    """Returns the subject of rows of one or two texts.

    Args:
      served: the model.
      texts: texts A, and texts B if there are any.
      rows: of each, the tokens that the model reads in R rows.
      target, measure, unit: see `Subject`.
    """
    inputs, packing = encoder_inputs(served, rows), served.tokenizer.packing
    owner = np.full(inputs["input_ids"].shape, -1)
    for number, owner_of_row in enumerate(owner):
        begin = len(packing.begin)
        for each, tokens in zip(texts, rows, strict=False):
            assert tokens is not None
            count, start = int(tokens.count[number]), int(tokens.begin[number])
            owner_of_row[begin : begin + count] = each.owner[
                start : start + count
            ]
            begin += count + len(packing.middle)
    return Subject(
        {name: text for each in texts for name, text in each.texts.items()},
        tuple(word for each in texts for word in each.words),
        inputs,
        owner,
        target,
        unit,
        measure,
    )
