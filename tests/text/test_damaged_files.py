"""Damaged files of every tokenizer end in one line, or in one that works."""

import json
import pathlib
import random
import shutil

import numpy as np
import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.errors import UserError
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.wordpiece import WordPiece
from tests.relatives import ALBERT_UNIGRAM, BYTES, LETTERS, UNIGRAM
from tests.user_errors import error_of

JSON, CONFIG = "tokenizer.json", "tokenizer_config.json"
PAIRS = ByteLevelBpe(
    [*BYTES.tokens, "th", "the"],
    [("t", "h"), ("th", "e")],
    BYTES.special,
    nfc=True,
)
KINDS = {
    "bert": LETTERS,
    "xlm-roberta": UNIGRAM,
    "albert": ALBERT_UNIGRAM,
    "roberta": PAIRS,
}
MODEL = "spiece.model"
# A file of each kind alone, and what else decides on the tokenizer.
FOLDERS = {
    **{f"{name} {JSON}": (name, JSON, CONFIG) for name in KINDS},
    "bert": ("bert", "vocab.txt", CONFIG),
    "xlm-roberta": ("xlm-roberta", MODEL, CONFIG),
    "albert": ("albert", MODEL, JSON, CONFIG),
    "roberta": ("roberta", "vocab.json", "merges.txt", CONFIG),
}
# Values of every type, and some at the limits of their type.
VALUES = [
    *(None, True, 0, -1, 7, 1.5, 1e308, float("nan"), 2**63, 10**30, "", "x"),
    *("x" * 5000, "\ud800", "a b", "a\0", [], [1], ["a"], [[1, 2]], [None], {}),
    *({"a": 1}, {"type": 1}, {"id": 1}, {"String": 1}, [{}], ["a", 1], "!!!"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind, and those of `FOLDERS`."""
    root = tmp_path_factory.mktemp("whole")
    for kind, data in KINDS.items():
        (root / "all" / kind).mkdir(parents=True)
        data.save_hugging_face(root / "all" / kind, 77)
    for name, (kind, *files) in FOLDERS.items():
        (root / name).mkdir()
        for file in files:
            shutil.copy(root / "all" / kind / file, root / name)
        config = json.dumps({"model_type": kind})
        (root / name / "config.json").write_text(config)
    return root


def changed(values, draw: random.Random):
    """Values with another value, or without one, at a random place."""
    place, key = {"": values}, ""
    whole = place
    while isinstance(place[key], dict | list) and place[key]:
        if key != "" and draw.random() < 0.25:
            break
        place = place[key]
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = draw.choice(keys)
    if draw.random() < 0.3 and place is not whole:
        del place[key]
    elif draw.random() < 0.2 and isinstance(place[key], list):
        del place[key][draw.randrange(len(place[key]) + 1) :]
    else:
        place[key] = draw.choice(VALUES)
    return whole[""]


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bytes with some of them changed, cut out, repeated or zero."""
    at = draw.randrange(len(data))
    end = min(len(data), at + draw.choice([1, 1, 2, 10, 100]))
    middle = draw.choice(
        [
            bytes(end - at),
            b"",
            2 * data[at:end],
            bytes(draw.randrange(256) for _ in range(end - at)),
        ]
    )
    rest = b"" if draw.random() < 0.1 else data[end:]
    return data[:at] + middle + rest


def assert_works(folder: pathlib.Path) -> None:
    """The tokenizer of a folder works, or an error of one line names why."""
    text = "the cats \u4e2d\ud7a3\U0001f600a\u0301"
    sizes = np.array([len(text.encode())])
    try:
        data = read_tokenizer(folder)
        if isinstance(data, WordPiece):
            # Its worker takes a tenth of a second.
            assert data.rules
            return
        ids, counts = data.worker().tokenize(f"{text}\n".encode(), sizes)
    except UserError as error:
        line = str(error).replace(str(folder), "")
        assert "\n" not in line
        assert len(line) < 450
        return
    assert counts.tolist() == [len(ids)]
    assert all(0 <= number < len(data.vocabulary) for number in ids)
    for number in (
        *data.vocabulary.packing.begin,
        data.vocabulary.packing.pad_id,
    ):
        assert 0 <= number < len(data.vocabulary)


@pytest.mark.parametrize("name", FOLDERS)
def test_damaged_files(name, folders):
    draw = random.Random(name)
    folder = folders / name
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    for path in [p for p in whole if p.name != "config.json"] * 12:
        if path.suffix == ".json" and draw.random() < 0.8:
            values = changed(json.loads(whole[path]), draw)
            path.write_text(json.dumps(values))
        else:
            path.write_bytes(damaged(whole[path], draw))
        assert_works(folder)
        path.write_bytes(whole[path])


def with_json(path, value, *keys):
    """Sets a value in a JSON file."""
    values = place = json.loads(path.read_text())
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(values))


TEMPLATE = ("post_processor", "pair")


@pytest.mark.parametrize(
    ("name", "value", "keys", "message"),
    [
        *(
            (name, 5, ("model",), "model is 5; it takes an object")
            for name in KINDS
        ),
        ("roberta", {"a": {}}, ("model", "vocab"), "the id of 'a' is {}"),
        ("roberta", [["a"]], ("model", "merges"), "merge 0 is ['a']; it takes"),
        ("roberta", ["t zz"], ("model", "merges"), "'zz' is no token of bytes"),
        ("roberta", 3, ("model", "merges"), "merges is 3; it takes"),
        ("roberta", [["<s>", "a"]], ("model", "merges"), "'<s>a' is no token"),
        ("xlm-roberta", ["a"], ("model", "vocab"), "entry 0 of vocab is no"),
        (
            "xlm-roberta",
            [["\ud800", 1]],
            ("model", "vocab"),
            "entry 0 of vocab",
        ),
        ("xlm-roberta", [["a", "b"]], ("model", "vocab"), "entry 0 of vocab"),
        ("xlm-roberta", None, ("model", "unk_id"), "0 pieces for unknown text"),
        (
            "xlm-roberta",
            2**70,
            ("model", "unk_id"),
            "or unk_id is no id of one",
        ),
        ("xlm-roberta", "a", ("model", "unk_id"), "unk_id is 'a'; it takes"),
        ("xlm-roberta", ["a"], ("added_tokens",), "added_tokens is 'a'; it"),
        ("albert", ["a"], ("normalizer", "normalizers"), "is 'a'; it takes an"),
        ("albert", 3, ("normalizer", "normalizers"), "is 3; it takes a list"),
        ("albert", [3], TEMPLATE, "pair is 3; it takes an object"),
        ("albert", [{"Sequence": []}], TEMPLATE, "Sequence is []; it takes an"),
        (
            "albert",
            [{"SpecialToken": {"id": "x"}}],
            TEMPLATE,
            "token 'x', which",
        ),
        ("albert", [], TEMPLATE, "pair has the texts ''"),
        ("bert", [3], TEMPLATE, "pair is 3; it takes an object"),
        ("bert", {"a": "\ud800"}, ("model", "vocab"), "the id of 'a' is"),
        ("bert", {"\ud800": 0}, ("model", "vocab"), "half of a surrogate pair"),
    ],
)
def test_a_value_of_another_type_is_named(
    name, value, keys, message, folders, tmp_path
):
    shutil.copytree(folders / f"{name} {JSON}", tmp_path / "a")
    with_json(tmp_path / "a" / JSON, value, *keys)
    line = error_of(read_tokenizer, tmp_path / "a")
    assert line.startswith(f"{tmp_path / 'a'}")
    assert message in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.pieces.add(), "an empty piece or U+0000"),
        (
            lambda model: model.pieces.add(piece="a\0"),
            "an empty piece or U+0000",
        ),
        (lambda model: model.pieces.add(piece="t"), "a piece twice"),
        (
            lambda model: model.pieces.add(piece="<b>", type=6),
            "pieces of bytes",
        ),
        (lambda model: model.pieces.add(piece="?", type=2), "2 pieces for unk"),
        (lambda model: setattr(model.pieces[9], "score", 1e39), "not finite"),
        (
            lambda model: setattr(
                model.normalizer_spec, "precompiled_charsmap", b"abc"
            ),
            "damaged normalizer",
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named(
    change, message, folders, tmp_path
):
    shutil.copytree(folders / "albert", tmp_path / "a")
    (tmp_path / "a" / JSON).unlink()
    path = tmp_path / "a" / MODEL
    model = ModelProto.FromString(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())
    line = error_of(read_tokenizer, tmp_path / "a")
    assert line.startswith(f"{path}: ")
    assert message in line


@pytest.mark.parametrize("token", ["a\nb", "\ud800", "", [1]])
def test_a_special_token_that_is_none_is_named(token, folders, tmp_path):
    shutil.copytree(folders / "bert", tmp_path / "a")
    with_json(tmp_path / "a" / CONFIG, token, "cls_token")
    line = error_of(read_tokenizer, tmp_path / "a")
    assert line.startswith(f"{tmp_path / 'a' / CONFIG}: cls_token is {token!r}")


def test_merges_that_are_no_text(folders, tmp_path):
    shutil.copytree(folders / "roberta", tmp_path / "a")
    path = tmp_path / "a" / "merges.txt"
    path.write_bytes(b"\xff t")
    assert error_of(read_tokenizer, tmp_path / "a") == f"{path}: is not UTF-8."
