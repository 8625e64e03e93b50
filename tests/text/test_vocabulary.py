import hashlib

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.text.vocabulary import Vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_ids_are_places() -> None:
    vocabulary = Vocabulary(["[PAD]", "a", *SPECIAL[1:], "##b"])
    assert len(vocabulary) == 7
    assert vocabulary.ids["##b"] == 6
    found = (
        vocabulary.pad_id,
        vocabulary.unk_id,
        vocabulary.cls_id,
        vocabulary.sep_id,
        vocabulary.mask_id,
    )
    assert found == (0, 2, 3, 4, 5)
    assert vocabulary.is_continuation.tolist() == [False] * 6 + [True]
    assert vocabulary.is_continuation.dtype == np.bool_
    joined = "\n".join(vocabulary.tokens)
    assert vocabulary.digest() == hashlib.sha256(joined.encode()).hexdigest()


def test_file_round_trip_keeps_unnormalised_tokens(tmp_path) -> None:
    # U+2028 ends no line, and e + U+0301 is not composed.
    tokens = [*SPECIAL, "e\u0301", "a\u2028b", "\u00e9", "\U00020000"]
    path = tmp_path / "new" / "vocab.txt"
    Vocabulary(tokens).save(path)
    assert path.read_bytes().count(b"\n") == len(tokens)
    assert Vocabulary.from_file(path).tokens == tuple(tokens)


def test_file_with_carriage_returns_and_no_last_line_feed(tmp_path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIAL, "a ", "b"]).encode())
    assert Vocabulary.from_file(path).tokens == (*SPECIAL, "a", "b")


def test_is_frozen_and_hashable() -> None:
    vocabulary = Vocabulary(SPECIAL)
    with pytest.raises(AttributeError, match="frozen"):
        vocabulary.extra = 1
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.is_continuation[0] = True
    with pytest.raises(TypeError):
        vocabulary.ids["a"] = 9
    assert vocabulary == Vocabulary(tuple(SPECIAL))
    assert hash(vocabulary) == hash(Vocabulary(SPECIAL))
    assert vocabulary != Vocabulary([*SPECIAL, "a"])


@pytest.mark.parametrize(
    ("tokens", "cased"),
    [([], False), (["a", "##b", "ℝ"], False), (["B"], True), (["##É"], True)],
)
def test_looks_cased(tokens: list[str], cased: bool) -> None:
    assert Vocabulary([*SPECIAL, *tokens]).looks_cased() is cased


def test_real_vocabularies(shared_data) -> None:
    for name, cased in (
        ("bert-base-uncased", False),
        ("bert-base-cased", True),
        ("bert-base-multilingual-cased", True),
    ):
        path = shared_data / "vocab" / name / "vocab.txt"
        vocabulary = Vocabulary.from_file(path)
        assert len(vocabulary) == path.read_bytes().count(b"\n")
        assert vocabulary.looks_cased() is cased
        assert vocabulary.mask_id == 103


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        ("\n".join([*SPECIAL, "a", "b", "a"]).encode(), "line 6 .*line 8"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"lacks \[MASK\]"),
        (b"a\n", r"lacks \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        ("\n".join([*SPECIAL, "", "a"]).encode(), "line 6: is blank"),
        (b"[PAD]\n[UNK]\n\xff\n", "line 3: is not UTF-8"),
        (b"\xef\xbb\xbf[PAD]\n[UNK]\n", "begins with a byte order mark"),
    ],
)
def test_bad_files(tmp_path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        Vocabulary.from_file(path)
    assert str(path) in str(caught.value)


def test_missing_file_and_directory(tmp_path) -> None:
    with pytest.raises(UserError, match="no such vocabulary file"):
        Vocabulary.from_file(tmp_path / "none.txt")
    with pytest.raises(UserError, match="is a directory"):
        Vocabulary.from_file(tmp_path)


def test_bad_lists() -> None:
    with pytest.raises(UserError, match="entry 0 and again on entry 5"):
        Vocabulary([*SPECIAL, "[PAD]"])
    with pytest.raises(UserError, match="7 is no string"):
        Vocabulary([*SPECIAL, 7])
    with pytest.raises(UserError, match="list of tokens"):
        Vocabulary("vocab.txt")
