"""Tagging: a text in, its words found, its entities out.

Files of tagged words have punctuation apart, but leave together what belongs
together: U.N., O'Neal, 1996-08-22, AT&T; a final 's is a word of its own. The
tokenizer's words are smaller: each punctuation character is one. So these are
put together again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.requests import (
    Request,
    checked_windows,
    requests_of,
    sample_lengths,
    sample_text,
    signature,
    string_array,
    text_spec,
    valid_text,
)
from bert_tf.families.row_computer import HOST, Tensors, largest
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    TextModel,
    check_outputs,
    encoder_of,
)
from bert_tf.families.token_classification.entities import (
    OUTSIDE,
    continues,
    tag_table,
)
from bert_tf.text import unicode_tables
from bert_tf.text.packing import TokenIds, Tokenizer, Windows
from bert_tf.text.packing_graph import (
    most_context,
    row_lengths,
    take,
    text_of,
    token_ids,
)

# How words are found: "text" as above, "blanks" where the text is made of the
# words of a file with blanks between.
WORD_RULES = ("text", "blanks")
_APOSTROPHES = "'\u2019"
# What stands inside a word between letters, and between figures alone.
_INSIDE = f"-._/&@+{_APOSTROPHES}\u2010\u2011"
_INSIDE_NUMBERS = ",:"
_LETTER, _PUNCTUATION, _IDEOGRAPH = range(3)


class Words(NamedTuple):
    """K words of B texts.

    Attributes:
      row: int32 [K], whose each is.
      token: int32 [K], its first token in the flat list of all tokens.
      begin: int32 [K], its first character in its text.
      end: int32 [K], its exclusive end.
    """

    row: tf.Tensor
    token: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor


class TagModel(TextModel):
    """A model that tags words, which takes text.

    Signatures:
      serving_default: text, string [B] -> entities, labels, string [B, E],
        starts and ends, int32 [B, E], their places in characters of the text,
        scores, float32 [B, E], the mean probability of the tags of their
        words; and count, int32 [B]. Rows with fewer entities are filled up
        with "", -1 and 0.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] -> logits,
        float32 [B, S, C].

    Args:
      model: from the encoder's inputs to logits [B, S, C].
      tokenizer: the tokenizer it was trained with.
      max_seq_length: the longest row; longer texts are read through windows
        that overlap, as in `bert_tf.families.token_classification`.
      labels: names of the C tags: O and types with prefixes, such as B-LOC and
        I-LOC, or labels without them, such as ADJ and LOC, where an entity is
        a run of words with one label other than O.
      doc_stride: tokens from one window to the next; None is half of one.
      max_windows: of a text; longer ones are refused.
      word_rule: "text" for raw text; "blanks" where blanks stand between the
        words of a file, punctuation apart.

    Raises:
      UserError: see `TextModel`; or settings that are none.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_seq_length: int = 128,
        doc_stride: int | None = None,
        max_windows: int = 128,
        word_rule: str = "text",
    ):
        super().__init__(
            model, encoder_of(model), tokenizer, max_seq_length, labels
        )
        check_outputs(model.output_shape[-1], labels)
        if word_rule not in WORD_RULES:
            raise UserError(
                f"word_rule is {word_rule!r}; it takes one of "
                f"{', '.join(WORD_RULES)}."
            )
        if doc_stride is not None and doc_stride < 1:
            raise UserError(f"doc_stride={doc_stride}: it takes 1 or more.")
        self._room = max_seq_length - tokenizer.packing.num_special(1)
        stride = max(self._room // 2, 1) if doc_stride is None else doc_stride
        self._stride = min(stride, self._room)
        self._max_windows = max_windows
        self.find_words = WordFinder(tokenizer, word_rule)

    task = "token classification"

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        return {
            SERVING_DEFAULT: signature(self._from_text, text_spec("text")),
            TOKENS: self.tokens_signature(),
        }

    def requests(self) -> list[Request]:
        """Texts of several lengths, one of them of several windows."""
        lengths = sample_lengths(self.max_seq_length)
        texts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        *alone, _ = requests_of(SERVING_DEFAULT, text=texts)
        together = {"text": string_array([*texts, ""])}
        return [*alone, Request(SERVING_DEFAULT, together)]

    def _from_text(self, text: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            text = valid_text(text)
            ids, begins, ends = self.tokenizer.tokenize_with_offsets(text)
            codes = tf.strings.unicode_decode(text, "UTF-8")
            words = self.find_words(codes, ids, begins, ends)
            texts = token_ids(ids)
            windows, rows = self.rows(texts)
            packing = self.tokenizer.packing
            width = largest(row_lengths(rows, None, packing))
        logits = self.compute(
            rows,
            None,
            lambda inputs, chosen: {"logits": self.forward(inputs)},
            {"logits": (None, len(self.labels))},
            width,
        )["logits"]
        with tf.device(HOST):
            asked = places(words, texts, windows, len(packing.begin))
            return self._answers(codes, words, tf.gather_nd(logits, asked))

    def rows(self, texts: TokenIds) -> tuple[Windows, TokenIds]:
        """The windows on texts, each of which is a row."""
        windows = checked_windows(
            texts.count,
            self._room,
            self._stride,
            self._max_windows,
            "text",
            align_last=True,
        )
        return windows, take(texts, windows.text, windows.offset, windows.count)

    def _answers(
        self, codes: tf.RaggedTensor, words: Words, logits: tf.Tensor
    ) -> Tensors:
        """The entities of B texts from the logits of K words [K, C]."""
        tags = tf.argmax(logits, -1, output_type=tf.int32)
        share = tf.reduce_max(tf.nn.softmax(logits), -1)
        table = tag_table(self.labels)
        kind = tf.gather(table.kind, tags)
        same = continues(
            words.row,
            kind,
            tf.gather(table.begins, tags),
            tf.gather(table.ends, tags),
        )
        # The words that are of an entity, and which of them begin one.
        inside = kind >= 0
        begins = inside & ~tf.concat([[False], same], 0)[: tf.size(tags)]
        word = tf.cast(tf.where(inside)[:, 0], tf.int32)
        entity = tf.gather(tf.cumsum(tf.cast(begins, tf.int32)) - 1, word)
        first = tf.cast(tf.where(begins)[:, 0], tf.int32)
        size = tf.size(first)
        last = tf.math.unsorted_segment_max(word, entity, size)
        scores = tf.math.unsorted_segment_sum(
            tf.gather(share, word), entity, size
        ) / tf.cast(last - first + 1, tf.float32)
        names = tf.constant([*table.kinds, OUTSIDE])
        row = tf.gather(words.row, first)
        begin, end = tf.gather(words.begin, first), tf.gather(words.end, last)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(row), row, codes.nrows()
        )
        place = tf.gather(tf.cast(codes.row_starts(), tf.int32), row) + begin

        def dense(values: tf.Tensor, fill: str | int | float) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(
                values, counts, validate=False
            )
            return ragged.to_tensor(fill)

        return {
            "entities": dense(
                text_of(codes.flat_values, place, end - begin), ""
            ),
            "labels": dense(tf.gather(names, tf.gather(kind, first)), ""),
            "starts": dense(begin, -1),
            "ends": dense(end, -1),
            "scores": dense(scores, 0.0),
            "count": counts,
        }

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The entities: text, label, start and end in characters, score."""
        names = ("entities", "labels", "starts", "ends", "scores")
        columns = [outputs[name].tolist() for name in names]
        return [
            {
                "entities": [
                    {
                        "text": text.decode(),
                        "label": label.decode(),
                        "start": start,
                        "end": end,
                        "score": score,
                    }
                    for text, label, start, end, score, _ in zip(
                        *row, range(count), strict=False
                    )
                ]
            }
            for *row, count in zip(*columns, outputs["count"], strict=True)
        ]

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return {"logits": self.forward(inputs)}


def places(
    words: Words, texts: TokenIds, windows: Windows, before: int
) -> tf.Tensor:
    """Window and position that answer for each word, int32 [K, 2].

    Before the text, a row has `before` special tokens.
    The window is the one that shows the word's first token in most context.
    """
    begin = tf.gather(texts.begin, windows.text) + windows.offset
    best_begin, _ = most_context(windows)
    window = tf.searchsorted(begin + best_begin, words.token, "right") - 1
    place = words.token - tf.gather(begin, window) + before
    return tf.stack([window, place], 1)


class WordFinder(tf.Module):
    """Finds the words of texts.

    Args:
      tokenizer: what makes the tokens.
      rule: "text" or "blanks".
    """

    def __init__(self, tokenizer: Tokenizer, rule: str):
        super().__init__()
        self._by_blanks = rule == "blanks"
        firsts, kinds = _kinds_of_characters(
            tokenizer.config.tokenize_chinese_chars
        )
        with tf.init_scope(), tf.device("/CPU:0"):
            self._is_continuation = tf.constant(
                tokenizer.vocabulary.is_continuation
            )
            self._firsts, self._kinds = tf.constant(firsts), tf.constant(kinds)

    def __call__(
        self,
        codes: tf.RaggedTensor,
        ids: tf.RaggedTensor,
        begins: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> Words:
        """Finds the words.

        Args:
          codes: the characters, int32 [B, characters].
          ids: the tokens, int32 [B, tokens].
          begins: the character that each begins at.
          ends: their exclusive ends.
        """
        rows = tf.cast(ids.value_rowids(), tf.int32)
        # The tokenizer's words, by their first tokens.
        first = ~tf.gather(self._is_continuation, ids.flat_values)
        token = tf.cast(tf.where(first)[:, 0], tf.int32)
        row = tf.gather(rows, token)
        begin = tf.gather(begins.flat_values, token)
        end = tf.gather(ends.flat_values, _lasts(token, tf.size(rows)))
        touches = (row == _shifted(row, 1, -1)) & (
            begin <= _shifted(end, 1, -1)
        )
        if self._by_blanks:
            glued = touches
        else:
            starts = tf.cast(codes.row_starts(), tf.int32)
            before = tf.gather(starts, row)
            glued = self._glued(
                touches,
                tf.gather(codes.flat_values, before + begin),
                tf.gather(codes.flat_values, before + end - 1),
                end - begin,
            )
        number = tf.cast(tf.where(~glued)[:, 0], tf.int32)
        last = _lasts(number, tf.size(token))
        return Words(
            tf.gather(row, number),
            tf.gather(token, number),
            tf.gather(begin, number),
            tf.gather(end, last),
        )

    def _glued(
        self,
        touches: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        size: tf.Tensor,
    ) -> tf.Tensor:
        """Which of the tokenizer's words continue the one before.

        Args:
          touches: bool [N], whether no blank is before it.
          first: int32 [N], its first character.
          last: int32 [N], its last character.
          size: int32 [N], how many it has.
        """
        run = tf.searchsorted(self._firsts, first, side="right") - 1
        is_word = tf.gather(self._kinds, run) == _LETTER
        before, after = (
            _shifted(is_word, 1, False),
            _shifted(is_word, -1, False),
        )
        touched = _shifted(touches, -1, False)
        between = touches & before & touched & after
        figures = _is_figure(_shifted(last, 1, 0)) & _is_figure(
            _shifted(first, -1, 0)
        )
        inside = between & (
            _is_one_of(first, _INSIDE)
            | (_is_one_of(first, _INSIDE_NUMBERS) & figures)
        )
        follows = _shifted(touched & after, -1, False)
        clitic = (
            touched
            & _is_one_of(first, _APOSTROPHES)
            & _is_one_of(_shifted(first, -1, 0), "sS")
            & (_shifted(size, -1, 0) == 1)
            & ~follows
        )
        period = _is_one_of(first, ".")
        letter = (first >= ord("A")) & (first <= ord("Z")) & (size == 1)
        letter &= ~_shifted(inside, 1, False)
        abbreviates = (
            period
            & touches
            & (_shifted(period & inside, 2, False) | _shifted(letter, 1, False))
        )
        return (
            (inside & ~clitic)
            | _shifted(inside | clitic, 1, False)
            | (abbreviates & before)
        )


def _lasts(firsts: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """The last of each stretch, of which the first ones are given."""
    return tf.concat([firsts[1:], [total]], 0)[: tf.size(firsts)] - 1


def _shifted(values: tf.Tensor, by: int, outside: bool | int) -> tf.Tensor:
    """At each place the value `by` places before it."""
    fill = tf.fill([abs(by)], tf.constant(outside, values.dtype))
    if by > 0:
        return tf.concat([fill, values], 0)[: tf.size(values)]
    return tf.concat([values, fill], 0)[-by:]


def _is_one_of(codes: tf.Tensor, characters: str) -> tf.Tensor:
    codes_of = [ord(character) for character in characters]
    return tf.reduce_any(codes[:, tf.newaxis] == codes_of, 1)


def _is_figure(codes: tf.Tensor) -> tf.Tensor:
    return (codes >= ord("0")) & (codes <= ord("9"))


def _kinds_of_characters(
    tokenize_chinese_chars: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Runs of characters of one kind: their first ones, and the kinds."""
    kinds = np.full(unicode_tables.CODE_POINTS, _LETTER, np.int32)
    kinds[sorted(unicode_tables.punctuation())] = _PUNCTUATION
    if tokenize_chinese_chars:
        kinds[sorted(unicode_tables.ideographs())] = _IDEOGRAPH
    firsts = np.flatnonzero(np.diff(kinds, prepend=-1)).astype(np.int32)
    return firsts, kinds[firsts]
