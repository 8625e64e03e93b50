"""Truncation, windows and rows against loops over Python lists."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.text import layout, truncation
from bert_tf.text.layout import TokenIds, Windows
from bert_tf.text.token_table import Packing

PAD, CLS, SEP = 0, 2, 3
BERT = Packing((CLS,), (SEP,), (SEP,), 1, PAD)
FRAMES = st.lists(st.sampled_from([CLS, SEP]), max_size=3).map(tuple)
PACKINGS = st.builds(
    Packing, FRAMES, FRAMES, FRAMES, st.integers(0, 1), st.just(PAD)
)
TEXT = st.lists(st.integers(5, 10), max_size=12)
PAIRS = st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=5)
LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=6)
property_test = settings(max_examples=80)


def truncate_seq_pair(a: list, b: list, room: int) -> None:
    """google-research/bert, run_classifier.py, `_truncate_seq_pair`."""
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()


def doc_spans(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """run_squad.py, `convert_examples_to_features`: offset and length."""
    spans, offset = [], 0
    while offset < length:
        spans.append((offset, min(length - offset, room)))
        if offset + spans[-1][1] == length:
            break
        offset += min(spans[-1][1], stride)
    return spans


def best_span(spans: list[tuple[int, int]], position: int) -> int:
    """run_squad.py, `_check_is_max_context`: the best span's number."""
    best_score = best = None
    for number, (start, length) in enumerate(spans):
        end = start + length - 1
        if not start <= position <= end:
            continue
        score = min(position - start, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best = score, number
    return best


def rows_by_loop(pairs, packing: Packing, length: int) -> list[tuple]:
    """Token ids and segments of each row of (A, B), B may be None."""
    rows = []
    for a, b in pairs:
        a, b = list(a), None if b is None else list(b)
        frames = (packing.begin, packing.middle, packing.end)
        begin, middle, end = map(list, frames)
        if b is None:
            ids = begin + a[: length - len(begin) - len(end)] + end
            rows.append((ids, [0] * len(ids)))
        else:
            special = len(begin) + len(middle) + len(end)
            truncate_seq_pair(a, b, length - special)
            first, second = begin + a + middle, b + end
            segments = [packing.second_segment] * len(second)
            rows.append((first + second, [0] * len(first) + segments))
    return rows


def texts_of(rows: list[list[int]]) -> TokenIds:
    """Texts as ranges of one array, with what is none of theirs between."""
    count = np.array([len(row) for row in rows], np.int32)
    flat = [token for row in rows for token in (99, *row)]
    begin = np.cumsum(count + 1) - count
    return TokenIds(*(tf.constant(x, tf.int32) for x in (flat, begin, count)))


def packed_rows(pairs, packing: Packing, length: int) -> layout.EncodedRows:
    """Rows of (A, B) as long as they may be; those without a B have None."""
    is_pair = np.array([b is not None for _, b in pairs], bool)
    room = np.where(is_pair, packing.num_special(2), packing.num_special(1))
    texts = [texts_of([pair[side] or [] for pair in pairs]) for side in (0, 1)]
    kept = layout.truncate(*texts, (length - room).astype(np.int32))
    return layout.pack_rows(*kept, packing, is_pair=is_pair)


def assert_equal(found, expected) -> None:
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def assert_padded(packed, rows: list[tuple[list, list]], width: int) -> None:
    """The encoder's inputs [R, width] against rows."""
    assert list(packed) == ["input_ids", "input_mask", "segment_ids"]
    assert {value.dtype for value in packed.values()} == {tf.int32}
    ids, mask, segments = (value.numpy().tolist() for value in packed.values())
    rest = [[0] * (width - len(own)) for own, _ in rows]
    padded = list(zip(rows, rest, strict=True))
    assert ids == [own + pad for (own, _), pad in padded]
    assert mask == [[1] * len(own) + pad for (own, _), pad in padded]
    assert segments == [own + pad for (_, own), pad in padded]


@property_test
@given(a=st.integers(0, 60), b=st.integers(0, 60), room=st.integers(0, 70))
def test_lengths_of_pairs(a: int, b: int, room: int) -> None:
    """Of plain numbers, arrays and tensors."""
    left, right = [0] * a, [0] * b
    truncate_seq_pair(left, right, room)
    for kind, minimum, maximum in (
        (int, min, max),
        (np.int64, np.minimum, np.maximum),
        (tf.constant, tf.minimum, tf.maximum),
    ):
        given = kind(a), kind(b), room, minimum, maximum
        kept = truncation.truncated_lengths(*given)
        assert tuple(map(int, kept)) == (len(left), len(right))


@property_test
@given(pairs=PAIRS, packing=PACKINGS, data=st.data())
def test_rows_of_which_some_are_pairs(pairs, packing, data) -> None:
    length = packing.num_special(2) + data.draw(st.integers(1, 15))
    expected = rows_by_loop(pairs, packing, length)
    rows = packed_rows(pairs, packing, length)
    lengths = [len(ids) for ids, _ in expected]
    assert_equal(rows.lengths, lengths)
    assert_equal(rows.starts, np.cumsum([0, *lengths]))
    assert_padded(rows.padded(length), expected, length)
    flat = {name: value.numpy() for name, value in rows.flat().items()}
    for number, of_row in enumerate(expected):
        own = slice(*rows.starts.numpy()[number : number + 2])
        found = [flat[n][own].tolist() for n in ("input_ids", "segment_ids")]
        assert tuple(found) == of_row
    assert (flat["input_mask"] == 1).all()


@property_test
@given(pairs=PAIRS.filter(bool), length=st.integers(4, 20), data=st.data())
def test_batches_of_rows(pairs: list, length: int, data: st.DataObject) -> None:
    """All with a B, or none; rows by number, in any order and again."""
    is_pair = data.draw(st.booleans())
    pairs = [(a, (b or []) if is_pair else None) for a, b in pairs]
    expected = rows_by_loop(pairs, BERT, length)
    kept = layout.truncate(
        texts_of([a for a, _ in pairs]),
        texts_of([b for _, b in pairs]) if is_pair else None,
        length - BERT.num_special(1 + is_pair),
    )
    rows = layout.pack_rows(*kept, BERT)
    numbers = st.integers(0, len(pairs) - 1)
    chosen = data.draw(st.lists(numbers, min_size=1, max_size=7))
    found = [expected[number] for number in chosen]
    longest = max(len(ids) for ids, _ in found)
    assert_padded(rows.batch(chosen), found, longest)
    assert_padded(rows.batch(np.array(chosen), 30), found, 30)


def test_rows_of_an_example_count_as_one() -> None:
    texts = texts_of([[5]] * 6)
    example = tf.constant([0, 2, 2, 2, 3, 3])
    rows = layout.pack_rows(texts, None, BERT, example, 4)
    assert len(rows) == 6
    taken = rows.take(tf.constant([4, 1]))
    assert taken.example.numpy().tolist() == [3, 2]
    rows = layout.pack_rows(texts, None, BERT)
    assert rows.example.numpy().tolist() == [*range(6)]


@property_test
@given(
    lengths=LENGTHS,
    stride=st.integers(1, 12),
    empty=st.integers(0, 1),
    align_last=st.booleans(),
)
def test_windows_and_most_context(lengths, stride, empty, align_last) -> None:
    expected = []
    for text, (length, room) in enumerate(lengths):
        spans = doc_spans(length, room, stride) or [(0, 0)] * empty
        for number, (offset, count) in enumerate(spans):
            if align_last and number and number == len(spans) - 1:
                offset, count = length - room, room
            expected.append((text, number, offset, count))
    length, room = np.array(lengths, np.int32).reshape(-1, 2).T
    counts = layout.num_windows(tf.constant(length), room, stride, empty)
    assert_equal(counts, truncation.num_windows(length, room, stride, empty))
    assert counts.numpy().tolist() == [
        truncation.num_windows(*each, stride, empty, min, max)
        for each in lengths
    ]
    found = layout.make_windows(counts, length, room, stride, align_last)
    columns = zip(*expected, strict=True) if expected else [[]] * 4
    for values, column in zip(vars(found).values(), columns, strict=True):
        assert_equal(values, list(column))

    begin, end = (bound.numpy() for bound in layout.most_context(found))
    for text, (length, _) in enumerate(lengths):
        own = np.flatnonzero(found.text == text)
        offset = found.offset.numpy()[own]
        spans = list(zip(offset, found.count.numpy()[own], strict=True))
        shown = [best_span(spans, token) for token in range(length)]
        size = (end - begin)[own]
        assert_equal(np.repeat(np.arange(len(own)), size), shown)
        assert_equal(offset + begin[own], np.cumsum(size) - size)


def test_a_token_is_in_most_context_once() -> None:
    """What windows share is the first one's where both show as much."""
    windows = Windows(*map(tf.constant, ([0, 0], [0, 1], [0, 2], [4, 4])))
    begin, end = layout.most_context(windows)
    assert (begin.numpy().tolist(), end.numpy().tolist()) == ([0, 1], [3, 4])


def test_ranges_of_vectors() -> None:
    values = np.arange(12).reshape(6, 2)
    taken = layout.take_ranges(values, np.array([4, 0, 2]), np.array([2, 0, 1]))
    assert taken.numpy().tolist() == [[8, 9], [10, 11], [4, 5]]


def test_texts_of_characters() -> None:
    codes = tf.strings.unicode_decode("größer \U0001f600", "UTF-8")
    texts = layout.text_of(codes, *map(tf.constant, ([2, 7, 0], [3, 1, 0])))
    assert [t.decode() for t in texts.numpy()] == ["öße", "\U0001f600", ""]


@pytest.mark.parametrize("is_pair", [False, True])
def test_compiled_for_any_batch(is_pair: bool) -> None:
    """One trace serves all: no shape is read while tracing."""

    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)]
        * (1 + is_pair),
        autograph=False,
    )
    def packed(a: tf.RaggedTensor, b: tf.RaggedTensor | None = None) -> dict:
        second = None if b is None else layout.token_ids(b)
        room = 10 - BERT.num_special(1 + is_pair)
        kept = layout.truncate(layout.token_ids(a), second, room)
        rows = layout.pack_rows(*kept, BERT)
        return rows.padded(tf.reduce_max(rows.lengths))

    for pairs in ([([5] * 9, [6] * 2)], [([5], [7, 8]), ([], [6] * 30)]):
        found = packed(
            *(
                tf.ragged.constant([p[i] for p in pairs], tf.int32, 1)
                for i in range(1 + is_pair)
            )
        )
        rows = [(a, b if is_pair else None) for a, b in pairs]
        expected = rows_by_loop(rows, BERT, 10)
        assert_padded(found, expected, found["input_ids"].shape[1])
    assert packed.experimental_get_tracing_count() == 1
