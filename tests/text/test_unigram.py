"""Unigram models in the graph against sentencepiece and the authors' code."""

import functools
import io
import json
import lzma
import pathlib
import pickle
import unicodedata

import keras
import keras_hub
import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_tf
from bert_tf.checkpoints.tokenizers import read_tokenizer, read_vocabulary_file
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.unigram import AlbertUnigram, Unigram
from bert_tf.text.unigram_graph import UnigramTokenizer
from tests.reference_albert import encode_pieces
from tests.user_errors import error_of

REAL = pathlib.Path(__file__).resolve().parents[3] / "shared/data/relatives"
CORPUS = [
    "The cats aren't here; they're there, and we'll see the others' cats.",
    "It cost 1,250 or 3,456, not 12,5 and 7, 8, 9, in 1984 and 2019, or so.",
    "Größe, naïve café, Ελλάδα σας και ΚΡΗΤΗΣ, Россия и Москва, 北京和上海",
    "日本語の文章です。 हिन्दी में कुछ शब्द हैं x\u00a0y\u3000z ① ﬁne",
] * 9
TEXTS = [
    *CORPUS[:4],
    *("", " ", "  a", "a  ", "a  b", "\n a", "a\t\tb \u2003 c", "\u3000"),
    *("e\u0301\u0344", "Å", "ΟΔΟΣ ΣΑΣ", "ΑΣ\u0301", "ΑΣ'Α Σ İΣ", "Σ ΣΣ"),
    *("ΑΣ…Α", "ΑΣ․Α", "ΑΣ. ", "ΑΣ㏄", "㏄Σ", "𝛢𝛴 𝛴Α", "ΑΣ①", "ΑΣﬁ"),
    *("İI", "\ufeff\u200d", "①²ﬁ", "\u1100\u1161"),
    *("<mask> a", "a [MASK]b", "</s>", "😀 ☃", "1,2,3,", "12,345,678", "a,1,"),
]


def trained(*arguments, **options):
    """A model of 260 pieces of the corpus, as bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=260,
        model_type="unigram",
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    return model.getvalue()


@functools.cache
def xlm_roberta_file():
    return trained()


@functools.cache
def albert_file():
    return trained(
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=list('()"-.'),
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("unigram")
    for name, file, content in (
        ("xlm-roberta", "sentencepiece.bpe.model", xlm_roberta_file()),
        ("albert", "spiece.model", albert_file()),
    ):
        (root / name).mkdir()
        (root / name / file).write_bytes(content)
    return root


@pytest.fixture(scope="module")
def xlm_roberta(folders):
    return Unigram.read(folders / "xlm-roberta")


@pytest.fixture(scope="module")
def albert(folders):
    return AlbertUnigram.read(folders / "albert")


@pytest.fixture(scope="module")
def xlm_roberta_graph(xlm_roberta):
    return xlm_roberta.tokenizer()


@pytest.fixture(scope="module")
def albert_graph(albert):
    return albert.tokenizer()


def fairseq_ids(texts):
    """XLM-R's ids: those of the library, moved by one; <unk> is 3."""
    library = sentencepiece.SentencePieceProcessor(
        model_proto=xlm_roberta_file()
    )
    rows = library.encode(texts)
    return [[n + 1 if n else 3 for n in ids] for ids in rows]


def albert_pieces(text):
    """The ids of google-research/albert."""
    library = sentencepiece.SentencePieceProcessor(model_proto=albert_file())
    pieces = encode_pieces(library, text)
    return [library.piece_to_id(piece) for piece in pieces]


def test_ids_of_xlm_roberta(xlm_roberta, xlm_roberta_graph):
    assert xlm_roberta_graph.tokenize(TEXTS).to_list() == fairseq_ids(TEXTS)
    assert xlm_roberta.tokens[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert xlm_roberta.tokens[-1] == "<mask>"
    assert xlm_roberta.packing == Packing((0,), (2, 2), (2,), 0, 1)


def test_ids_of_albert(albert, albert_graph):
    ids = albert_graph.tokenize(TEXTS).to_list()
    assert ids == [albert_pieces(text) for text in TEXTS]
    assert albert.packing == Packing((2,), (3,), (3,), 1, 0)
    comma = albert.ids[","]
    assert ids[TEXTS.index("12,345,678")].count(comma) == 2


def test_albert_with_case_and_accents(folders, tmp_path):
    (tmp_path / "spiece.model").write_bytes(albert_file())
    values = {"do_lower_case": False, "keep_accents": True}
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(values))
    data = AlbertUnigram.read(tmp_path)
    assert (data.do_lower_case, data.keep_accents) == (False, True)
    library = sentencepiece.SentencePieceProcessor(model_proto=albert_file())
    texts = ["Größe", "İI Å", "ﬁne Café"]
    assert data.tokenizer().tokenize(texts).to_list() == library.encode(
        [unicodedata.normalize("NFKD", text) for text in texts]
    )
    line = error_of(AlbertUnigram.read, tmp_path, True)
    assert line.startswith(f"{path}: do_lower_case is False")


def test_offsets_are_those_of_sentencepiece(xlm_roberta_graph):
    library = sentencepiece.SentencePieceProcessor(
        model_proto=xlm_roberta_file()
    )
    _, begins, ends = xlm_roberta_graph.tokenize_with_offsets(TEXTS)
    for text, begin, end in zip(
        TEXTS, begins.to_list(), ends.to_list(), strict=True
    ):
        expected = library.encode_as_offset_mapping(text)["offsets"]
        assert list(zip(begin, end, strict=True)) == expected, text


def test_offsets_of_albert_span_the_characters_of_a_piece(albert, albert_graph):
    text = "ΟΔΟΣ Cafe\u0301 1,000 ﬁ"
    ids, begins, ends = (
        values.numpy().tolist()
        for values in albert_graph.tokenize_with_offsets(text)
    )
    for number, begin, end in zip(ids, begins, ends, strict=True):
        source = unicodedata.normalize("NFKD", text[begin:end]).lower()
        source = "".join(c for c in source if not unicodedata.combining(c))
        piece = albert.texts[number]
        if number != albert.unk_id and source.strip():
            # A ligature is in the span of each of its pieces.
            assert piece.replace("σ", "ς") in source.replace("σ", "ς"), text
    assert begins == sorted(begins)
    assert ends[-1] == len(text)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.text(
            st.one_of(
                st.characters(
                    exclude_categories=["Cs"], exclude_characters="\0"
                ),
                st.sampled_from("  \n\tthecas19,é\u0301\u0344\u3000ΣİﬁH"),
            ),
            max_size=20,
        ),
        min_size=1,
    )
)
def test_any_text(xlm_roberta, xlm_roberta_graph, texts):
    scores = np.array([piece.score for piece in xlm_roberta.proto.pieces])
    for ids, other in zip(
        xlm_roberta_graph.tokenize(texts).to_list(),
        fairseq_ids(texts),
        strict=True,
    ):
        # Equal sums may be split in another order, as "000" in "00" and "0".
        assert sorted(ids) == sorted(other)
        assert abs(scores[ids].sum() - scores[other].sum()) < 1e-4


def test_special_tokens_in_text(xlm_roberta_graph, albert_graph):
    for tokenizer in (xlm_roberta_graph, albert_graph):
        data = tokenizer.data
        text = f"a {data.tokens[data.mask_id]} b"
        split = tokenizer.tokenize(text).numpy().tolist()
        found = data.tokenizer(False).tokenize(text).numpy().tolist()
        assert data.mask_id not in split
        assert found.count(data.mask_id) == 1


def test_added_tokens(xlm_roberta, tmp_path):
    extended = Unigram.from_dict(xlm_roberta.to_dict())
    extended.save(tmp_path)
    assert read_tokenizer(tmp_path) == extended
    opened = bert_tf.load_tokenizer(tmp_path, split_special_tokens=False)
    assert isinstance(opened, UnigramTokenizer)
    assert opened.data == extended
    number = len(extended)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<smile>": number}))
    data = Unigram.read(tmp_path)
    assert len(data) == number + 1
    ids = data.tokenizer().tokenize("The <smile>cats").numpy().tolist()
    assert ids.count(number) == 1
    assert AddedToken("<smile>").content in data.tokens
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<smile>": 3}))
    line = error_of(Unigram.read, tmp_path)
    assert "the id of '<smile>' is 3" in line


@pytest.mark.parametrize("name", ["xlm-roberta", "albert"])
def test_a_preset_of_keras_hub(name, folders, tmp_path):
    hub, file = keras_hub.models.XLMRobertaTokenizer, xlm_roberta_file()
    if name == "albert":
        hub, file = keras_hub.models.AlbertTokenizer, albert_file()
    theirs = hub(proto=file)
    theirs.save_to_preset(str(tmp_path))
    data = read_tokenizer(tmp_path)
    assert data == read_by(name, folders / name)
    # KerasHub has nothing of ALBERT's preprocessing.
    texts = ["the cats aren't here", "it cost 7 or 8", "россия и москва"]
    ids = data.tokenizer().tokenize(texts).to_list()
    assert ids == [np.asarray(row).tolist() for row in theirs(texts)]
    assert data.mask_id == theirs.mask_token_id


@pytest.mark.parametrize("name", ["xlm-roberta", "albert"])
def test_two_files_that_disagree(name, folders, tmp_path):
    read_by(name, folders / name).save_hugging_face(tmp_path, 77)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    pieces = values["model"]["vocab"]
    pieces[9], pieces[10] = pieces[10], pieces[9]
    path.write_text(json.dumps(values))
    line = error_of(functools.partial(read_by, name), tmp_path)
    (first, _), (second, _) = pieces[9:11]
    file = tmp_path / "spiece.model"
    assert line.startswith(f"{file}: token 9 is {second!r}, ")
    assert f"{first!r} in {path}" in line


def test_a_vocabulary_file_by_its_name(folders, xlm_roberta, albert, tmp_path):
    path = folders / "xlm-roberta" / "sentencepiece.bpe.model"
    assert read_vocabulary_file(path, False) == xlm_roberta
    google = tmp_path / "30k-clean.model"
    google.write_bytes(albert_file())
    assert read_vocabulary_file(google) == albert
    xlm_roberta.save_hugging_face(tmp_path / "theirs", 77)
    (tmp_path / "theirs" / "spiece.model").unlink()
    found = read_vocabulary_file(tmp_path / "theirs" / "tokenizer.json", False)
    assert isinstance(found, Unigram)
    assert found.tokens == xlm_roberta.tokens


@pytest.mark.parametrize("name", ["xlm-roberta", "albert"])
def test_every_form_gives_the_same_ids(name, request, tmp_path):
    tokenizer = request.getfixturevalue(f"{name.replace('-', '_')}_graph")
    data = tokenizer.data
    lines = [text.replace("\n", " ") for text in TEXTS]
    expected = tokenizer.tokenize(lines).to_list()
    # A worker.
    sizes = np.array([len(line.encode()) for line in lines])
    content = "".join(f"{line}\n" for line in lines).encode()
    again = pickle.loads(pickle.dumps(data))
    assert again == data
    ids, counts = again.worker().tokenize(content, sizes)
    assert ids.tolist() == [n for row in expected for n in row]
    assert counts.tolist() == [len(row) for row in expected]
    # JSON.
    values = json.loads(json.dumps(data.to_dict()))
    assert type(data).from_dict(values) == data
    # The files of transformers, and tokenizer.json alone.
    data.save_hugging_face(tmp_path, 77)
    assert read_by(name, tmp_path) == data
    (tmp_path / "spiece.model").unlink()
    alone = read_by(name, tmp_path)
    assert alone.packing == data.packing
    assert alone.tokenizer().tokenize(lines).to_list() == expected
    path = str(tmp_path / "tokenizer.json")
    plain = {
        line: ids
        for line, ids in zip(lines, expected, strict=True)
        if "<" not in line and "[" not in line
    }
    rows = tokenizers.Tokenizer.from_file(path).encode_batch(
        list(plain), add_special_tokens=False
    )
    assert [row.ids for row in rows] == list(plain.values())
    # A tokenizer outlives a cleared session.
    keras.utils.clear_session()
    assert tokenizer.tokenize(lines).to_list() == expected


# Letters with marks, in an order that NFC would change too; letters of Hangul;
# characters that become several, or nothing; what takes part in no composition.
CLUSTERS = (
    "aeoA\u00e2\uff21\u03b9\u0391\u0301\u0302\u0308\u0323\u0327\u0344\u0345",
    "\u0627\u0644\u0651\u064e\u05d1\u05bc\u05b0\u0600",
    "\u1100\u1161\u11a8\uac00\ufb01\u2460\u338f\uff76\uff9e\u304b\u3099",
    "\u0001\u00ad\u200d\u0e33\u0958\u09c7\u09be\U0001f469\U0001f3fb",
    " \r\n\u3000\ufff0\ufff1",
)


@pytest.fixture(scope="module")
def json_normalizer(xlm_roberta):
    return xlm_roberta.library_tokenizer().normalizer


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from(CLUSTERS).flatmap(
            lambda chars: st.text(
                st.one_of(st.sampled_from(chars), st.sampled_from("a\u0301"))
            )
        ),
        min_size=20,
    )
)
def test_a_json_file_normalises_as_the_model(json_normalizer, texts):
    library = sentencepiece.SentencePieceProcessor(
        model_proto=xlm_roberta_file()
    )
    for text, normal in zip(texts, library.normalize(texts), strict=True):
        found = json_normalizer.normalize_str(text).replace(" ", "\u2581")
        # The library has no replacement for what a text should not have.
        found = found.replace("\ufff2", "\ufff0")
        assert found == normal.removeprefix("\u2581").replace(
            "\ufff1", "\ufff0"
        )


def read_by(name, folder):
    kind = AlbertUnigram if name == "albert" else Unigram
    return kind.read(folder)


def test_what_begins_a_word(xlm_roberta, xlm_roberta_graph, albert):
    ids = xlm_roberta_graph.tokenize("The cats aren't").numpy()
    tokens = [xlm_roberta.tokens[number] for number in ids]
    starts = xlm_roberta.starts_word[ids].tolist()
    assert starts == [token.startswith("\u2581") for token in tokens]
    assert sum(starts) == 3
    assert xlm_roberta.starts_word[:4].all()
    # ALBERT: a mark, or a letter that is not Latin, begins a word.
    starts = dict(zip(albert.tokens, albert.starts_word.tolist(), strict=True))
    for token in (".", "(", "<unk>", "и", "s", "e"):
        assert starts[token] == (token not in "se"), token


def test_detokenize(xlm_roberta_graph):
    texts = ["The cats aren't here", "北京 x y"]
    found = xlm_roberta_graph.detokenize(xlm_roberta_graph.tokenize(texts))
    assert [text.decode() for text in found.numpy()] == texts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"byte_fallback": True}, "byte_fallback is True"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix is"),
    ],
)
def test_other_models_are_refused(options, message, tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=500,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    path = tmp_path / "spiece.model"
    path.write_bytes(model.getvalue())
    assert error_of(Unigram.read, tmp_path).startswith(f"{path}: {message}")


SPLIT = "pre_tokenizer"


@pytest.mark.parametrize(
    ("name", "part", "changes", "message"),
    [
        ("albert", "model", {"byte_fallback": True}, "byte_fallback is true"),
        ("albert", "normalizer", {"type": "NFKC"}, "type is 'NFKC'"),
        ("xlm-roberta", "normalizer", {"type": "NFKD"}, "type is 'NFKD'"),
        (
            "xlm-roberta",
            "normalizer",
            {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
            "pattern is '``'",
        ),
        ("xlm-roberta", SPLIT, {"type": "ByteLevel"}, "type is 'ByteLevel'"),
        ("xlm-roberta", SPLIT, {"prepend_scheme": "never"}, "is 'never'"),
    ],
)
def test_other_rules_of_a_json_file_are_refused(
    name, part, changes, message, folders, tmp_path
):
    read_by(name, folders / name).save_hugging_face(tmp_path, 77)
    (tmp_path / "spiece.model").unlink()
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    if part == "normalizer":
        values[part]["normalizers"].append(changes)
    else:
        values[part] |= changes
    path.write_text(json.dumps(values))
    line = error_of(functools.partial(read_by, name), tmp_path)
    assert line.startswith(f"{path}: ")
    assert message in line


def test_the_normaliser_of_transformers_says_whether_case_is_kept(
    folders, tmp_path
):
    read_by("albert", folders / "albert").save_hugging_face(tmp_path, 77)
    (tmp_path / "spiece.model").unlink()
    config = tmp_path / "tokenizer_config.json"
    values = json.loads(config.read_text())
    del values["do_lower_case"], values["keep_accents"]
    config.write_text(json.dumps(values))
    assert read_by("albert", tmp_path).do_lower_case
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    steps = values["normalizer"]["normalizers"]
    # As AlbertTokenizer writes them with do_lower_case=False.
    theirs = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "NFKD"},
        {"type": "StripAccents"},
    ]
    kept = [s for s in steps if s["type"] == "Precompiled"]
    values["normalizer"]["normalizers"] = [*theirs, *kept]
    path.write_text(json.dumps(values))
    data = read_by("albert", tmp_path)
    assert (data.do_lower_case, data.keep_accents) == (False, False)


def test_a_damaged_model_is_refused(folders, tmp_path):
    path = tmp_path / "spiece.model"
    for content in (b"", b"not a model", albert_file()[:1000]):
        path.write_bytes(content)
        line = error_of(Unigram.read, tmp_path)
        assert line.startswith(f"{path}: no SentencePiece model; put the file")
    path.write_bytes(albert_file())
    line = error_of(functools.partial(Unigram.read, rows=9), tmp_path)
    assert "but vocab_size is 9" in line
    assert "keeps case" in error_of(Unigram.read, tmp_path, True)


@pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data")
@pytest.mark.parametrize(
    ("name", "folder", "kind"),
    [
        ("xlmr", "xlm_roberta", Unigram),
        ("t5", "t5", Unigram),
        ("bigbird", "bigbird", Unigram),
        ("albert-de", "albert_german", AlbertUnigram),
    ],
)
def test_real_tokenizers(name, folder, kind, tmp_path):
    for path in (REAL / "tokenizer_files" / folder).glob("*.model.xz"):
        with lzma.open(path) as file:
            (tmp_path / path.stem).write_bytes(file.read())
    if name == "t5":
        values = {"cls_token": "</s>", "sep_token": "</s>"}
        values["mask_token"] = "<unk>"
        path = tmp_path / "tokenizer_config.json"
        path.write_text(json.dumps(values))
    with lzma.open(REAL / "tokenizers" / f"{name}.jsonl.xz") as file:
        rows = [json.loads(line) for line in file]
    tokenizer = kind.read(tmp_path).tokenizer()
    found = tokenizer.tokenize_with_offsets([row["text"] for row in rows])
    ids, *spans = (values.to_list() for values in found)
    for row, own, *places in zip(rows, ids, *spans, strict=True):
        # `op` where TensorFlow Text's operation breaks a tie otherwise.
        assert own == (row.get("op") or row["authors"][0]), row["text"]
        if name != "albert-de" and "op" not in row:
            assert [*map(list, zip(*places, strict=True))] == row["authors"][1]
