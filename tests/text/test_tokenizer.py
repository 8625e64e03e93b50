import json
import pathlib
import subprocess
import sys
import unicodedata

import pytest
import reference_tokenization
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.text import tokenizer, unicode_tables
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tokenizer"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Letters of many kinds, marks that are reordered, blanks, signs, controls.
CHARACTERS = [
    *"abeAéßςσΣжЖ中가각1'!#[]_\u0130\u02b0\u0345\u0301\u0e34\ufb01",
    *"\u302e\u302f\U00016ff0\U0001d15f\U0001d165\ua9c0",
    *" \t\n\x01\x00\u00a0\u2028\u0085\u00ad\u200d\ufeff\ufffd",
    *"\U0001f600\ue000\U000e0fff\U0002a6df",
]
VISIBLE = [c for c in CHARACTERS if not (c.isspace() or c in "\x01\x00")]
TOKENS = list(
    dict.fromkeys(
        [
            *SPECIAL,
            *VISIBLE,
            *("\u1100", "ab", "##ab", "aé"),
            *(f"##{c}" for c in [*VISIBLE, "\u1161", "\u11a8"]),
        ]
    )
)


@pytest.fixture(scope="module")
def tokenizers() -> dict[bool, BertTokenizer]:
    return {case: BertTokenizer(TOKENS, case) for case in (True, False)}


def of_reference(text: str, tokens, lower_case: bool):
    found = reference_tokenization.tokenize(text, set(tokens), lower_case)
    return (
        [token.text for token in found],
        [token.start for token in found],
        [token.end for token in found],
    )


def marks_change_places(text: str) -> bool:
    """Whether canonical ordering moves a mark that is kept."""
    characters = [c for c, _ in reference_tokenization.clean(text)]
    parts = "".join(unicodedata.normalize("NFD", c) for c in characters)
    return parts != unicodedata.normalize("NFD", "".join(characters))


def check(tokenizer: BertTokenizer, texts: list[str]) -> None:
    """Ids and offsets of a batch against the plain-Python rules."""
    names = tokenizer.vocabulary.tokens
    results = tokenizer.tokenize_with_offsets(texts)
    ids, starts, ends = (values.to_list() for values in results)
    assert tokenizer.tokenize(texts).to_list() == ids
    for text, *found in zip(texts, ids, starts, ends, strict=True):
        expected = of_reference(text, names, tokenizer.lower_case)
        assert [names[number] for number in found[0]] == expected[0]
        if marks_change_places(text):
            assert found[1] == sorted(found[1])
        else:
            assert found[1:] == list(expected[1:])


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_golden_file(name: str) -> None:
    subject = BertTokenizer(GOLDEN / "vocab.txt", name == "uncased")
    lines = (GOLDEN / f"{name}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    texts = [row["text"] for row in rows]
    ids, starts, ends = subject.tokenize_with_offsets(texts)
    tokens = [
        [token.decode() for token in row]
        for row in subject.id_to_token(ids).to_list()
    ]
    assert tokens == [row["tokens"] for row in rows]
    for row, *found in zip(rows, starts.to_list(), ends.to_list(), strict=True):
        if not marks_change_places(row["text"]):
            assert found == [row["starts"], row["ends"]]


def test_golden_file_is_the_reference() -> None:
    tokens = (
        GOLDEN.joinpath("vocab.txt").read_text(encoding="utf-8").split("\n")
    )
    assert tokens[:-1] == reference_tokenization.golden_vocabulary()
    for name in ("uncased", "cased"):
        for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            expected = of_reference(row["text"], tokens[:-1], name == "uncased")
            assert [row["tokens"], row["starts"], row["ends"]] == list(expected)


@pytest.mark.parametrize(
    ("name", "lower_case"),
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-multilingual-cased", False),
    ],
)
def test_recorded_outputs_of_the_original(
    shared_data, name, lower_case
) -> None:
    folder = shared_data / "vocab" / name
    subject = BertTokenizer(folder / "vocab.txt", lower_case)
    recorded = shared_data / "tokenizer_golden" / f"{name}.jsonl"
    lines = recorded.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 1189
    texts = [row["text"] for row in rows]
    ids, starts, ends = subject.tokenize_with_offsets(texts)
    assert ids.to_list() == [row["ids"] for row in rows]
    assert subject.tokenize(texts).to_list() == ids.to_list()
    tokens = subject.id_to_token(ids).to_list()
    assert tokens == [[t.encode() for t in row["tokens"]] for row in rows]
    joined = [
        " ".join(row["tokens"]).replace(" ##", "").encode() for row in rows
    ]
    assert subject.detokenize(ids).numpy().tolist() == joined
    # The reference is slow: every fifth text.
    for text, *found in list(
        zip(texts, starts.to_list(), ends.to_list(), strict=True)
    )[::5]:
        expected = of_reference(text, subject.vocabulary.ids, lower_case)
        assert found == list(expected[1:])


@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
            st.text(st.sampled_from(CHARACTERS), max_size=12),
            st.builds(
                lambda c, n, text: c * n + text,
                st.sampled_from(CHARACTERS),
                st.sampled_from([66, 67, 199, 200, 201, 267, 400, 801]),
                st.text(st.sampled_from(CHARACTERS), max_size=5),
            ),
            st.text(st.characters(max_codepoint=127), max_size=20),
        ),
        max_size=5,
    ),
    lower_case=st.booleans(),
)
def test_any_text_as_the_reference(tokenizers, texts, lower_case) -> None:
    if texts:
        check(tokenizers[lower_case], texts)


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize(
    "texts",
    [
        ["\xa0" * 201],
        ["\x01" * 300],
        ["\u3000" * 201, "", "\u0301" * 250],
        ["\xa0" * 201, "word", "\xe9" * 201, "a" + "\xa0" * 201],
    ],
)
def test_long_runs_that_hold_no_word(tokenizers, texts, lower_case) -> None:
    check(tokenizers[lower_case], texts)


SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
ASSIGNED = [
    code
    for code in SCALARS
    if unicodedata.category(chr(code)) not in ("Cn", "Co") or code % 97 == 0
]


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize(
    "codes",
    [
        pytest.param(ASSIGNED, id="assigned"),
        pytest.param(SCALARS, id="all", marks=pytest.mark.slow),
    ],
)
def test_every_code_point_between_letters(codes, lower_case: bool) -> None:
    """Whether each is dropped, joins, separates or stands alone."""
    subject = BertTokenizer([*SPECIAL, "a", "##a", "##b"], lower_case)
    counts = subject.tokenize([f"a{chr(c)}b" for c in codes]).to_list()
    alone = unicode_tables.punctuation() | unicode_tables.ideographs()
    a, b, unknown = (subject.vocabulary.ids[t] for t in ("a", "##b", "[UNK]"))
    joined = [a, b]
    wrong = []
    for code, found in zip(codes, counts, strict=True):
        text = reference_tokenization.normalized(f"a{chr(code)}b", lower_case)
        middle = "".join(character for character, _ in text)[1:-1]
        if not middle:
            wanted = joined
        elif middle.isspace():
            wanted = [a, unknown]
        elif (
            middle in ("a", "b") or middle.isalpha() and set(middle) <= {*"ab"}
        ):
            word = f"a{middle}b"
            pieces = reference_tokenization.pieces(word, {"a", "##a", "##b"})
            wanted = [subject.vocabulary.ids[piece] for piece in pieces]
        elif len(middle) == 1 and ord(middle) in alone:
            wanted = [a, unknown, unknown]
        else:
            wanted = [unknown]
        if found != wanted:
            wrong.append(hex(code))
    assert wrong == []


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(
        st.one_of(
            st.sampled_from(
                [b"a", b" ", "Σ".encode(), "é".encode(), b"\xef\xbb\xbf"]
            ),
            st.binary(min_size=1, max_size=2),
        ),
        min_size=1,
        max_size=8,
    ),
    lower_case=st.booleans(),
)
def test_bytes_that_are_not_utf8(tokenizers, parts, lower_case) -> None:
    data = b"".join(parts)
    subject = tokenizers[lower_case]
    text = data.decode("utf-8", errors="replace")
    found = subject.tokenize_with_offsets(tf.constant([data, b"a"]))
    wanted = subject.tokenize_with_offsets([text, "a"])
    for left, right in zip(found, wanted, strict=True):
        assert left.to_list() == right.to_list()
    names = subject.vocabulary.tokens
    expected = of_reference(text, names, lower_case)
    assert [names[i] for i in found[0].to_list()[0]] == expected[0]


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from(CHARACTERS), max_size=20))
def test_offsets_give_back_the_piece(tokenizers, text: str) -> None:
    for lower_case, subject in tokenizers.items():
        if marks_change_places(text):
            continue
        ids, starts, ends = (
            values.numpy().tolist()
            for values in subject.tokenize_with_offsets(text)
        )
        assert starts == sorted(starts)
        assert ends == sorted(ends)
        for number, start, end in zip(ids, starts, ends, strict=True):
            assert 0 <= start < end <= len(text)
            piece = subject.vocabulary.tokens[number].removeprefix("##")
            span = reference_tokenization.normalized(
                text[start:end], lower_case
            )
            spelled = "".join(character for character, _ in span)
            # Out of context a sigma may take its other small form.
            spelled = spelled.replace("ς", "σ").strip()
            if piece != "[UNK]":
                assert piece.replace("ς", "σ") in spelled


def test_a_mixed_batch_is_what_its_texts_are_alone(tokenizers) -> None:
    texts = [
        "ab a!",
        "ΑΣ éa",
        "",
        "a\x01b",
        "b" * 201,
        "\u302e\U00016ff0",
        "é" * 150,
    ]
    for subject in tokenizers.values():
        together = subject.tokenize(texts).to_list()
        alone = [subject.tokenize(text).numpy().tolist() for text in texts]
        assert together == alone
        assert len({tuple(row) for row in together}) == len(texts)


def test_shapes_and_types(tokenizers) -> None:
    subject = tokenizers[True]
    ids = subject.tokenize(["ab", "a b!"])
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [2, None]
    single = subject.tokenize("ab")
    assert single.shape.rank == 1
    assert single.dtype == tf.int32
    for values in subject.tokenize_with_offsets(tf.constant("a b")):
        assert values.dtype == tf.int32
        assert values.shape == [2]
    assert subject.tokenize(tf.constant([], tf.string)).to_list() == []
    assert subject.tokenize("").numpy().tolist() == []


def test_in_a_dataset_before_and_after_batching(tokenizers) -> None:
    subject = tokenizers[True]
    texts = ["ab a", "é Σ中", "", "a\u0301!"]
    expected = subject.tokenize(texts).to_list()
    data = tf.data.Dataset.from_tensor_slices(texts)
    one = [row.numpy().tolist() for row in data.map(subject.tokenize)]
    assert one == expected
    batched = [
        row
        for rows in data.batch(3).map(subject.tokenize)
        for row in rows.to_list()
    ]
    assert batched == expected


def test_detokenize(tokenizers) -> None:
    subject = tokenizers[False]
    names = ["[CLS]", "ab", "##ab", "!", "[SEP]", "[UNK]", "##é", "[PAD]"]
    ids = [subject.vocabulary.ids[name] for name in names]
    assert subject.detokenize(ids).numpy() == b"abab ! [UNK]\xc3\xa9"
    rows = tf.ragged.constant([ids, [], [0, 0]])
    found = subject.detokenize(rows).numpy().tolist()
    assert found == [b"abab ! [UNK]\xc3\xa9", b"", b""]
    assert subject.id_to_token([[2, 3]]).numpy().tolist() == [
        [b"[CLS]", b"[SEP]"]
    ]


@pytest.mark.parametrize("texts", [7, [1, 2], [["a"]], [["a"], ["b", "c"]]])
def test_texts_of_another_kind(tokenizers, texts) -> None:
    with pytest.raises(UserError, match="texts"):
        tokenizers[True].tokenize(texts)


ODD_TOKENS = [
    *("a", "##a", "b", "##b", "A", "中", "國"),
    # What no text can give: blanks, signs or marks inside, or nothing at all.
    *("a b", "\u3000b", "a!b", "!!", "中國", "a\x01", "##", "##!", "##\u0301"),
    *("#", "##中", "a" * 200, "É", "e\u0301"),
]


@pytest.mark.parametrize("lower_case", [True, False])
def test_odd_tokens_of_a_vocabulary(lower_case: bool) -> None:
    subject = BertTokenizer([*SPECIAL, *ODD_TOKENS], lower_case)
    texts = ["a b", "\u3000b", "a!b!!", "中國", "a\x01 ## ##!", "A\u0301 É e"]
    check(subject, [*texts, "a" * 199, "a" * 200, "a" * 201, "b" + "a" * 199])


def test_longest_piece() -> None:
    longest = "ж" * 128
    subject = BertTokenizer([*SPECIAL, longest, f"##{longest}"])
    assert subject.tokenize("ж" * 128).numpy().tolist() == [5]
    assert subject.tokenize("ж" * 129).numpy().tolist() == [1]
    with pytest.raises(UserError, match="'ж.* more than 256 bytes"):
        BertTokenizer([*SPECIAL, longest + "a"])


LOAD = """
import json, sys
import tensorflow as tf
import tensorflow_text
module = tf.saved_model.load(sys.argv[1])
texts = tf.constant(json.loads(sys.argv[2]))
found = [module.uncased(texts), module.cased(texts)]
print(json.dumps([[v.to_list() for v in values] for values in found]))
assert not any(name.startswith("bert_tf") for name in sys.modules)
"""


def test_saved_model_in_a_fresh_process(tokenizers, tmp_path) -> None:
    module = tf.Module()
    for name, lower_case in (("uncased", True), ("cased", False)):
        subject = tokenizers[lower_case]
        serve = tf.function(
            subject.tokenize_with_offsets,
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        setattr(module, name, serve)
        setattr(module, f"{name}_tokenizer", subject)
    tf.saved_model.save(module, str(tmp_path))
    texts = ["ab a!", "ΑΣ É\u0301a", "中\x01a\U000e0fffa", "é" * 201, "각"]
    command = [sys.executable, "-c", LOAD, str(tmp_path), json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = [
        [v.to_list() for v in tokenizers[case].tokenize_with_offsets(texts)]
        for case in (True, False)
    ]
    assert json.loads(done.stdout) == expected


def test_save_and_from_checkpoint(tmp_path) -> None:
    for lower_case in (True, False):
        folder = tmp_path / str(lower_case)
        BertTokenizer(TOKENS, lower_case).save(folder)
        again = BertTokenizer.from_checkpoint(folder)
        assert again.lower_case is lower_case
        assert again.vocabulary == Vocabulary(TOKENS)


def test_from_checkpoint_without_a_config_looks_at_the_vocabulary(
    tmp_path,
) -> None:
    for tokens, lower_case in ((["a"], True), (["A"], False)):
        Vocabulary([*SPECIAL, *tokens]).save(tmp_path / "vocab.txt")
        found = BertTokenizer.from_checkpoint(tmp_path)
        assert found.lower_case is lower_case


def test_from_checkpoint_of_hugging_face(tmp_path) -> None:
    Vocabulary([*SPECIAL, "A"]).save(tmp_path / "vocab.txt")
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"do_lower_case": true, "model_max_length": 512}')
    assert BertTokenizer.from_checkpoint(tmp_path).lower_case is True
    config.write_text('{"do_lower_case": "yes"}')
    with pytest.raises(UserError, match="do_lower_case is 'yes'"):
        BertTokenizer.from_checkpoint(tmp_path)
    config.write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        BertTokenizer.from_checkpoint(tmp_path)
    with pytest.raises(UserError, match="no such model folder"):
        BertTokenizer.from_checkpoint(tmp_path / "none")


def test_self_check_table_is_the_reference() -> None:
    tokens = set(tokenizer.CHECK_TOKENS)
    for text, *expected in tokenizer.CHECKS:
        for lower_case, wanted in zip((True, False), expected, strict=True):
            found = reference_tokenization.tokenize(text, tokens, lower_case)
            assert [token.text for token in found] == wanted.split(), text


def test_self_check_names_the_version_and_the_text(monkeypatch) -> None:
    """With TF Text's own table in place of ours, the first use says so."""
    import tensorflow_text

    from bert_tf.text import normalizer

    class Stock(tensorflow_text.FastBertNormalizer):
        def __init__(self, model_buffer):
            super().__init__(lower_case_nfd_strip_accents=True)

    monkeypatch.setattr(normalizer.tf_text, "FastBertNormalizer", Stock)
    tokenizer._check_rules.cache_clear()
    version = tensorflow_text.__version__
    with pytest.raises(UserError, match=f"{version} breaks BERT's rules: 'a"):
        BertTokenizer(TOKENS)
    monkeypatch.undo()
    tokenizer._check_rules.cache_clear()
    BertTokenizer(TOKENS)
