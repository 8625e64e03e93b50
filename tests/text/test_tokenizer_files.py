"""A folder's vocabulary, what is added to it, and how its text is split."""

import json
import pathlib
import shutil

import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.checkpoints.tokenizers import load_tokenizer
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    read_tokenizer_config,
    write_tokenizer_config,
)
from bert_tf.text.tokenizer_files import (
    AddedToken,
    added_tokens,
    read_tokenizer_files,
    read_vocabulary,
)
from bert_tf.text.vocabulary import Vocabulary
from tests.model_helpers import small_config

TESTS = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = TESTS / "golden" / "hugging_face_tokenizer"
TOKENS = (*SPECIAL_TOKENS, "the", "##s")
SMALL = Vocabulary([*SPECIAL_TOKENS, "a", "##b"])
CAPITAL = Vocabulary([*SPECIAL_TOKENS, "a", "B"])
CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"


def write(folder: pathlib.Path, name: str, values) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(values))


def tokenizer_json(tokens=TOKENS, added=(), **model):
    vocab = {token: number for number, token in enumerate(tokens)}
    return {
        "added_tokens": [{"id": n, "content": t} for t, n in added],
        "model": {"type": "WordPiece", "vocab": vocab, **model},
    }


def normalizer(**values):
    return {"model": {"type": "WordPiece"}, "normalizer": values}


def keras_hub(**values):
    return {"class_name": "BertTokenizer", "config": values}


def lower_case(folder, vocabulary=CAPITAL, given=None) -> bool:
    return read_tokenizer_config(folder, vocabulary, given).lower_case


@pytest.mark.parametrize(
    ("name", "expected"),
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
        # Names that say nothing: the vocabulary does.
        ("showcased", None),
        ("cased_to_uncased", None),
        ("my_chinese_model", None),
        ("uncased/step-1000", None),
        ("3", None),
    ],
)
def test_the_name_of_a_folder(tmp_path, monkeypatch, name, expected):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    says_nothing = expected is None
    assert lower_case(folder, SMALL) is (says_nothing or expected)
    assert lower_case(folder, CAPITAL) is (not says_nothing and expected)
    monkeypatch.chdir(folder)
    assert lower_case(".") is lower_case(folder)


def test_the_order_of_evidence(tmp_path):
    """Each says the opposite of all that come after it."""
    folder = tmp_path / "uncased"
    folder.mkdir()
    assert lower_case(folder) is True
    write(folder, TOKENIZER, keras_hub(lowercase=False))
    assert lower_case(folder) is False
    write(folder, TOKENIZER, normalizer(lowercase=False))
    assert lower_case(folder) is False
    write_tokenizer_config(folder, TokenizerConfig.of(True), CAPITAL)
    assert lower_case(folder) is True
    assert lower_case(folder, given=False) is False
    write(folder, CONFIG, {"do_lower_case": None})
    assert lower_case(folder) is False
    assert lower_case(folder, given=True) is True


def test_case_that_transformers_would_not_keep(tmp_path, capsys):
    """Its BertTokenizer lower-cases unless told otherwise (5.23)."""
    write(tmp_path, TOKENIZER, normalizer(lowercase=False))
    for name, stated, lines in (
        ("BertTokenizerFast", {}, 1),
        ("BertTokenizer", {"do_lower_case": False}, 0),
        ("TokenizersBackend", {}, 0),
    ):
        write(tmp_path, CONFIG, {"tokenizer_class": name, **stated})
        assert lower_case(tmp_path, SMALL) is False
        found = capsys.readouterr().err
        assert found.count("does not state do_lower_case") == lines


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uncased", (True,)),
        ("cased", (False,)),
        ("added", (True,)),
        ("strip_accents", (True, False)),
        ("chinese_chars", (True, True, False)),
    ],
)
def test_folders_of_transformers(tmp_path, name, expected):
    found = read_tokenizer_config(GOLDEN / name, SMALL)
    assert found == TokenizerConfig.of(*expected)
    # The normalizer alone says the same.
    shutil.copy(GOLDEN / name / TOKENIZER, tmp_path)
    assert read_tokenizer_config(tmp_path, SMALL) == found


def test_classes_that_know_no_rules_go_by_the_normalizer(tmp_path):
    """As transformers 5.23: the arguments of its generic classes are void."""
    values = {"do_lower_case": False, "strip_accents": True}
    values["tokenize_chinese_chars"] = False
    rules = {"strip_accents": False, "handle_chinese_chars": True}
    write(tmp_path, TOKENIZER, normalizer(lowercase=True, **rules))
    for name, expected in (
        ("BertTokenizerFast", (False, True, False)),
        ("PreTrainedTokenizerFast", (True, False, True)),
        ("TokenizersBackend", (True, False, True)),
    ):
        write(tmp_path, CONFIG, {**values, "tokenizer_class": name})
        found = read_tokenizer_config(tmp_path, SMALL)
        assert found == TokenizerConfig(*expected), name
    write(tmp_path, TOKENIZER, {"model": {}, "normalizer": None})
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
    values = json.loads((tmp_path / CONFIG).read_text())
    usual = (accents in (None, lower_case), chinese)
    assert len(values) == 3 - sum(usual)
    # transformers' null, and either value said.
    said = None if usual[0] else accents
    assert config.to_dict(SMALL)["strip_accents"] == said


def test_accents_and_an_override(tmp_path):
    """As `AutoTokenizer.from_pretrained(..., do_lower_case=...)`."""
    write(tmp_path, CONFIG, {"strip_accents": False})
    for given in (True, False):
        found = read_tokenizer_config(tmp_path, SMALL, given)
        assert found == TokenizerConfig(given, False, True)
        assert read_tokenizer_config(tmp_path, None, given) == found


def test_accents_of_keras_hub_are_those_of_google(tmp_path):
    values = keras_hub(lowercase=True, strip_accents=False)
    write(tmp_path, TOKENIZER, values)
    found = read_tokenizer_config(tmp_path, CAPITAL)
    assert found == TokenizerConfig(True, True, True)


def test_no_vocabulary(tmp_path):
    assert read_vocabulary(tmp_path) is None
    with pytest.raises(UserError) as caught:
        BertTokenizer.from_checkpoint(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: holds no vocabulary")


@pytest.mark.parametrize(
    ("architecture", "takes", "file", "values", "kind"),
    [
        ("albert", "SentencePiece unigram", "vocab.txt", None, "WordPiece"),
        ("roberta", "byte-level BPE", TOKENIZER, "WordPiece", "WordPiece"),
        ("modernbert", "byte-level BPE", TOKENIZER, "Unigram", "Unigram"),
        ("bert", "WordPiece", "vocab.json", None, "BPE"),
        ("roberta", "byte-level BPE", TOKENIZER, "WordLevel", "WordLevel"),
    ],
)
def test_the_kind_of_another_architecture(
    tmp_path, architecture, takes, file, values, kind
):
    write(tmp_path, "config.json", {"model_type": architecture})
    model = {"type": values, "vocab": {}}
    write(tmp_path, file, {"model": model} if values else [])
    with pytest.raises(UserError) as caught:
        load_tokenizer(tmp_path)
    line = str(caught.value)
    assert line.startswith(f"{tmp_path}: its tokenizer is '{kind}' ({file}), ")
    assert f"it takes {takes}." in line


def test_the_order_of_places(tmp_path):
    write(tmp_path, TOKENIZER, tokenizer_json([*TOKENS, "c"]))
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "c")
    preset = tmp_path / "assets" / "tokenizer" / "vocabulary.txt"
    Vocabulary([*TOKENS, "b"]).save(preset)
    with pytest.raises(UserError, match="token 7 is 'b', but 'c' in .*json"):
        read_vocabulary(tmp_path)
    (tmp_path / TOKENIZER).unlink()
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "b")
    Vocabulary([*TOKENS, "a"]).save(tmp_path / "vocab.txt")
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "a")


@pytest.mark.parametrize("name", ["uncased", "cased", "added"])
def test_folders_of_transformers_give_their_ids(name):
    tokenizer = BertTokenizer.from_checkpoint(GOLDEN / name)
    expected = json.loads((GOLDEN / name / "ids.json").read_text())
    assert len(expected) == 4
    found = tokenizer.tokenize(list(expected)).to_list()
    assert found == list(expected.values())


def test_tokens_added_with_transformers():
    plain = read_vocabulary(GOLDEN / "uncased").tokens
    added = read_vocabulary(GOLDEN / "added").tokens
    assert added == (*plain, "newword", "two words", "[E1]")
    assert added_tokens(read_tokenizer_files(GOLDEN / "uncased")) == ()
    found = added_tokens(read_tokenizer_files(GOLDEN / "added"))
    contents = [token.content for token in found]
    assert contents == ["[E1]", "newword", "two words"]


@pytest.mark.parametrize("place", ["added", "decoder", "tokenizer"])
def test_tokens_behind_a_vocab_txt(tmp_path, place):
    Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    # [CLS] is named again, as transformers does.
    added = {"[CLS]": 2, "new": 8, "[E1]": 7}
    if place == "added":
        write(tmp_path, "added_tokens.json", added)
    elif place == "decoder":
        decoder = {str(n): {"content": t} for t, n in added.items()}
        write(tmp_path, CONFIG, {"added_tokens_decoder": decoder})
    else:
        write(tmp_path, TOKENIZER, tokenizer_json(added=added.items()))
    assert read_vocabulary(tmp_path).tokens == (*TOKENS, "[E1]", "new")


def test_where_the_flags_of_added_tokens_come_from(tmp_path):
    """tokenizer_config.json, tokenizer.json, added_tokens.json."""
    Vocabulary([*SPECIAL_TOKENS, "a"]).save(tmp_path / "vocab.txt")
    added = {"x": 6, "y": 7, "z": 8, "[MASK]": 4}
    write(tmp_path, "added_tokens.json", added)
    decoder = {"6": {"content": "x", "rstrip": True}}
    write(tmp_path, CONFIG, {"added_tokens_decoder": decoder})
    listed = [{"id": 6, "content": "x", "lstrip": True}]
    listed.append({"id": 7, "content": "y", "special": True})
    write(tmp_path, TOKENIZER, {"model": {}, "added_tokens": listed})
    assert read_tokenizer_config(tmp_path, None, True).added_tokens == (
        AddedToken("y", normalized=False, special=True),
        AddedToken("x", rstrip=True),
        AddedToken("z"),
    )


def test_a_gap_that_an_added_token_fills_is_none(tmp_path):
    values = tokenizer_json(added=[("[E1]", 5)])
    values["model"]["vocab"]["the"] = 7
    write(tmp_path, TOKENIZER, values)
    tokens = (*SPECIAL_TOKENS, "[E1]", "##s", "the")
    assert read_vocabulary(tmp_path).tokens == tokens


def test_entries_of_a_tokenizer_json_are_those_of_a_vocab_txt(tmp_path, capsys):
    entries = [*SPECIAL_TOKENS, "\u2028", "a", "\u3000", " b", "\r", "##c"]
    write(tmp_path / "json", TOKENIZER, tokenizer_json(entries))
    vocabulary = read_vocabulary(tmp_path / "json")
    assert vocabulary.entries == tuple(entries)
    assert vocabulary.ids["b"] == 8
    # Both may be there.
    write(tmp_path / "both", TOKENIZER, tokenizer_json(entries))
    vocabulary.save(tmp_path / "both" / "vocab.txt")
    assert read_vocabulary(tmp_path / "both") == vocabulary
    assert capsys.readouterr().err == ""
    # transformers leaves the earlier id of a repeated token out.
    values = tokenizer_json([*SPECIAL_TOKENS, "$", "a"])
    values["model"]["vocab"]["$"] = 8
    write(tmp_path / "holes", TOKENIZER, values)
    tokens = (*SPECIAL_TOKENS, "", "a", "", "$")
    assert read_vocabulary(tmp_path / "holes").tokens == tokens
    (line,) = capsys.readouterr().err.splitlines()
    assert "tokenizer.json: " in line
    assert "the id 5, 7, " in line


GAP = tokenizer_json()
GAP["model"]["vocab"]["the"] = 10**15


def decoder(**tokens):
    return {"added_tokens_decoder": tokens}


def listed(*tokens):
    return {**tokenizer_json(), "added_tokens": list(tokens)}


def rows(kind, pair=()):
    """A tokenizer.json that frames rows in its own way."""
    pieces = [
        {"Sequence" if name in "AB" else "SpecialToken": {"id": name}}
        for name in pair
    ]
    processor = {"type": kind, "pair": pieces, "special_tokens": {}}
    return {**tokenizer_json(), "post_processor": processor}


# A file, what it holds, and what the error says of it.
REFUSED = [
    (CONFIG, {"do_lower_case": "yes"}, "do_lower_case is 'yes'; it takes true"),
    (CONFIG, {"do_basic_tokenize": False}, "do_basic_tokenize is False, which"),
    (CONFIG, {"tokenizer_class": "BertJap"}, "tokenizer_class is 'BertJap'"),
    (CONFIG, {"never_split": ["covid"]}, "never_split is ['covid']"),
    (CONFIG, {"strip_accents": 1}, "strip_accents is 1; it takes true or"),
    (CONFIG, {"unk_token": "<unk>"}, "lacks <unk> of the special tokens"),
    (CONFIG, {"cls_token": {"content": "<s>"}}, "lacks <s> of the special"),
    (CONFIG, {"sep_token": {"content": 3}}, "sep_token is 3; it takes a token"),
    (CONFIG, {"mask_token": ""}, "mask_token is ''; it takes a token"),
    (CONFIG, [1], "holds list, not an object"),
    (CONFIG, decoder(seven={"content": "new"}), "id of 'new' is 'seven'"),
    (CONFIG, decoder(**{"7": "new"}), "7 is 'new'; it takes an object"),
    (CONFIG, decoder(**{"7": {}}), "added_tokens_decoder: token 7 is None, no"),
    ("added_tokens.json", {"new": "7"}, "the id of 'new' is '7'"),
    ("added_tokens.json", {"new": 8}, "no token has the id 7, but 'new' has 8"),
    (TOKENIZER, {"a": 1}, "holds neither a model,"),
    (TOKENIZER, tokenizer_json(unk_token="<unk>"), "model: unk_token is '<unk"),
    (TOKENIZER, tokenizer_json(max_input_chars_per_word=50), "word is 50, wh"),
    (TOKENIZER, tokenizer_json(type="BPE"), "model: type is 'BPE', which"),
    (TOKENIZER, tokenizer_json(continuing_subword_prefix="@@"), "is '@@'"),
    (TOKENIZER, normalizer(type="NFKC"), "type is 'NFKC'"),
    (TOKENIZER, normalizer(clean_text=False), "clean_text is False"),
    (TOKENIZER, normalizer(lowercase="no"), "lowercase is 'no'; it takes true"),
    (TOKENIZER, {"model": {}, "normalizer": "B"}, "is 'B'; it takes an object"),
    (
        TOKENIZER,
        {"model": {}, "pre_tokenizer": {"type": "Whitespace"}},
        "pre_tokenizer: type is 'Whitespace'",
    ),
    (TOKENIZER, rows("RobertaProcessing"), "type is 'RobertaProcessing'"),
    (
        TOKENIZER,
        rows("TemplateProcessing", ["[CLS]", "A", "[SEP]", "[SEP]", "B"]),
        "pair is [CLS] A [SEP] [SEP] B, which BertTokenizer does not",
    ),
    (TOKENIZER, keras_hub(split=False), "config: split is False"),
    (TOKENIZER, keras_hub(lowercase=1), "lowercase is 1; it takes true"),
    (TOKENIZER, keras_hub(special_tokens_in_strings=True), "strings is True"),
    (TOKENIZER, keras_hub(oov_token="<unk>"), "oov_token is '<unk>'"),
    (TOKENIZER, {"class_name": "Roberta"}, "class_name is 'Roberta', which"),
    (TOKENIZER, {"class_name": ["a"]}, "class_name is ['a'], which"),
    (TOKENIZER, tokenizer_json(vocab={}), "vocab: holds no tokens"),
    (TOKENIZER, tokenizer_json(vocab=["a"]), "is ['a']; it takes an object"),
    (TOKENIZER, tokenizer_json(vocab={"a": 1.5}), "the id of 'a' is 1.5; it"),
    (TOKENIZER, tokenizer_json(vocab={"a": -1}), "the id of 'a' is -1; it"),
    (TOKENIZER, tokenizer_json(vocab={"a": 0, "b": 0}), "'a' and 'b' have the"),
    (TOKENIZER, tokenizer_json(["a", "b"]), "lacks [PAD] [UNK]"),
    (TOKENIZER, tokenizer_json([*TOKENS, "a\nb"]), "holds a line feed"),
    (TOKENIZER, GAP, "tokenizer.json: model: vocab: no token has the id 5"),
    (TOKENIZER, listed() | {"added_tokens": {"a": 1}}, "1}; it takes a list"),
    (TOKENIZER, listed("a"), "added_tokens is 'a'; it takes an object"),
    (TOKENIZER, listed({"id": 7}), "added_tokens: token 7 is None, no string"),
    (
        TOKENIZER,
        listed({"id": 7, "content": "a", "single_word": "no"}),
        "single_word is 'no'; it takes true or false",
    ),
    (TOKENIZER, tokenizer_json(added=[("a", "7")]), "the id of 'a' is '7'; it"),
    (TOKENIZER, tokenizer_json(added=[("a ", 7)]), "'a ' begins or ends with"),
    (TOKENIZER, tokenizer_json(added=[("b", 5)]), "is 'b', but 'the' in "),
    (TOKENIZER, tokenizer_json(added=[("the", 7)]), "id of 'the' is 7, but 5 "),
]


@pytest.mark.parametrize(
    ("file", "values", "message"), REFUSED, ids=[x[2] for x in REFUSED]
)
def test_files_that_are_refused(tmp_path, file, values, message):
    if file != TOKENIZER or "vocab" not in values.get("model", {}):
        Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    write(tmp_path, file, values)
    with pytest.raises(UserError) as caught:
        BertTokenizer.from_checkpoint(tmp_path)
    line = str(caught.value)
    assert message in line
    assert str(tmp_path / file) in line or file == "added_tokens.json"
    assert "\n" not in line


def test_older_folders_name_special_tokens_in_another_file(tmp_path):
    special = SPECIAL_TOKENS._replace(mask="<mask>", pad="<pad>")
    Vocabulary([*special, "a"], special=special).save(tmp_path / "vocab.txt")
    named = special.to_dict() | {"mask_token": {"content": "<mask>"}}
    write(tmp_path, "special_tokens_map.json", named)
    assert BertTokenizer.from_checkpoint(tmp_path).vocabulary.special == special


@pytest.mark.parametrize("file", [TOKENIZER, CONFIG])
def test_no_json(tmp_path, file):
    Vocabulary(TOKENS).save(tmp_path / "vocab.txt")
    (tmp_path / file).write_text('{"a": ')
    with pytest.raises(UserError, match=f"{file}: not valid JSON"):
        BertTokenizer.from_checkpoint(tmp_path)
    (tmp_path / file).write_text("{}")
    assert BertTokenizer.from_checkpoint(tmp_path).lower_case


def test_the_checkpoint_and_the_tokenizer_read_the_same(tmp_path):
    encoder = BertEncoder(small_config())
    folder = tmp_path / "model_cased"
    save_checkpoint(folder, Checkpoint(encoder.config, encoder.to_arrays()))
    write(folder, TOKENIZER, tokenizer_json())
    checkpoint = load_checkpoint(folder)
    tokenizer = BertTokenizer.from_checkpoint(folder)
    assert checkpoint.vocabulary == tokenizer.vocabulary == Vocabulary(TOKENS)
    assert checkpoint.lower_case is tokenizer.lower_case is False
    assert BertTokenizer.from_checkpoint(folder, lower_case=True).lower_case
