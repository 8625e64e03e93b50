"""Vectors in batches equal those of single texts; offsets mark tokens."""

import functools
import re
import unicodedata

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.families import rows as family_rows
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings, parse_layers
from bert_tf.inference import vectors as module
from bert_tf.inference.vectors import OFFSETS, open_model, text_vectors
from tests.families.pretrained.extraction_models import (
    POSITIONS,
    TOKENS,
    alone,
    save_model,
    small_encoder,
    small_tokenizer,
    some_texts,
)
from tests.user_errors import error_of

# test_embed.py computes in graphs.
pytestmark = pytest.mark.usefixtures("eagerly")
ENCODER, TOKENIZER = small_encoder(), small_tokenizer()
# Texts of all lengths, among them pairs, empty and too long texts.
MIXED = [
    *some_texts(20),
    ("the cat", "a dog sat"),
    "",
    ("", "mat"),
    ("Über", ""),
    *some_texts(20, seed=1),
]


@functools.cache
def model_of(**settings) -> PretrainedModel:
    return PretrainedModel(ENCODER, TOKENIZER, Settings(**settings))


def vectors_of(texts, **settings) -> np.ndarray:
    chunks = list(text_vectors(model_of(**settings), texts))
    return np.concatenate([chunk.vectors for chunk in chunks])


def expected(text, pooling: str, layers) -> np.ndarray:
    """[K, H], or [tokens, K, H], by NumPy from a single text."""
    found = alone(ENCODER, TOKENIZER, text)
    if pooling == "pooled":
        return found["pooled"][None]
    hidden = found["layers"][list(layers)]  # [K, S, H]
    if pooling == "none":
        return hidden.transpose(1, 0, 2)
    pool = {
        "mean": lambda x: x.mean(axis=1),
        "max": lambda x: x.max(axis=1),
        "cls": lambda x: x[:, 0],
    }
    return pool[pooling](hidden)


@pytest.mark.parametrize(
    ("pooling", "layers", "numbers"),
    [
        ("mean", (-1, 0, 2), (3, 0, 2)),
        ("max", (1, -2), (1, 2)),
        ("cls", (3,), (3,)),
        ("pooled", (-1,), (3,)),
        ("none", (0, -3, -1), (0, 1, 3)),
    ],
)
def test_each_text_as_if_alone_and_in_order(pooling, layers, numbers):
    texts = [t for t in MIXED if t != ""] + [""]
    found = vectors_of(texts, pooling=pooling, layers=layers, batch_size=7)
    rows = [expected(text, pooling, numbers) for text in texts]
    each = np.concatenate(rows) if pooling == "none" else np.stack(rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, each, atol=1e-5)
    assert np.abs(each).max() > 0.1


@pytest.mark.parametrize(
    ("limit", "value", "most"),
    # 24 tokens of one layer of 24 numbers take 2,304 bytes.
    [("_TEXTS", 10, 10), ("_CHARACTERS", 200, 8), ("_BYTES", 9216, 4)],
)
def test_texts_are_read_as_they_are_needed(monkeypatch, limit, value, most):
    monkeypatch.setattr(module, limit, value)
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield "the cat sat on a mat, we"[: 20 + read % 5]

    chunks = text_vectors(model_of(pooling="none"), endless())
    for number in range(1, 5):
        assert (
            1
            < len(next(chunks).starts) - 1
            <= most + 5 * (limit == "_CHARACTERS")
        )
        # The text after the chunk is read too.
        assert read <= number * (most + 5) + 1


def test_batches_are_counted_and_short_where_rows_are_long(monkeypatch):
    monkeypatch.setattr(family_rows, "_ROW_TOKENS", 8)
    computed = []
    texts = ["the " * 14, "a", "cat", "dog", "the " * 14, "mat", "sat"]
    list(text_vectors(model_of(batch_size=4), texts, computed.append))
    # Two rows of 16 tokens are as much as four of 8 or ten of 3.
    assert computed == [2, 5]


def normalised(text: str) -> str:
    """Normalizes a text as uncased tokenizers do."""
    folded = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in folded if unicodedata.category(c) != "Mn")


@pytest.mark.parametrize(
    "text",
    [
        "Über the café, naïve dogs!",
        "the cat\t 😀 sat",
        "我们 the爱cat",
        "cafe\u0301 running \u200b hello",
        "é",
        ("The Café 我 sat", "a 😀 dogs' mat"),
        ("Über", ""),
    ],
)
def test_offsets_cut_the_token_out_of_its_text(text):
    (chunk,) = text_vectors(model_of(pooling="none"), [text])
    parts = (text,) if isinstance(text, str) else text
    inner = 0
    columns = (chunk.tokens[k] for k in ("input_ids", "segment_ids", OFFSETS))
    for number, segment, (start, end) in zip(*columns, strict=True):
        token = TOKENS[number]
        if token in ("[CLS]", "[SEP]"):
            assert (start, end) == (-1, -1)
            continue
        cut = parts[segment][start:end]
        inner += 1
        if token == "[UNK]":
            assert cut == "😀"
        else:
            assert normalised(cut).rstrip("\u200b ") == token.removeprefix("##")
    assert inner == chunk.starts[-1] - 1 - len(parts)


def test_texts_too_long_are_truncated_as_the_packer_does_and_counted(capsys):
    texts = ["the cat " * 20, "the cat", ("a " * 9, "dog " * 3), "mat " * 6]
    (chunk,) = text_vectors(model_of(pooling="none", max_seq_length=8), texts)
    line = "2 of 4 texts have more than 8 tokens and are truncated"
    assert capsys.readouterr().err.startswith(line)
    np.testing.assert_array_equal(np.diff(chunk.starts), [8, 4, 8, 8])
    third = chunk.tokens["input_ids"][12:20]
    words = " ".join(TOKENS[i] for i in third)
    assert words == "[CLS] a a a [SEP] dog dog [SEP]"
    first = expected("the cat the cat the cat", "none", (3,))
    np.testing.assert_allclose(chunk.vectors[:8], first, atol=1e-5)


def test_padding_is_not_seen_even_where_all_is_negative():
    # Otherwise the maximum would be the zero of the padding.
    encoder = small_encoder()
    encoder.blocks[-1].output_norm.beta.assign(np.full(24, -9.0, np.float32))
    model = PretrainedModel(encoder, TOKENIZER, Settings(pooling="max"))
    (chunk,) = text_vectors(model, ["the", "the cat sat on the mat"])
    assert chunk.vectors.max() < 0


def test_precision(tmp_path):
    folder = save_model(tmp_path / "model")
    exact = vectors_of(MIXED)
    for precision in ("mixed_bfloat16", "mixed_float16"):
        lower = open_model(folder, Settings(), precision)
        (chunk,) = text_vectors(lower, MIXED)
        assert chunk.vectors.dtype == np.float32
        error = np.abs(chunk.vectors - exact).max() / np.abs(exact).max()
        assert 0 < error < 0.05
    with pytest.raises(UserError, match="`precision`='float64': takes one"):
        open_model(folder, Settings(), "float64")


def test_a_model_without_a_pooler_is_loaded_in_silence(tmp_path, capfd):
    folder = save_model(tmp_path / "model", with_pooler=False)
    (chunk,) = text_vectors(open_model(folder, Settings()), MIXED)
    np.testing.assert_allclose(chunk.vectors, vectors_of(MIXED), atol=1e-6)
    assert capfd.readouterr().err == ""
    with pytest.raises(UserError, match="has no pooler; take cls"):
        open_model(folder, Settings(pooling="pooled"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (4,)}, r"`layers`=4: the model has layers 1 to 3.*and 0"),
        ({"layers": (-4,)}, "`layers`=-4: the model has layers 1 to 3"),
        ({"layers": ()}, "layers: name at least one"),
        ({"layers": (-1, 3)}, "`layers`=3: layer 3 is named twice"),
        ({"layers": (1.0,)}, "`layers`=1.0: the model has layers"),
        ({"pooling": "sum"}, "`pooling`='sum': takes one of none,"),
        ({"pooling": "pooled", "layers": (2,)}, "`layers`=2: the pooler takes"),
        ({"max_seq_length": 2}, "`max_seq_length`=2: .* whole number of at"),
        ({"max_seq_length": -1}, "`max_seq_length`=-1: give a whole number"),
        ({"max_seq_length": POSITIONS + 1}, "=25: give a whole number"),
        ({"batch_size": 0}, "`batch_size`=0: .* whole number of at least 1"),
    ],
)
def test_bad_settings(settings, message):
    line = error_of(model_of, **settings)
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", 3], r"texts\[1\] is 3; give a string or a pair"),
        ([b"a"], r"texts\[0\] is b'a'; give a string"),
        ([("a", "b", "c")], r"texts\[0\] is \('a', 'b', 'c'\); give a string"),
        ([("a",)], r"texts\[0\] is \('a',\); give a string or a pair"),
        (["a", ("a", None)], r"texts\[1\] is \('a', None\); give a string"),
        (["a \ud800"], r"texts\[0\] is 'a \\ud800', with half of a surrogate"),
    ],
)
def test_bad_texts(texts, message):
    with pytest.raises(UserError, match=message):
        vectors_of(texts)


def test_a_pair_needs_room_and_a_model_for_pairs():
    assert len(vectors_of(["a"], max_seq_length=3)) == 1
    with pytest.raises(UserError, match=r"=3: texts\[1\] is a pair, which"):
        vectors_of(["a", ("a", "the")], max_seq_length=3)
    encoder = small_encoder(type_vocab_size=1)
    model = PretrainedModel(encoder, TOKENIZER)
    with pytest.raises(UserError, match=r"texts\[0\] is a pair: type_voc"):
        next(text_vectors(model, [("a", "the")]))


def test_weights_that_are_not_finite():
    encoder = small_encoder()
    table = encoder.embeddings.word_table.numpy()
    table[TOKENS.index("dog")] = np.nan
    encoder.embeddings.word_table.assign(table)
    model = PretrainedModel(encoder, TOKENIZER)
    assert len(list(text_vectors(model, ["the cat"]))) == 1
    with pytest.raises(UserError, match=r"texts\[0\] or a later text"):
        next(text_vectors(model, ["the cat", "the dog"]))


def test_layers_of_the_command_line():
    assert parse_layers("-1,0, 2", "none") == (-1, 0, 2)
    assert parse_layers("", "none") == (-1, -2, -3, -4)
    assert parse_layers("", "mean") == (-1,)
    with pytest.raises(UserError, match="`layers`=-1;2: give whole numbers"):
        parse_layers("-1;2", "none")
