import hashlib
import pathlib
import pickle

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.text.vocabulary import Vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_ids_are_places() -> None:
    vocabulary = Vocabulary(["[PAD]", "a", *SPECIAL[1:], "##b"])
    assert len(vocabulary) == 7
    assert vocabulary.ids["##b"] == 6
    names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    found = [getattr(vocabulary, name) for name in names]
    assert found == [0, 2, 3, 4, 5]
    assert vocabulary.is_continuation.tolist() == [False] * 6 + [True]
    assert vocabulary.is_continuation.dtype == np.bool_
    joined = "\n".join(vocabulary.tokens)
    assert vocabulary.digest() == hashlib.sha256(joined.encode()).hexdigest()


# google-research/bert, tokenization.py, load_vocab, on text files of Python.
def load_vocab(path: pathlib.Path) -> dict[str, int]:
    with path.open(encoding="utf-8", newline="\n") as file:
        return {line.strip(): number for number, line in enumerate(file)}


BLANK = ["\u2028", "\u00a0", "\u3000", "\u0085", "\u001c", " ", "\r", ""]


@pytest.mark.parametrize(
    "entries",
    [
        # U+2028 ends no line, and e + U+0301 is not composed.
        [*SPECIAL, "e\u0301", "a\u2028b", "a\rb", "\u00e9", "\U00020000"],
        [*SPECIAL, *(entry for blank in BLANK for entry in (blank, blank * 2))],
        [*SPECIAL[:2], "\u2028", *SPECIAL[2:], "b", "\u2028", "##c", ""],
        [*(f"{token}\r" for token in SPECIAL), "a \r", "\u3000b\r"],
        # The last of those that occur several times counts.
        [*SPECIAL, "$", "a", "$", "b", " a", "[CLS]"],
    ],
    ids=["unnormalised", "blank", "between", "carriage returns", "repeated"],
)
def test_a_file_is_read_as_by_google_and_written_back(entries, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{entry}\n" for entry in entries).encode())
    vocabulary = Vocabulary.from_file(path)
    assert vocabulary.ids == load_vocab(path)
    assert len(vocabulary) == len(entries)
    for copy in (vocabulary, pickle.loads(pickle.dumps(vocabulary))):
        assert copy == vocabulary
        copy.save(tmp_path / "new" / "vocab.txt")
        written = (tmp_path / "new" / "vocab.txt").read_bytes()
        assert written == path.read_bytes()
    # Without the last line feed it is the same.
    path.write_bytes(path.read_bytes()[:-1])
    assert entries[-1] == "" or Vocabulary.from_file(path) == vocabulary


def test_a_line_names_tokens_that_occur_several_times(tmp_path, capsys):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, "a", "", "$", "a", "", "$"]))
    for _ in range(2):
        Vocabulary.from_file(path)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: 'a' is on line 6 ")
    assert "line 9, and 1 more" in line


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
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"lacks \[MASK\]"),
        (b"a\n", r"lacks \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
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
    with pytest.raises(UserError, match="entry 5: .* holds a line feed"):
        Vocabulary([*SPECIAL, "a\nb"])
    with pytest.raises(UserError, match="7 is no string"):
        Vocabulary([*SPECIAL, 7])
    with pytest.raises(UserError, match="list of tokens"):
        Vocabulary("vocab.txt")
