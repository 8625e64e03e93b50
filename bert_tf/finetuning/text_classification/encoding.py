"""Examples as token ids: every text is tokenised once, before training."""

from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.recipe import LONG_INPUTS
from bert_tf.text.packing import (
    EncodedRows,
    TokenIds,
    make_windows,
    num_windows,
    pack_rows,
    tokenize_texts,
    truncate,
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

    A pair that is too long is truncated as by `SentencePacker`: token by token
    at the end of the longer text, the second where they are equally long. With
    long_inputs="windows" a text that is too long becomes several rows that
    overlap: of a pair, the second text is split into windows and the first is
    repeated in each, itself truncated to half of the room where it is longer.

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
    if long_inputs == "windows":
        example, first, second = _windows(first, second, room, doc_stride)
    else:
        example = np.arange(len(examples))
        first, second = truncate(first, second, room)
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


def _windows(
    first: TokenIds, second: TokenIds | None, room: int, doc_stride: int
) -> tuple[np.ndarray, TokenIds, TokenIds | None]:
    """As many rows of each example as show all of it."""
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
    counts = num_windows(texts.count, room, doc_stride)
    windows = make_windows(counts, texts.count, room, doc_stride)
    begin = texts.begin[windows.text] + windows.offset
    return windows.text, TokenIds(texts.ids, begin, windows.count)
