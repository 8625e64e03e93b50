"""Truncation, windows and rows: NumPy, graph and loops over Python lists."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.text import layout, packing, truncation
from bert_tf.text.packing import TokenIds, Windows
from bert_tf.text.sentence_packer import SentencePacker
from bert_tf.text.tokenizer import BertTokenizer

TOKENIZER = BertTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
)
PAD, CLS, SEP = 0, 2, 3
TEXT = st.lists(st.integers(5, 10), max_size=12)
TEXTS = st.lists(TEXT, max_size=5)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=5)
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


def texts_of(rows: list[list[int]]) -> TokenIds:
    """Texts as ranges of one array, with what is none of theirs between."""
    count = np.array([len(row) for row in rows], np.int64)
    flat = [token for row in rows for token in (99, *row)]
    begin = np.cumsum(count + 1) - count
    return TokenIds(np.array(flat, np.int32), begin, count)


def in_graph(value: TokenIds) -> layout.TokenIds:
    """The same with tensors."""
    values = {
        name: tf.constant(array, tf.int32)
        for name, array in vars(value).items()
    }
    return layout.TokenIds(**values)


def assert_equal(found, expected) -> None:
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def assert_windows(found: Windows, expected: list[tuple]) -> None:
    """Windows against (text, number, offset, count) of each."""
    columns = zip(*expected, strict=True) if expected else [[]] * 4
    for values, column in zip(vars(found).values(), columns, strict=True):
        assert_equal(values, list(column))


def rows_by_loop(pairs: list, length: int) -> list[tuple[list, list]]:
    """Token ids and segments of each row of (A, B), B may be None."""
    rows = []
    for a, b in pairs:
        a, b = list(a), None if b is None else list(b)
        if b is None:
            ids = [CLS, *a[: length - 2], SEP]
            rows.append((ids, [0] * len(ids)))
        else:
            truncate_seq_pair(a, b, length - 3)
            segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            rows.append(([CLS, *a, SEP, *b, SEP], segments))
    return rows


def assert_packed(packed, rows: list[tuple[list, list]], length: int) -> None:
    """The encoder's inputs [R, length] against rows."""
    assert list(packed) == ["input_ids", "input_mask", "segment_ids"]
    for ids, segments, (own_ids, own_segments), mask in zip(
        packed["input_ids"],
        packed["segment_ids"],
        rows,
        packed["input_mask"],
        strict=True,
    ):
        rest = length - len(own_ids)
        assert_equal(ids, own_ids + [PAD] * rest)
        assert_equal(segments, own_segments + [0] * rest)
        assert_equal(mask, [1] * len(own_ids) + [0] * rest)


@property_test
@given(a=st.integers(0, 60), b=st.integers(0, 60), room=st.integers(0, 70))
def test_lengths_of_pairs(a: int, b: int, room: int) -> None:
    left, right = [0] * a, [0] * b
    truncate_seq_pair(left, right, room)
    for kind, minimum, maximum in (
        (int, min, max),
        (np.int64, np.minimum, np.maximum),
        (tf.constant, tf.minimum, tf.maximum),
    ):
        kept = truncation.truncated_lengths(
            kind(a), kind(b), room, minimum, maximum
        )
        assert tuple(map(int, kept)) == (len(left), len(right))


@property_test
@given(pairs=PAIRS, length=st.integers(4, 20), is_pair=st.booleans())
def test_rows(pairs: list, length: int, is_pair: bool) -> None:
    first = texts_of([a for a, _ in pairs])
    second = texts_of([b for _, b in pairs]) if is_pair else None
    expected = rows_by_loop(
        [(a, b if is_pair else None) for a, b in pairs], length
    )
    room = length - (3 if is_pair else 2)

    kept = packing.truncate(first, second, room)
    numbers = np.arange(len(pairs))
    rows = packing.pack_rows(numbers, *kept, len(pairs), TOKENIZER)
    assert_equal(rows.ids, [token for ids, _ in expected for token in ids])
    assert_equal(rows.segments, [one for _, own in expected for one in own])
    assert_equal(rows.lengths, [len(ids) for ids, _ in expected])
    if pairs:
        longest = max(len(ids) for ids, _ in expected)
        assert_packed(rows.batch(numbers), expected, longest)

    graph = layout.truncate(
        in_graph(first), in_graph(second) if is_pair else None, room
    )
    own = layout.pack_rows(*graph, TOKENIZER.packing)
    assert_equal(own.lengths, rows.lengths)
    for mine, theirs in zip(own.arrays, rows.arrays, strict=True):
        assert mine.dtype == theirs.dtype
        assert_equal(mine, theirs)
    packed = own.padded(length)
    assert all(value.dtype == tf.int32 for value in packed.values())
    assert_packed(packed, expected, length)

    sides = (
        tf.ragged.constant([pair[i] for pair in pairs], tf.int32, ragged_rank=1)
        for i in range(1 + is_pair)
    )
    packed = SentencePacker(TOKENIZER, length).pack_ids(*sides)
    assert_packed(packed, expected, length)


@property_test
@given(texts=TEXTS, data=st.data())
def test_rows_of_which_some_are_pairs(texts: list, data) -> None:
    second = [data.draw(st.none() | TEXT) for _ in texts]
    is_pair = np.array([text is not None for text in second], bool)
    room = 7 - 2 - is_pair
    kept = packing.truncate(
        texts_of(texts), texts_of([text or [] for text in second]), room
    )
    rows = packing.pack_rows(
        np.arange(len(texts)), *kept, len(texts), TOKENIZER, is_pair
    )
    expected = rows_by_loop(list(zip(texts, second, strict=True)), 7)
    assert_equal(rows.ids, [token for ids, _ in expected for token in ids])
    assert_equal(rows.segments, [one for _, own in expected for one in own])


LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=6)


def both_windows(
    lengths: list[tuple[int, int]], stride: int, empty: int, align_last: bool
) -> tuple[Windows, Windows]:
    """Windows of NumPy and of the graph on (length, room) of each text."""
    length, room = np.array(lengths, np.int64).reshape(-1, 2).T
    counts = truncation.num_windows(length, room, stride, empty)
    found = packing.make_windows(counts, length, room, stride, align_last)
    length, room = (tf.constant(v, tf.int32) for v in (length, room))
    counts = layout.num_windows(length, room, stride, empty)
    graph = layout.make_windows(counts, length, room, stride, align_last)
    return found, graph


@property_test
@given(
    lengths=LENGTHS,
    stride=st.integers(1, 12),
    empty=st.integers(0, 1),
    align_last=st.booleans(),
)
def test_windows_and_most_context(
    lengths: list[tuple[int, int]], stride: int, empty: int, align_last: bool
) -> None:
    expected = []
    for text, (length, room) in enumerate(lengths):
        spans = doc_spans(length, room, stride) or [(0, 0)] * empty
        for number, (offset, count) in enumerate(spans):
            if align_last and number and number == len(spans) - 1:
                offset, count = length - room, room
            expected.append((text, number, offset, count))
    found, graph = both_windows(lengths, stride, empty, align_last)
    assert_windows(found, expected)
    assert_windows(graph, expected)

    begin, end = packing.most_context(found)
    for mine, theirs in zip(
        (begin, end), layout.most_context(graph), strict=True
    ):
        assert_equal(mine, theirs)
    for text, (length, _) in enumerate(lengths):
        own = np.flatnonzero(found.text == text)
        offset = found.offset[own]
        spans = list(zip(offset, found.count[own], strict=True))
        shown = [best_span(spans, token) for token in range(length)]
        owners = np.repeat(np.arange(len(own)), (end - begin)[own])
        assert_equal(owners, shown)
        starts = offset + begin[own]
        assert_equal(starts, np.cumsum((end - begin)[own]) - (end - begin)[own])


def test_room_may_be_one_for_all_texts() -> None:
    length = np.array([3, 9, 0])
    counts = truncation.num_windows(length, 4, 2)
    found = packing.make_windows(counts, length, 4, 2)
    counts = layout.num_windows(tf.constant([3, 9, 0]), 4, 2)
    graph = layout.make_windows(counts, tf.constant([3, 9, 0]), 4, 2)
    for windows in (found, graph):
        assert_equal(windows.count, [3, 4, 4, 4, 3, 0])


@given(
    st.lists(st.integers(1, 600), max_size=60),
    st.integers(1, 9),
    st.integers(1, 4),
)
def test_batches_by_length(
    lengths: list[int], batch_size: int, multiple: int
) -> None:
    count = np.array(lengths, np.int64)
    batches = list(packing.batches_by_length(count, batch_size, multiple))
    order = np.concatenate([np.zeros(0, np.int64), *batches])
    np.testing.assert_array_equal(np.sort(order), np.arange(len(count)))
    # The longest first, equal ones as they come.
    np.testing.assert_array_equal(order, np.argsort(-count, kind="stable"))
    for rows in batches[:-1]:
        assert len(rows) % multiple == 0
        padded, budget = count[rows].max(), batch_size * 128
        assert len(rows) * padded <= budget or len(rows) == multiple
        # No more would fit.
        assert (len(rows) + multiple) * padded > budget
    if batches:
        padded = len(batches[-1]) * count[batches[-1]].max()
        assert padded <= batch_size * 128 or len(batches[-1]) <= multiple


def test_taken_texts() -> None:
    texts = in_graph(texts_of([[5, 6, 7], [8], [9, 10]]))
    taken = layout.take(texts, tf.constant([2, 0, 0]))
    packed = layout.pack_rows(taken, None, TOKENIZER.packing).padded(5)
    assert packed["input_ids"].numpy().tolist() == [
        [2, 9, 10, 3, 0],
        [2, 5, 6, 7, 3],
        [2, 5, 6, 7, 3],
    ]
    part = layout.take(
        texts, tf.constant([0]), tf.constant([1]), tf.constant([1])
    )
    assert part.begin.numpy().tolist() == [2]
    assert part.count.numpy().tolist() == [1]


def test_compiled_for_any_batch() -> None:
    """One trace serves all: no shape is read while tracing."""

    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)] * 2,
        autograph=False,
    )
    def packed(a: tf.RaggedTensor, b: tf.RaggedTensor) -> dict:
        kept = layout.truncate(*map(layout.token_ids, (a, b)), 7)
        rows = layout.pack_rows(*kept, TOKENIZER.packing)
        return rows.padded(tf.reduce_max(rows.lengths))

    for pairs in ([([5] * 9, [6] * 2)], [([5], [7, 8]), ([], [6] * 30)]):
        found = packed(
            *(
                tf.ragged.constant([p[i] for p in pairs], tf.int32, 1)
                for i in (0, 1)
            )
        )
        assert_packed(
            found, rows_by_loop(pairs, 10), found["input_ids"].shape[1]
        )


def test_texts_single_and_batched_and_in_datasets() -> None:
    packer = SentencePacker(TOKENIZER, 8)
    left, right = ["a b c d", "", "e"], ["f", "a a", "b b b b b b b"]
    packed = packer.pack(left, right)
    assert packed["input_ids"].shape == [3, 8]
    assert packed["input_ids"][0].numpy().tolist() == [2, 5, 6, 7, 8, 3, 10, 3]
    data = tf.data.Dataset.from_tensor_slices((left, right))
    mapped = data.map(packer.pack)
    assert mapped.element_spec["input_mask"].shape == [8]
    for dataset in (mapped.batch(3), data.batch(3).map(packer)):
        for name, spec in dataset.element_spec.items():
            assert spec.shape.as_list() == [None, 8]
            found = next(iter(dataset))[name].numpy()
            np.testing.assert_array_equal(found, packed[name].numpy())
    one = packer.pack("a b c d", "f")
    assert one["segment_ids"].numpy().tolist() == [0] * 6 + [1] * 2
    alone = packer(tf.constant("a b c d e f a b"))
    assert alone["input_ids"].numpy().tolist() == [2, 5, 6, 7, 8, 9, 10, 3]


def test_dense_ids() -> None:
    packer = SentencePacker(TOKENIZER, 5)
    packed = packer.pack_ids(tf.constant([[5, 6], [7, 8]]))
    assert packed["input_ids"].numpy().tolist() == [
        [2, 5, 6, 3, 0],
        [2, 7, 8, 3, 0],
    ]
    packed = packer.pack_ids(tf.constant([], tf.int32))
    assert packed["input_mask"].numpy().tolist() == [1, 1, 0, 0, 0]


def test_bad_input() -> None:
    for length in (2, 0, -1, 7.5, "8"):
        with pytest.raises(UserError, match="seq_length"):
            SentencePacker(TOKENIZER, length)
    with pytest.raises(UserError, match="pair needs at least 4"):
        SentencePacker(TOKENIZER, 3).pack("a", "b")
    packer = SentencePacker(TOKENIZER, 8)
    with pytest.raises(UserError, match="must have one shape"):
        packer.pack("a", ["b"])
    with pytest.raises(UserError, match="must have one shape"):
        packer.pack(["a", "b"], ["b"])
    pack = tf.function(
        packer.pack, input_signature=[tf.TensorSpec([None], tf.string)] * 2
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="unequal batches"):
        pack(tf.constant(["a", "b"]), tf.constant(["b"]))
