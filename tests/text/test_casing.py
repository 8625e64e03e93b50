"""What says whether a folder's text is lower-cased, and in which order."""

import json
import pathlib
import shutil

import pytest

from bert_tf.errors import UserError
from bert_tf.text.casing import read_lower_case, write_lower_case
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TESTS = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = TESTS / "golden" / "hugging_face_tokenizer"
SMALL = Vocabulary([*SPECIAL_TOKENS, "a", "##b"])
CAPITAL = Vocabulary([*SPECIAL_TOKENS, "a", "B"])


def write(folder, name, values):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(values))
    return folder


def normalizer(**values):
    return {"model": {"type": "WordPiece"}, "normalizer": values}


def keras_hub(**values):
    return {"class_name": "BertTokenizer", "config": values}


def test_a_vocabulary_alone(tmp_path):
    assert read_lower_case(tmp_path, SMALL) is True
    assert read_lower_case(tmp_path, CAPITAL) is False


@pytest.mark.parametrize(
    ("name", "lower_case"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("bert-base-cased", False),
        ("BERT-Base-Uncased", True),
        ("bert_base_en_uncased", True),
        ("models--google-bert--bert-base-cased/snapshots/0a1b2c", False),
        ("models--google-bert--bert-base-uncased/snapshots/0a1b2c", True),
    ],
)
def test_the_name_of_a_folder(tmp_path, name, lower_case):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    for vocabulary in (SMALL, CAPITAL):
        assert read_lower_case(folder, vocabulary) is lower_case


@pytest.mark.parametrize(
    "name",
    [
        "showcased",
        "cased_to_uncased",
        "my_chinese_model",
        "uncased/step-1000",
        "3",
    ],
)
def test_names_that_say_nothing(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    assert read_lower_case(folder, SMALL) is True
    assert read_lower_case(folder, CAPITAL) is False


def test_the_name_of_the_folder_one_stands_in(tmp_path, monkeypatch):
    folder = tmp_path / "cased_L-2_H-128_A-2"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert read_lower_case(".", SMALL) is False


def test_the_order_of_evidence(tmp_path):
    """Each says the opposite of all that come after it."""
    folder = tmp_path / "uncased"
    folder.mkdir()
    assert read_lower_case(folder, CAPITAL) is True
    write(folder, "tokenizer.json", keras_hub(lowercase=False))
    assert read_lower_case(folder, CAPITAL) is False
    write(folder, "tokenizer.json", normalizer(lowercase=False))
    assert read_lower_case(folder, CAPITAL) is False
    write_lower_case(folder, True)
    assert read_lower_case(folder, CAPITAL) is True
    assert read_lower_case(folder, CAPITAL, lower_case=False) is False
    write(folder, "tokenizer_config.json", {"do_lower_case": None})
    assert read_lower_case(folder, CAPITAL) is False
    assert read_lower_case(folder, CAPITAL, lower_case=True) is True


def test_folders_of_transformers():
    for name, lower_case in (
        ("uncased", True),
        ("cased", False),
        ("added", True),
    ):
        assert read_lower_case(GOLDEN / name, SMALL) is lower_case
    with pytest.raises(
        UserError,
        match=r"strip_accents/tokenizer_config.json: strip_accents is False, "
        r"which BertTokenizer cannot do; it takes null, or the value of",
    ):
        read_lower_case(GOLDEN / "strip_accents", SMALL)
    with pytest.raises(UserError, match="tokenize_chinese_chars is False"):
        read_lower_case(GOLDEN / "chinese_chars", SMALL)


def test_without_tokenizer_config_the_normalizer_says_it(tmp_path):
    for name, message in (
        ("strip_accents", "tokenizer.json: normalizer: strip_accents is Fal"),
        ("chinese_chars", "normalizer: handle_chinese_chars is False"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(GOLDEN / name / "tokenizer.json", folder)
        with pytest.raises(UserError, match=message):
            read_lower_case(folder, SMALL)
    shutil.copy(GOLDEN / "cased" / "tokenizer.json", tmp_path)
    assert read_lower_case(tmp_path, SMALL) is False


def test_accents_and_an_override(tmp_path):
    """What is asked for is Google's rule, accents included."""
    write(tmp_path, "tokenizer_config.json", {"strip_accents": False})
    assert read_lower_case(tmp_path, SMALL, lower_case=True) is True
    with pytest.raises(UserError, match="strip_accents is False"):
        read_lower_case(tmp_path, SMALL)
    assert read_lower_case(tmp_path, CAPITAL) is False
    values = {"strip_accents": True, "do_lower_case": False}
    write(tmp_path, "tokenizer_config.json", values)
    with pytest.raises(UserError, match="value of lower-casing, False"):
        read_lower_case(tmp_path, SMALL)


def test_accents_of_keras_hub_are_those_of_google(tmp_path):
    values = keras_hub(lowercase=True, strip_accents=False)
    write(tmp_path, "tokenizer.json", values)
    assert read_lower_case(tmp_path, CAPITAL) is True


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (
            "tokenizer_config.json",
            {"do_lower_case": "yes"},
            "tokenizer_config.json: do_lower_case is 'yes'; it takes true or",
        ),
        (
            "tokenizer_config.json",
            {"do_basic_tokenize": False},
            "do_basic_tokenize is False, which BertTokenizer cannot do",
        ),
        (
            "tokenizer_config.json",
            {"tokenizer_class": "BertJapaneseTokenizer"},
            "tokenizer_class is 'BertJapaneseTokenizer'",
        ),
        (
            "tokenizer_config.json",
            {"never_split": ["covid"]},
            r"never_split is \['covid'\]",
        ),
        (
            "tokenizer_config.json",
            {"strip_accents": 1},
            "strip_accents is 1; it takes true or false",
        ),
        ("tokenizer_config.json", [1], "holds list, not an object"),
        ("tokenizer.json", {}, None),
        ("tokenizer.json", {"a": 1}, "tokenizer.json: holds neither a model,"),
        ("tokenizer.json", {"model": {"type": "BPE"}}, "model: type is 'BPE'"),
        ("tokenizer.json", normalizer(type="NFKC"), "type is 'NFKC'"),
        ("tokenizer.json", normalizer(clean_text=False), "clean_text is Fals"),
        ("tokenizer.json", normalizer(lowercase="no"), "lowercase is 'no'; it"),
        (
            "tokenizer.json",
            {"model": {}, "normalizer": "Bert"},
            "tokenizer.json: normalizer is 'Bert'; it takes an object",
        ),
        (
            "tokenizer.json",
            {"model": {}, "pre_tokenizer": {"type": "Whitespace"}},
            "pre_tokenizer: type is 'Whitespace'",
        ),
        ("tokenizer.json", keras_hub(split=False), "config: split is False"),
        ("tokenizer.json", keras_hub(lowercase=1), "lowercase is 1; it takes"),
        (
            "tokenizer.json",
            keras_hub(special_tokens_in_strings=True),
            "special_tokens_in_strings is True",
        ),
        ("tokenizer.json", keras_hub(oov_token="<unk>"), "oov_token is '<unk>"),
        (
            "tokenizer.json",
            {"class_name": "RobertaTokenizer", "config": {}},
            "class_name is 'RobertaTokenizer'",
        ),
    ],
)
def test_files_that_do_not_do(tmp_path, file, values, message):
    write(tmp_path, file, values)
    if message is None:
        assert read_lower_case(tmp_path, SMALL) is True
        return
    with pytest.raises(UserError, match=message) as caught:
        read_lower_case(tmp_path, SMALL)
    assert "\n" not in str(caught.value)
    assert file in str(caught.value)


def test_no_json(tmp_path):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_text('{"a": ')
        with pytest.raises(UserError, match=f"{file}: not valid JSON"):
            read_lower_case(tmp_path, SMALL)
        (tmp_path / file).unlink()
