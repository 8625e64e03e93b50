"""Where the vocabulary of a model folder is, and what comes behind it."""

import json
import pathlib

import numpy as np
import pytest
from model_helpers import small_config

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_files import (
    added_tokens,
    read_vocabulary,
    require_vocabulary,
)
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TESTS = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = TESTS / "golden" / "hugging_face_tokenizer"
TOKENS = (*SPECIAL_TOKENS, "the", "##s")


def write(folder, name, values):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def tokenizer_json(tokens=TOKENS, added=(), **model):
    vocab = {token: number for number, token in enumerate(tokens)}
    return {
        "added_tokens": [{"id": n, "content": t} for t, n in added],
        "model": {"type": "WordPiece", "vocab": vocab, **model},
    }


def refused(folder):
    with pytest.raises(UserError) as caught:
        read_vocabulary(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


def test_none(tmp_path):
    assert read_vocabulary(tmp_path) is None
    with pytest.raises(UserError) as caught:
        require_vocabulary(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: holds no vocabulary; looked for vocab.txt, "
        "assets/tokenizer/vocabulary.txt and tokenizer.json."
    )
    with pytest.raises(UserError, match="holds no vocabulary"):
        BertTokenizer.from_checkpoint(tmp_path)


def test_the_order_of_places(tmp_path):
    write(tmp_path, "tokenizer.json", tokenizer_json([*TOKENS, "c"]))
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "c")
    preset = tmp_path / "assets" / "tokenizer" / "vocabulary.txt"
    Vocabulary([*TOKENS, "b"]).save(preset)
    with pytest.raises(UserError, match="token 7 is 'b', but 'c' in .*json"):
        read_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "b")
    Vocabulary([*TOKENS, "a"]).save(tmp_path / "vocab.txt")
    assert require_vocabulary(tmp_path).tokens == (*TOKENS, "a")


@pytest.mark.parametrize("name", ["uncased", "cased", "added"])
def test_folders_of_transformers_give_their_ids(name):
    tokenizer = BertTokenizer.from_checkpoint(GOLDEN / name)
    expected = json.loads((GOLDEN / name / "ids.json").read_text())
    assert len(expected) == 4
    for text, ids in expected.items():
        np.testing.assert_array_equal(tokenizer.tokenize(text).numpy(), ids)


def test_tokens_added_with_transformers():
    plain = read_vocabulary(GOLDEN / "uncased").tokens
    added = read_vocabulary(GOLDEN / "added").tokens
    assert added == (*plain, "newword", "two words", "[E1]")
    assert added_tokens(GOLDEN / "uncased") == ()
    names = [token.content for token in added_tokens(GOLDEN / "added")]
    assert names == ["[E1]", "newword", "two words"]


@pytest.mark.parametrize("place", ["added", "decoder", "tokenizer"])
def test_tokens_behind_a_vocab_txt(tmp_path, place):
    Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    # [CLS] is named again, as transformers does.
    added = {"[CLS]": 2, "new": 8, "[E1]": 7}
    if place == "added":
        write(tmp_path, "added_tokens.json", added)
    elif place == "decoder":
        decoder = {str(n): {"content": t} for t, n in added.items()}
        values = {"added_tokens_decoder": decoder}
        write(tmp_path, "tokenizer_config.json", values)
    else:
        values = tokenizer_json(added=added.items())
        write(tmp_path, "tokenizer.json", values)
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "[E1]", "new")


def test_ids_that_are_left_out(tmp_path):
    Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    write(tmp_path, "added_tokens.json", {"new": 8})
    assert "no token has the id 7, but 'new' has 8" in refused(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "added_tokens.json").unlink()
    values = tokenizer_json()
    values["model"]["vocab"]["the"] = 9
    write(tmp_path, "tokenizer.json", values)
    line = refused(tmp_path)
    assert "tokenizer.json: model: vocab: no token has the id 5" in line
    # A gap that an added token fills is none.
    values["model"]["vocab"]["the"] = 7
    values["added_tokens"] = [{"id": 5, "content": "[E1]"}]
    write(tmp_path, "tokenizer.json", values)
    tokens = (*SPECIAL_TOKENS, "[E1]", "##s", "the")
    assert read_vocabulary(tmp_path).tokens == tokens


def test_files_that_disagree(tmp_path):
    Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    write(tmp_path, "tokenizer.json", tokenizer_json(added=[("[E1]", 5)]))
    line = refused(tmp_path)
    assert "added_tokens: token 5 is '[E1]', but 'the' in " in line
    assert line.endswith("vocab.txt.")
    write(tmp_path, "tokenizer.json", tokenizer_json(added=[("the", 7)]))
    assert "'the' is on entry 5 and again on entry 7" in refused(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (tokenizer_json(type="BPE"), "model: type is 'BPE', which"),
        (tokenizer_json(unk_token="<unk>"), "unk_token is '<unk>'"),
        (
            tokenizer_json(continuing_subword_prefix="@@"),
            "continuing_subword_prefix is '@@'",
        ),
        (tokenizer_json(vocab={}), "vocab: holds no tokens"),
        (tokenizer_json(vocab=["a"]), r"vocab is \['a'\]; it takes an object"),
        (tokenizer_json(vocab={"a": 1.5}), "the id of 'a' is 1.5; it takes"),
        (tokenizer_json(vocab={"a": -1}), "the id of 'a' is -1; it takes"),
        (tokenizer_json(vocab={"a": 0, "b": 0}), "'a' and 'b' have the same"),
        (tokenizer_json(["a", "b"]), r"lacks \[PAD\] \[UNK\]"),
        (tokenizer_json([*TOKENS, " a"]), "' a' begins or ends with white"),
        (tokenizer_json([*TOKENS, "a\nb"]), "holds a line feed"),
        (
            {**tokenizer_json(), "added_tokens": {"a": 1}},
            "added_tokens: is {'a': 1}; it takes a list",
        ),
        (
            {**tokenizer_json(), "added_tokens": ["a"]},
            "added_tokens: holds 'a'; it takes objects",
        ),
        (
            {**tokenizer_json(), "added_tokens": [{"id": 7}]},
            "added_tokens: token 7 is None, no string",
        ),
        (tokenizer_json(added=[("a", "7")]), "the id of 'a' is '7'; it takes"),
        (tokenizer_json(added=[("a ", 7)]), "'a ' begins or ends with white"),
    ],
)
def test_files_that_do_not_do(tmp_path, values, message):
    write(tmp_path, "tokenizer.json", values)
    with pytest.raises(UserError, match=message) as caught:
        read_vocabulary(tmp_path)
    assert "\n" not in str(caught.value)


def test_added_tokens_that_do_not_do(tmp_path):
    Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    write(tmp_path, "added_tokens.json", {"new": "7"})
    assert "added_tokens.json: the id of 'new' is '7'" in refused(tmp_path)
    (tmp_path / "added_tokens.json").unlink()
    for decoder, message in (
        ({"seven": {"content": "new"}}, "the id of 'new' is 'seven'"),
        ({"7": "new"}, "added_tokens_decoder: 7 is 'new'; it takes an object"),
        ({"7": {}}, "added_tokens_decoder: token 7 is None, no string"),
    ):
        values = {"added_tokens_decoder": decoder}
        write(tmp_path, "tokenizer_config.json", values)
        assert message in refused(tmp_path)


def test_the_checkpoint_and_the_tokenizer_read_the_same(tmp_path):
    encoder = BertEncoder(small_config())
    folder = tmp_path / "model_cased"
    save_checkpoint(folder, Checkpoint(encoder.config, encoder.to_arrays()))
    write(folder, "tokenizer.json", tokenizer_json())
    checkpoint = load_checkpoint(folder)
    tokenizer = BertTokenizer.from_checkpoint(folder)
    assert checkpoint.vocabulary == tokenizer.vocabulary == Vocabulary(TOKENS)
    assert checkpoint.lower_case is tokenizer.lower_case is False
    assert BertTokenizer.from_checkpoint(folder, lower_case=True).lower_case
