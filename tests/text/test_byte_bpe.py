"""Byte-level BPE in the graph against the library tokenizers."""

import json
import lzma
import pathlib
import pickle

import keras
import keras_hub
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

import bert_tf
from bert_tf.checkpoints.tokenizers import read_tokenizer, read_vocabulary_file
from bert_tf.errors import UserError
from bert_tf.text.byte_bpe import ByteLevelBpe, byte_letters
from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer
from bert_tf.text.token_table import Packing, SpecialTokens
from bert_tf.text.tokenizer_files import AddedToken
from tests.user_errors import error_of

REAL = pathlib.Path(__file__).resolve().parents[3] / "shared/data/relatives"
SPECIAL = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
# Words of several scripts, so that some bytes of a character are merged.
CORPUS = [
    "The cats aren't here; they're there, and we'll see the others' cats.",
    "I'd said that it's 1984, or 2019\u20132021... isn't it?  Yes\n\n\tno",
    "Größe, naïve café, Ελλάδα και Κρήτη, Россия и Москва, 北京和上海",
    "日本語の文章です。 हिन्दी में कुछ शब्द हैं 😀 🇩🇪 x\u00a0y\u3000z",
] * 9
TEXTS = [
    *CORPUS[:4],
    *("", " ", "  a", "a  ", "a  b", "\n a", " \n", "a\t\tb \u2003 c"),
    *("'s", " 's", "x's", "'S", "''s", "'ss", "5've6", "'re're", "we'llx"),
    *(
        "a\x00b",
        "\x00 \x00",
        "\x00\U0010fffe\U0010ffff",
        "x\x01y",
        "\ufeff\u200d",
        "e\u0301\u0344",
        "Å",
    ),
    *("<mask>", "a <mask> b", "a\u3000<mask></s>b", "<pad", " <unk>"),
    *("\u0958\u093f", "\u1100\u1161\u11a8", "o\u0302\u0301\u0323x", "①²"),
]


def trained(**rules):
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=list(SPECIAL.present),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(CORPUS, trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return ByteLevelBpe(tokens, [(a, b) for a, b in model["merges"]], **rules)


DATA = trained(special=SPECIAL)
RULES = {
    "as RoBERTa": {},
    "a blank in front": {"add_prefix_space": True},
    "blanks in spans": {"trim_offsets": False},
    "NFC": {"nfc": True, "trim_offsets": False},
    "added tokens": {
        "trim_offsets": False,
        "added_tokens": [
            AddedToken("cats", single_word=True),
            AddedToken("  "),
            AddedToken("Å", normalized=True, rstrip=True),
        ],
    },
}


def made(name):
    rules = dict(RULES[name])
    tokens = list(DATA.tokens)
    added = [token.content for token in rules.get("added_tokens", ())]
    return ByteLevelBpe(
        [*tokens, *(token for token in added if token not in tokens)],
        DATA.merges,
        SPECIAL,
        **rules,
    )


def expected(data, texts, split_special_tokens, folder):
    """Ids and offsets of the library, from the file that is written."""
    data.save(folder)
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if split_special_tokens:
        own = data.library_tokenizer()
        own.post_processor = library.post_processor
        library = own
    return library.encode_batch(texts, add_special_tokens=False)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_ids_and_offsets_are_those_of_the_library(name, split, tmp_path):
    data = made(name)
    tokenizer = data.tokenizer(split)
    found = tokenizer.tokenize_with_offsets(TEXTS)
    found = zip(*(values.to_list() for values in found), strict=True)
    library = expected(data, TEXTS, split, tmp_path)
    for text, (ids, begins, ends), other in zip(
        TEXTS, found, library, strict=True
    ):
        assert ids == other.ids, text
        assert list(zip(begins, ends, strict=True)) == other.offsets, text


def test_a_tokenizer_outlives_a_cleared_session():
    before = PLAIN.tokenize([" The cats"])[0].numpy().tolist()
    keras.utils.clear_session()
    assert PLAIN.tokenize(" The cats").numpy().tolist() == before


PLAIN = DATA.tokenizer()
COMPOSED = made("NFC").tokenizer()


# Few calls with many texts each.
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.text(
            st.one_of(
                # The library does not sort marks newer than its tables.
                st.characters(exclude_categories=["Cs", "Mn", "Mc", "Cn"]),
                st.characters(min_codepoint=0x300, max_codepoint=0x36F),
                st.sampled_from("  \n\t'stmdrevl19aé\u0301\u0344\u3000"),
                # Marks that are sorted, some of several parts.
                st.sampled_from("\u0323\u0651\u0f73\u0f81\u1ee5\u01d6\u0378"),
            ),
            max_size=20,
        ),
        min_size=10,
        max_size=40,
    )
)
def test_any_text(texts):
    for tokenizer in (PLAIN, COMPOSED):
        ids, begins, ends = tokenizer.tokenize_with_offsets(texts)
        library = tokenizer.data.library_tokenizer()
        other = library.encode_batch(texts, add_special_tokens=False)
        assert ids.to_list() == [each.ids for each in other]
        if tokenizer is COMPOSED:
            # The library leaves the spans as they are without a processor.
            spans = [
                list(zip(*each, strict=True))
                for each in zip(begins.to_list(), ends.to_list(), strict=True)
            ]
            assert spans == [each.offsets for each in other]
        composed = tokenizer.detokenize(ids).numpy()
        assert [text.decode() for text in composed] == [
            normalizers.NFC().normalize_str(text)
            if tokenizer is COMPOSED
            else text
            for text in texts
        ]


def test_a_worker_gives_the_same_ids():
    lines = [text.replace("\n", " ") for text in TEXTS]
    sizes = np.array([len(line.encode()) for line in lines])
    text = "".join(f"{line}\n" for line in lines).encode()
    for name in RULES:
        data = made(name)
        worker = pickle.loads(pickle.dumps(data)).worker()
        ids, counts = worker.tokenize(text, sizes)
        found = data.tokenizer().tokenize(lines)
        assert ids.tolist() == found.flat_values.numpy().tolist()
        assert counts.tolist() == found.row_lengths().numpy().tolist()
        assert ids.dtype == np.uint16


def test_what_begins_a_word():
    ids = PLAIN.tokenize(" The cats aren't here").numpy()
    tokens = [DATA.tokens[number] for number in ids]
    starts = DATA.starts_word[ids].tolist()
    assert starts == [token.startswith("\u0120") for token in tokens]
    assert "".join(DATA.texts[number] for number in ids) == "Thecatsaren'there"
    assert DATA.starts_word[: len(SPECIAL)].all()


def test_folders(tmp_path):
    for name in RULES:
        folder = tmp_path / name
        data = made(name)
        data.save(folder, 77)
        assert read_tokenizer(folder) == data
        opened = bert_tf.load_tokenizer(folder, split_special_tokens=False)
        assert isinstance(opened, ByteBpeTokenizer)
        assert opened.data == data
        values = json.loads(json.dumps(data.to_dict()))
        assert ByteLevelBpe.from_dict(values) == data
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == 77
    assert DATA.packing == Packing((2,), (3, 3), (3,), 0, 0)
    assert DATA.settings() != made("NFC").settings()


def test_files_of_gpt_2(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps(dict(DATA.ids)))
    lines = ["#version: 0.2", *map(" ".join, DATA.merges), ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    assert read_tokenizer(tmp_path) == DATA
    for name in ("vocab.json", "merges.txt"):
        assert read_vocabulary_file(tmp_path / name) == DATA
    line = error_of(read_tokenizer, tmp_path, True)
    assert "keeps case" in line
    # What is written for transformers holds the same beside tokenizer.json.
    DATA.save_hugging_face(tmp_path / "theirs", 77)
    assert read_tokenizer(tmp_path / "theirs") == DATA
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    assert read_tokenizer(tmp_path / "theirs") == DATA
    assert (tmp_path / "theirs" / "merges.txt").read_text().split("\n") == lines
    other = made("NFC")
    other.save(tmp_path)
    ids = dict(DATA.ids) | {"Ġthe": DATA.ids["a"]}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    assert "belong to different models" in error_of(read_tokenizer, tmp_path)
    ids = dict(DATA.ids) | {"Ġthe": len(DATA)}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    added = {"Ġthe": DATA.ids["Ġthe"]}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    (tmp_path / "tokenizer.json").rename(tmp_path / "hidden")
    assert "'Ġthe' has the ids " in error_of(read_tokenizer, tmp_path)
    (tmp_path / "hidden").rename(tmp_path / "tokenizer.json")
    (tmp_path / "added_tokens.json").unlink()
    (tmp_path / "vocab.json").unlink()
    lines[4], lines[5] = lines[5], lines[4]
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    line = error_of(read_tokenizer, tmp_path)
    assert line.startswith(f"{tmp_path / 'merges.txt'}: merge 3 is ")
    assert "belong to different models" in line


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("<gap>", "pad_token is '<gap>', which the vocabulary lacks"),
        (["<pad>"], "pad_token is ['<pad>']; it takes a token"),
        ({"content": ""}, "pad_token is ''; it takes a token"),
    ],
)
def test_a_wrong_special_token_is_named(tmp_path, named, message):
    DATA.save(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"pad_token": named}))
    assert message in error_of(read_tokenizer, tmp_path)


def test_files_of_keras_hub(tmp_path):
    theirs = keras_hub.models.RobertaTokenizer(
        dict(DATA.ids), [*map(" ".join, DATA.merges)], add_prefix_space=True
    )
    theirs.save_to_preset(str(tmp_path))
    data = read_tokenizer(tmp_path)
    assert data == made("a blank in front")
    texts = ["The cats aren't here", " Größe και 2019"]
    ids = data.tokenizer().tokenize(texts).to_list()
    assert ids == [np.asarray(row).tolist() for row in theirs(texts)]


def test_a_template_frames_rows(tmp_path):
    framed = ByteLevelBpe(
        DATA.tokens,
        DATA.merges,
        SPECIAL,
        trim_offsets=False,
        packing=Packing((2,), (3,), (3,), 1, 0),
    )
    framed.save(tmp_path)
    assert read_tokenizer(tmp_path).packing == framed.packing
    framed.save_json(tmp_path, 9, True)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    row = library.encode("a", "b")
    ids = DATA.ids
    assert row.ids == [2, ids["a"], 3, ids["b"], 3, 0, 0, 0, 0]
    assert row.type_ids[:5] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("pre_tokenizer", "type", "Whitespace", "type is 'Whitespace'"),
        ("pre_tokenizer", "type", "Sequence", "type is 'Sequence'"),
        ("pre_tokenizer", "use_regex", False, "use_regex is False"),
        ("model", "byte_fallback", True, "byte_fallback is True"),
        ("normalizer", "type", "NFKC", "type is 'NFKC'"),
    ],
)
def test_other_rules_are_refused(part, key, value, message, tmp_path):
    made("NFC").save(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values[part][key] = value
    path.write_text(json.dumps(values))
    line = error_of(read_tokenizer, tmp_path)
    assert line.startswith(f"{path}: {part}: {message}")


@pytest.mark.parametrize(
    ("merges", "fault"),
    [
        # "abc" as a text becomes "a" and "bc".
        (["b c", "a b", "ab c"], "'abc' is not what its own letters are"),
        # By pairs "abcd" becomes "abc" and "d", by results "a" and "bcd".
        (["b c", "a bc", "bc d", "a b", "ab c"], "'abc' is merged from"),
    ],
)
def test_merges_that_a_graph_cannot_follow(merges, fault, tmp_path):
    made("NFC").save(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    tokens = [*byte_letters(), "ab", "abc", "bc", "bcd"]
    values["model"]["vocab"] = {
        token: number
        for number, token in enumerate([*SPECIAL.present, *tokens])
    }
    values["model"]["merges"] = merges
    values["added_tokens"] = []
    path.write_text(json.dumps(values))
    line = error_of(read_tokenizer, tmp_path)
    assert line.startswith(f"{path}: merges: the token {fault} ")


def test_a_vocabulary_without_some_bytes_is_refused():
    tokens = [token for token in DATA.tokens if token != "q"]
    with pytest.raises(UserError, match="1 of the bytes .* as 'q'"):
        ByteLevelBpe(tokens, (), SPECIAL)


@pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data")
@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_real_tokenizers(name, tmp_path):
    for path in (REAL / "tokenizer_files" / name).iterdir():
        with lzma.open(path) as file:
            (tmp_path / path.stem).write_bytes(file.read())
    with lzma.open(REAL / "tokenizers" / f"{name}.jsonl.xz") as file:
        rows = [json.loads(line) for line in file]
    texts = [row["text"] for row in rows]
    tokenizer = bert_tf.load_tokenizer(tmp_path, split_special_tokens=False)
    found = tokenizer.tokenize_with_offsets(texts)
    ids, *spans = (values.to_list() for values in found)
    for row, own, *places in zip(rows, ids, *spans, strict=True):
        assert [own, [*map(list, zip(*places, strict=True))]] == row["hf"]
    framing = tokenizer.packing
    for number, row in enumerate(rows[:300]):
        first, second = ids[number], ids[(number + 1) % len(ids)]
        assert row["row"] == [*framing.begin, *first, *framing.end]
        pair = [*framing.begin, *first, *framing.middle, *second, *framing.end]
        assert row["pair"][0] == pair
    if name == "modernbert":
        assert (tokenizer.vocabulary.pad_id, framing.pad_id) == (50283, 50283)
        split = tokenizer.tokenize("Hello  world").numpy()
        tokens = [tokenizer.vocabulary.tokens[number] for number in split]
        assert tokens == ["Hello", "  ", "world"]
    if name == "roberta":
        plain = bert_tf.load_tokenizer(tmp_path).tokenize(texts).to_list()
        for row, own in zip(rows, plain, strict=True):
            authors = row["authors"]
            assert own == (row["hf"] if authors == "hf" else authors)[0]
