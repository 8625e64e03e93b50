import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.text.packing_graph import SentencePacker
from bert_tf.text.tokenizer import BertTokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
NAMES = ["input_ids", "input_mask", "segment_ids"]


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer(TOKENS)


def truncate_seq_pair(a: list, b: list, room: int) -> None:
    """The loop that the closed form stands for."""
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()


def pack_by_hand(a, b, length: int) -> list[list[int]]:
    a, b = list(a), None if b is None else list(b)
    if b is None:
        ids, segments = [2, *a[: length - 2], 3], None
        segments = [0] * len(ids)
    else:
        truncate_seq_pair(a, b, length - 3)
        ids = [2, *a, 3, *b, 3]
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    padding = [0] * (length - len(ids))
    return [ids + padding, [1] * len(ids) + padding, segments + padding]


def rows_of(packed: dict, row: int) -> list[list[int]]:
    assert list(packed) == NAMES
    assert all(value.dtype == tf.int32 for value in packed.values())
    return [packed[name][row].numpy().tolist() for name in NAMES]


IDS = st.lists(st.integers(5, 10), max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(IDS, IDS), max_size=4), length=st.integers(4, 20)
)
def test_ids_are_packed_as_by_hand(tokenizer, pairs, length) -> None:
    packer = SentencePacker(tokenizer, length)
    a, b = (
        tf.ragged.constant([p[i] for p in pairs], tf.int32, ragged_rank=1)
        for i in (0, 1)
    )
    for second in (None, b):
        packed = packer.pack_ids(a, second)
        for row, (left, right) in enumerate(pairs):
            wanted = pack_by_hand(
                left, None if second is None else right, length
            )
            assert rows_of(packed, row) == wanted


def test_every_pair_of_lengths(tokenizer) -> None:
    sizes = [(a, b) for a in range(12) for b in range(12)]
    ids_a = tf.RaggedTensor.from_row_lengths(
        tf.range(sum(a for a, _ in sizes)), [a for a, _ in sizes]
    )
    ids_b = tf.RaggedTensor.from_row_lengths(
        tf.range(sum(b for _, b in sizes)), [b for _, b in sizes]
    )
    for length in (4, 5, 10, 11, 30):
        packed = SentencePacker(tokenizer, length).pack_ids(ids_a, ids_b)
        for row, (a, b) in enumerate(
            zip(ids_a.to_list(), ids_b.to_list(), strict=True)
        ):
            assert rows_of(packed, row) == pack_by_hand(a, b, length)


def test_texts_single_and_batched_and_in_datasets(tokenizer) -> None:
    packer = SentencePacker(tokenizer, 8)
    left, right = ["a b c d", "", "e"], ["f", "a a", "b b b b b b b"]
    packed = packer.pack(left, right)
    assert packed["input_ids"].shape == [3, 8]
    assert packed["input_ids"][0].numpy().tolist() == [2, 5, 6, 7, 8, 3, 10, 3]
    data = tf.data.Dataset.from_tensor_slices((left, right))
    single = data.map(packer.pack).batch(3)
    batched = data.batch(3).map(packer)
    for dataset in (single, batched):
        for name, spec in dataset.element_spec.items():
            assert spec.shape.as_list() == [None, 8]
            found = next(iter(dataset))[name].numpy()
            np.testing.assert_array_equal(found, packed[name].numpy())
    assert data.map(packer.pack).element_spec["input_mask"].shape == [8]
    one = packer.pack("a b c d", "f")
    assert one["segment_ids"].numpy().tolist() == [0] * 6 + [1] * 2
    alone = packer(tf.constant("a b c d e f a b"))
    assert alone["input_ids"].numpy().tolist() == [2, 5, 6, 7, 8, 9, 10, 3]


def test_dense_ids(tokenizer) -> None:
    packer = SentencePacker(tokenizer, 5)
    packed = packer.pack_ids(tf.constant([[5, 6], [7, 8]]))
    assert packed["input_ids"].numpy().tolist() == [
        [2, 5, 6, 3, 0],
        [2, 7, 8, 3, 0],
    ]
    packed = packer.pack_ids(tf.constant([], tf.int32))
    assert packed["input_mask"].numpy().tolist() == [1, 1, 0, 0, 0]


LOAD = """
import json, sys
import tensorflow as tf
import tensorflow_text
module = tf.saved_model.load(sys.argv[1])
packed = module.serve(tf.constant(["a b", "c"]), tf.constant(["d", "e f"]))
print(json.dumps({k: v.numpy().tolist() for k, v in packed.items()}))
"""


def test_exported(tokenizer, tmp_path) -> None:
    packer = SentencePacker(tokenizer, 9)
    module = tf.Module()
    module.packer = packer
    text = tf.TensorSpec([None], tf.string)
    module.serve = tf.function(packer.pack, input_signature=[text, text])
    tf.saved_model.save(module, str(tmp_path))
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = packer.pack(["a b", "c"], ["d", "e f"])
    assert json.loads(done.stdout) == {
        name: value.numpy().tolist() for name, value in expected.items()
    }


def test_bad_input(tokenizer) -> None:
    for length in (2, 0, -1, 7.5, "8"):
        with pytest.raises(UserError, match="seq_length"):
            SentencePacker(tokenizer, length)
    with pytest.raises(UserError, match="pair needs at least 4"):
        SentencePacker(tokenizer, 3).pack("a", "b")
    packer = SentencePacker(tokenizer, 8)
    with pytest.raises(UserError, match="must be alike"):
        packer.pack("a", ["b"])
    with pytest.raises(UserError, match="must be alike"):
        packer.pack(["a", "b"], ["b"])
    pack = tf.function(
        packer.pack, input_signature=[tf.TensorSpec([None], tf.string)] * 2
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="unequal batches"):
        pack(tf.constant(["a", "b"]), tf.constant(["b"]))
