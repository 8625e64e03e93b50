"""`SentencePacker`: texts and ids, single and batched, and its refusals."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.text.layout import SentencePacker
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from tests.text.test_layout import BERT, PAIRS, assert_padded, rows_by_loop

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *"abcdef"])


@settings(max_examples=40)
@given(pairs=PAIRS, length=st.integers(4, 20), is_pair=st.booleans())
def test_ids(pairs: list, length: int, is_pair: bool) -> None:
    pairs = [(a, (b or []) if is_pair else None) for a, b in pairs]
    sides = (
        tf.ragged.constant([pair[i] for pair in pairs], tf.int32, ragged_rank=1)
        for i in range(1 + is_pair)
    )
    packed = SentencePacker(TOKENIZER, length).pack_ids(*sides)
    assert_padded(packed, rows_by_loop(pairs, BERT, length), length)


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
    expected = [[2, 5, 6, 3, 0], [2, 7, 8, 3, 0]]
    assert packed["input_ids"].numpy().tolist() == expected
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
    texts = tf.TensorSpec([None], tf.string)
    pack = tf.function(packer.pack, input_signature=[texts] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="unequal batches"):
        pack(tf.constant(["a", "b"]), tf.constant(["b"]))
