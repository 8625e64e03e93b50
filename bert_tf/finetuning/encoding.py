"""Examples as token ids: every text is tokenised once, before training."""

from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.kinds.sentence_recipe import LONG_INPUTS
from bert_tf.text.rows import (
    EncodedRows,
    TokenIds,
    counted,
    cut_to_fit,
    pack_rows,
    tokenize_texts,
)
from bert_tf.text.tokenizer import BertTokenizer


def encode(
    examples: Sequence[Example],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    long_inputs: str = "cut",
    doc_stride: int = 64,
) -> EncodedRows:
    """Tokenises and packs examples.

    A pair that is too long is cut as by `SentencePacker`: token by token at
    the end of the longer text, the second where they are equally long. With
    long_inputs="windows" a text that is too long becomes several rows that
    overlap: of a pair, the second text is cut in windows and the first is
    repeated in each, itself cut to half of the room where it is longer.

    Args:
      examples: the examples; in all of them, or in none, text_b is None.
      tokenizer: what turns texts into ids.
      max_seq_length: S, the longest row.
      long_inputs: "cut" or "windows".
      doc_stride: tokens from the start of a window to that of the next; where
        it is longer than a window, windows follow one another.

    Raises:
      UserError: some examples are pairs and others are not, or an unknown
        long_inputs.
    """
    if long_inputs not in LONG_INPUTS:
        raise UserError(
            f"long_inputs is {long_inputs!r}; it takes one of "
            f"{', '.join(LONG_INPUTS)}."
        )
    pairs = _are_pairs(examples)
    first = tokenize_texts([example.text_a for example in examples], tokenizer)
    second = None
    if pairs:
        second = tokenize_texts(
            [example.text_b or "" for example in examples], tokenizer
        )
    room = max_seq_length - (3 if pairs else 2)
    cut = _windows if long_inputs == "windows" else _cut
    example, first, second = cut(first, second, room, doc_stride)
    return pack_rows(example, first, second, len(examples), tokenizer)


def _are_pairs(examples: Sequence[Example]) -> bool:
    pairs = bool(examples) and examples[0].text_b is not None
    for example in examples:
        if (example.text_b is not None) != pairs:
            raise UserError(
                f"row {example.row}: has {'one text' if pairs else 'a pair'} "
                f"where the rows before have "
                f"{'a pair' if pairs else 'one text'}."
            )
    return pairs


def _cut(
    first: TokenIds, second: TokenIds | None, room: int, doc_stride: int
) -> tuple[np.ndarray, TokenIds, TokenIds | None]:
    """One row an example, its texts cut to fit."""
    del doc_stride
    return np.arange(len(first.count)), *cut_to_fit(first, second, room)


def _windows(
    first: TokenIds, second: TokenIds | None, room: int, doc_stride: int
) -> tuple[np.ndarray, TokenIds, TokenIds | None]:
    """As many rows an example as it takes to show all of it."""
    if second is None:
        example, windows = _windows_of(first, room, doc_stride)
        return example, windows, None
    fits = first.count + second.count <= room
    count_a = np.where(fits, first.count, np.minimum(first.count, room // 2))
    example, windows = _windows_of(second, room - count_a, doc_stride)
    repeated = TokenIds(first.ids, first.begin[example], count_a[example])
    return example, repeated, windows


def _windows_of(
    texts: TokenIds, room: int | np.ndarray, doc_stride: int
) -> tuple[np.ndarray, TokenIds]:
    """Windows of `room` tokens, and the text that each of them is of."""
    room = np.broadcast_to(room, texts.count.shape)
    stride = np.minimum(doc_stride, room)
    more = -(-np.maximum(texts.count - room, 0) // stride)
    example = np.repeat(np.arange(len(texts.count)), 1 + more)
    number = counted(1 + more)
    offset = number * stride[example]
    count = np.minimum(texts.count[example] - offset, room[example])
    return example, TokenIds(texts.ids, texts.begin[example] + offset, count)
