"""Examples as token ids: every text is tokenised once, before training."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.recipe import LONG_INPUTS
from bert_tf.text.tokenizer import BertTokenizer

# Texts tokenised at a time.
_TEXTS = 4096


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Packed rows of token ids, end to end, without padding.

    Attributes:
      ids: int32 [T], [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of every row.
      starts: int64 [R + 1], where each row begins in `ids`.
      first: int64 [R], how many tokens of a row are of segment 0.
      example: int64 [R], the example that a row is of, ascending.
      weights: float32 [R], one over the rows of its example.
      num_examples: how many examples the rows are of.
      pad_id: what pads a row.
    """

    ids: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    example: np.ndarray
    weights: np.ndarray
    num_examples: int
    pad_id: int

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [R]."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.example)


@dataclasses.dataclass(frozen=True)
class _Texts:
    """Token ids of texts, end to end: of text i begin and count tell where."""

    ids: np.ndarray
    begin: np.ndarray
    count: np.ndarray


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
    first = _tokenize([example.text_a for example in examples], tokenizer)
    second = None
    if pairs:
        second = _tokenize([example.text_b for example in examples], tokenizer)
    room = max_seq_length - (3 if pairs else 2)
    cut = _windows if long_inputs == "windows" else _cut
    example, first, second = cut(first, second, room, doc_stride)
    return _packed(example, first, second, len(examples), tokenizer)


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


def _tokenize(texts: Sequence[str], tokenizer: BertTokenizer) -> _Texts:
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(texts), _TEXTS):
        ragged = tokenizer.tokenize(list(texts[start : start + _TEXTS]))
        ids.append(ragged.values.numpy().astype(np.int32))
        counts.append(ragged.row_lengths().numpy().astype(np.int64))
    count = np.concatenate(counts)
    return _Texts(np.concatenate(ids), np.cumsum(count) - count, count)


def _cut(
    first: _Texts, second: _Texts | None, room: int, doc_stride: int
) -> tuple[np.ndarray, _Texts, _Texts | None]:
    """One row an example, its texts cut to fit."""
    del doc_stride
    example = np.arange(len(first.count))
    if second is None:
        count = np.minimum(first.count, room)
        return example, dataclasses.replace(first, count=count), None
    count_a = np.minimum(
        first.count, np.maximum(room - second.count, (room + 1) // 2)
    )
    count_b = np.minimum(
        second.count, np.maximum(room - first.count, room // 2)
    )
    return (
        example,
        dataclasses.replace(first, count=count_a),
        dataclasses.replace(second, count=count_b),
    )


def _windows(
    first: _Texts, second: _Texts | None, room: int, doc_stride: int
) -> tuple[np.ndarray, _Texts, _Texts | None]:
    """As many rows an example as it takes to show all of it."""
    if second is None:
        example, windows = _windows_of(first, room, doc_stride)
        return example, windows, None
    fits = first.count + second.count <= room
    count_a = np.where(fits, first.count, np.minimum(first.count, room // 2))
    example, windows = _windows_of(second, room - count_a, doc_stride)
    repeated = _Texts(first.ids, first.begin[example], count_a[example])
    return example, repeated, windows


def _windows_of(
    texts: _Texts, room: int | np.ndarray, doc_stride: int
) -> tuple[np.ndarray, _Texts]:
    """Windows of `room` tokens, and the text that each of them is of."""
    room = np.broadcast_to(room, texts.count.shape)
    stride = np.minimum(doc_stride, room)
    more = -(-np.maximum(texts.count - room, 0) // stride)
    example = np.repeat(np.arange(len(texts.count)), 1 + more)
    number = _counted(1 + more)
    offset = number * stride[example]
    count = np.minimum(texts.count[example] - offset, room[example])
    return example, _Texts(texts.ids, texts.begin[example] + offset, count)


def _counted(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... count - 1 for each count, end to end."""
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)


def take_ranges(
    ids: np.ndarray, begin: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Stretches of an array, end to end.

    Args:
      ids: [T].
      begin: int64 [R], where each stretch begins.
      count: int64 [R], how long it is.
    """
    return ids[np.repeat(begin, count) + _counted(count)]


def _packed(
    example: np.ndarray,
    first: _Texts,
    second: _Texts | None,
    num_examples: int,
    tokenizer: BertTokenizer,
) -> EncodedRows:
    """Lays out [CLS] A [SEP], or with B [SEP] behind it, of every row."""
    vocabulary = tokenizer.vocabulary
    source = [np.array([vocabulary.cls_id, vocabulary.sep_id]), first.ids]
    zeros, ones = np.zeros_like(first.count), np.ones_like(first.count)
    # Where each piece of a row lies in the source, and how long it is.
    pieces = [(zeros, ones), (first.begin + 2, first.count), (ones, ones)]
    lengths = first.count + 2
    if second is not None:
        source.append(second.ids)
        begin = second.begin + 2 + len(first.ids)
        pieces += [(begin, second.count), (ones, ones)]
        lengths = lengths + second.count + 1
    begins = np.stack([begin for begin, _ in pieces], axis=1)
    counts = np.stack([count for _, count in pieces], axis=1)
    ids = take_ranges(np.concatenate(source), begins.ravel(), counts.ravel())
    rows = np.bincount(example, minlength=num_examples)
    return EncodedRows(
        ids=ids.astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        first=first.count + 2,
        example=example,
        weights=(1.0 / rows[example]).astype(np.float32),
        num_examples=num_examples,
        pad_id=vocabulary.pad_id,
    )
