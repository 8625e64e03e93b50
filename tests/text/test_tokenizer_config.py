"""What a folder says of how its text is split, and in which order."""

import json
import pathlib
import shutil

import pytest

from bert_tf.errors import UserError
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    read_tokenizer_config,
    write_tokenizer_config,
)
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
    assert read_tokenizer_config(tmp_path, SMALL).lower_case is True
    assert read_tokenizer_config(tmp_path, CAPITAL).lower_case is False


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
        assert (
            read_tokenizer_config(folder, vocabulary).lower_case is lower_case
        )


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
    assert read_tokenizer_config(folder, SMALL).lower_case is True
    assert read_tokenizer_config(folder, CAPITAL).lower_case is False


def test_the_name_of_the_folder_one_stands_in(tmp_path, monkeypatch):
    folder = tmp_path / "cased_L-2_H-128_A-2"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert read_tokenizer_config(".", SMALL).lower_case is False


def test_the_order_of_evidence(tmp_path):
    """Each says the opposite of all that come after it."""
    folder = tmp_path / "uncased"
    folder.mkdir()
    assert read_tokenizer_config(folder, CAPITAL).lower_case is True
    write(folder, "tokenizer.json", keras_hub(lowercase=False))
    assert read_tokenizer_config(folder, CAPITAL).lower_case is False
    write(folder, "tokenizer.json", normalizer(lowercase=False))
    assert read_tokenizer_config(folder, CAPITAL).lower_case is False
    write_tokenizer_config(folder, TokenizerConfig.of(True), CAPITAL)
    assert read_tokenizer_config(folder, CAPITAL).lower_case is True
    assert (
        read_tokenizer_config(folder, CAPITAL, lower_case=False).lower_case
        is False
    )
    write(folder, "tokenizer_config.json", {"do_lower_case": None})
    assert read_tokenizer_config(folder, CAPITAL).lower_case is False
    assert (
        read_tokenizer_config(folder, CAPITAL, lower_case=True).lower_case
        is True
    )


def test_folders_of_transformers():
    for name, expected in (
        ("uncased", (True,)),
        ("cased", (False,)),
        ("added", (True,)),
        ("strip_accents", (True, False)),
        ("chinese_chars", (True, True, False)),
    ):
        found = read_tokenizer_config(GOLDEN / name, SMALL)
        assert found == TokenizerConfig.of(*expected), name


def test_without_tokenizer_config_the_normalizer_says_it(tmp_path):
    for name, expected in (
        ("strip_accents", (True, False)),
        ("chinese_chars", (True, True, False)),
        ("cased", (False,)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(GOLDEN / name / "tokenizer.json", folder)
        found = read_tokenizer_config(folder, SMALL)
        assert found == TokenizerConfig.of(*expected), name


def test_classes_that_know_no_rules_go_by_the_normalizer(tmp_path):
    """As transformers 5.23: the arguments of its generic classes are void."""
    values = {"do_lower_case": False, "strip_accents": True}
    values["tokenize_chinese_chars"] = False
    rules = {"strip_accents": False, "handle_chinese_chars": True}
    write(tmp_path, "tokenizer.json", normalizer(lowercase=True, **rules))
    for name, expected in (
        ("BertTokenizerFast", (False, True, False)),
        ("PreTrainedTokenizerFast", (True, False, True)),
        ("TokenizersBackend", (True, False, True)),
    ):
        values["tokenizer_class"] = name
        write(tmp_path, "tokenizer_config.json", values)
        found = read_tokenizer_config(tmp_path, SMALL)
        assert found == TokenizerConfig(*expected), name
    write(tmp_path, "tokenizer.json", {"model": {}, "normalizer": None})
    with pytest.raises(UserError, match="normalizer is None, which BertT"):
        read_tokenizer_config(tmp_path, SMALL)


@pytest.mark.parametrize("chinese", [True, False])
@pytest.mark.parametrize("accents", [None, True, False])
@pytest.mark.parametrize("lower_case", [True, False])
def test_what_is_written_is_read(tmp_path, lower_case, accents, chinese):
    config = TokenizerConfig.of(lower_case, accents, chinese)
    write_tokenizer_config(tmp_path, config, SMALL)
    for vocabulary in (SMALL, CAPITAL):
        assert read_tokenizer_config(tmp_path, vocabulary) == config
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    usual = (accents in (None, lower_case), chinese)
    assert len(values) == 3 - sum(usual)
    # transformers' null, and either value said.
    assert config.to_dict(SMALL)["strip_accents"] == (
        None if usual[0] else accents
    )


def test_accents_and_an_override(tmp_path):
    """As `AutoTokenizer.from_pretrained(..., do_lower_case=...)`."""
    write(tmp_path, "tokenizer_config.json", {"strip_accents": False})
    for lower_case in (True, False):
        found = read_tokenizer_config(tmp_path, SMALL, lower_case)
        assert found == TokenizerConfig(lower_case, False, True)
        assert read_tokenizer_config(tmp_path, None, lower_case) == found


def test_accents_of_keras_hub_are_those_of_google(tmp_path):
    values = keras_hub(lowercase=True, strip_accents=False)
    write(tmp_path, "tokenizer.json", values)
    found = read_tokenizer_config(tmp_path, CAPITAL)
    assert found == TokenizerConfig(True, True, True)


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
        (
            "tokenizer_config.json",
            {"unk_token": "<unk>"},
            "unk_token is '<unk>', which BertTokenizer cannot do",
        ),
        (
            "tokenizer_config.json",
            {"cls_token": {"content": "<s>"}},
            "cls_token: content is '<s>', which",
        ),
        (
            "tokenizer.json",
            {"model": {"type": "WordPiece", "unk_token": "<unk>"}},
            "model: unk_token is '<unk>'",
        ),
        (
            "tokenizer.json",
            {"model": {"max_input_chars_per_word": 50}},
            "max_input_chars_per_word is 50, which BertTokenizer cannot do",
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
        assert read_tokenizer_config(tmp_path, SMALL).lower_case is True
        return
    with pytest.raises(UserError, match=message) as caught:
        read_tokenizer_config(tmp_path, SMALL)
    assert "\n" not in str(caught.value)
    assert file in str(caught.value)


def test_no_json(tmp_path):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_text('{"a": ')
        with pytest.raises(UserError, match=f"{file}: not valid JSON"):
            read_tokenizer_config(tmp_path, SMALL)
        (tmp_path / file).unlink()
