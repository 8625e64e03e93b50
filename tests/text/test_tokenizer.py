"""Ids and offsets: plain Python rules, recorded ids, transformers' ids."""

import functools
import itertools
import json
import pathlib
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import reference_tokenization as reference
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.text import normalizer, tokenizer
from bert_tf.text.layout import SentencePacker
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
SPECIAL = [*SPECIAL_TOKENS]
# lower_case, strip_accents, tokenize_chinese_chars.
RULES = tuple(itertools.product((True, False), repeat=3))
UNCASED, CASED = (True, True, True), (False, False, True)
# ASCII, letters of many kinds, marks that are reordered, blanks, controls.
CHARACTERS = [
    *map(chr, range(128)),
    *"éßςσΣжЖ中가각\u0130\u02b0\u0345\u0301\u0e34\ufb01",
    *"\u302e\u302f\U00016ff0\U0001d15f\U0001d165\ua9c0",
    *"\u00a0\u2028\u0085\u00ad\u200d\ufeff\ufffd",
    *"\U0001f600\ue000\U000e0fff\U0002a6df",
]
VISIBLE = [c for c in CHARACTERS if not c.isspace() and c >= "!"]
# Characters that the vocabulary has not, private ones among them.
UNKNOWN = ["\U000f0000", "\U00100000", "龍", "ガ"]
TOKENS = [*SPECIAL, *VISIBLE, "\u1100", "ab", "##ab", "aé"]
TOKENS += [f"##{c}" for c in [*VISIBLE, "\u1161", "\u11a8"]]
TOKENS = list(dict.fromkeys(TOKENS))


@functools.cache
def tokenizer_of(rules: tuple[bool, bool, bool]) -> BertTokenizer:
    return BertTokenizer(TOKENS, *rules)


def golden_rows(name: str) -> list[dict]:
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def marks_change_places(text: str) -> bool:
    """Whether canonical ordering moves a mark that is kept."""
    characters = [c for c, _ in reference.clean(text)]
    parts = "".join(unicodedata.normalize("NFD", c) for c in characters)
    return parts != unicodedata.normalize("NFD", "".join(characters))


def check(subject: BertTokenizer, texts: list[str], every: int = 1) -> None:
    """Ids and offsets of texts, and of looked-up words, as the reference's.

    Args:
      subject: the tokenizer.
      texts: a batch.
      every: how many texts there are for each that the reference, which is
        slow, tokenizes too.
    """
    vocabulary, config = subject.vocabulary, subject.config
    found = [v.to_list() for v in subject.tokenize_with_offsets(texts)]
    assert subject.tokenize(texts).to_list() == found[0]
    tokens = set(vocabulary.ids)
    for text, ids, *offsets in list(zip(texts, *found, strict=True))[::every]:
        expected = reference.tokenize(
            text,
            tokens,
            config.lower_case,
            config.strip_accents,
            config.tokenize_chinese_chars,
        )
        assert ids == [vocabulary.ids[token.text] for token in expected], text
        if marks_change_places(text):
            assert offsets[0] == sorted(offsets[0]), text
        else:
            spans = [[t.start for t in expected], [t.end for t in expected]]
            assert offsets == spans, text
    by_words = subject.data.worker()
    data = [text.encode() for text in texts]
    among_ascii = [*data[::-1], b"some ascii " * (sum(map(len, data)) + 9)]
    for lines in (data, among_ascii):
        sizes = np.array([len(line) for line in lines], np.int64)
        exact = subject.tokenize(lines)
        # What one call learns, the next one looks up.
        for _ in range(2):
            ids, lengths = by_words.tokenize(b"\n".join([*lines, b""]), sizes)
            np.testing.assert_array_equal(ids, exact.flat_values)
            np.testing.assert_array_equal(lengths, exact.row_lengths())


# Few calls with many texts each.
@settings(max_examples=10)
@given(
    texts=st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
            st.text(st.sampled_from(CHARACTERS + UNKNOWN), max_size=12),
            st.builds(
                lambda c, n, text: c * n + text,
                st.sampled_from(CHARACTERS),
                st.sampled_from([66, 67, 199, 200, 201, 267, 400, 801]),
                st.text(st.sampled_from(CHARACTERS), max_size=5),
            ),
            st.text(st.characters(max_codepoint=127), max_size=20),
        ),
        min_size=15,
        max_size=40,
    ),
    # Each rule both ways; test_ids_of_transformers tries all eight.
    rules=st.sampled_from(
        [UNCASED, CASED, (True, False, False), (False, True, False)]
    ),
)
@example(["ab!", "ΑΣ éa", "", "a\x01b", "b" * 201, "\u302e\U00016ff0"], UNCASED)
# Long runs that hold no word.
@example(["\x01" * 300], CASED)
@example(["\u3000" * 201, "", "\u0301" * 250], UNCASED)
@example(["\xa0" * 201, "word", "\xe9" * 201, "a" + "\xa0" * 201], CASED)
def test_any_text_as_the_reference(texts, rules) -> None:
    check(tokenizer_of(rules), texts)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_golden_file(name: str) -> None:
    vocabulary = Vocabulary.from_file(GOLDEN / "tokenizer" / "vocab.txt")
    assert list(vocabulary.tokens) == reference.golden_vocabulary()
    rows = golden_rows(f"tokenizer/{name}.jsonl")
    texts = [row["text"] for row in rows]
    tokens = set(vocabulary.tokens)
    for row in rows:
        expected = reference.tokenize(row["text"], tokens, name == "uncased")
        assert row["tokens"] == [token.text for token in expected]
        assert row["starts"] == [token.start for token in expected]
        assert row["ends"] == [token.end for token in expected]
    check(BertTokenizer(vocabulary, name == "uncased"), texts)


@pytest.mark.parametrize(
    ("name", "lower_case"),
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-multilingual-cased", False),
    ],
)
def test_recorded_outputs_of_the_original(shared_data, name, lower_case):
    vocabulary = Vocabulary.from_file(
        shared_data / "vocab" / name / "vocab.txt"
    )
    subject = BertTokenizer(vocabulary, lower_case)
    recorded = shared_data / "tokenizer_golden" / f"{name}.jsonl"
    rows = golden_rows(str(recorded))
    assert len(rows) == 1189
    texts = [row["text"] for row in rows]
    ids = subject.tokenize(texts)
    assert ids.to_list() == [row["ids"] for row in rows]
    tokens = subject.id_to_token(ids).to_list()
    assert tokens == [[t.encode() for t in row["tokens"]] for row in rows]
    joined = [" ".join(row["tokens"]).replace(" ##", "") for row in rows]
    assert [x.decode() for x in subject.detokenize(ids).numpy()] == joined
    check(subject, texts, every=10)


def comparable(text: str) -> bool:
    """Whether transformers' limits and tables have no part in the ids.

    Its words have up to 100 characters. It drops private and unassigned
    characters, and the fast one has older tables.
    """
    words = "".join(c for c, _ in reference.clean(text)).split()
    return max(map(len, words), default=0) <= 100 and not any(
        unicodedata.ucd_3_2_0.category(char) in ("Co", "Cn") for char in text
    )


@pytest.mark.parametrize("place", range(8), ids=lambda n: str(RULES[n]))
def test_ids_of_transformers(place) -> None:
    """But for NFC in the slow one, and the final sigma in the fast one."""
    rows = golden_rows("tokenizer_settings/ids.jsonl")
    different = [len({tuple(ids) for ids in row["fast"]}) for row in rows]
    assert sum(count > 3 for count in different) > 80
    vocabulary = GOLDEN / "tokenizer_settings" / "vocab.txt"
    subject = BertTokenizer(vocabulary, *RULES[place])
    texts = [row["text"] for row in rows]
    check(subject, texts, every=4)
    as_fast = as_slow = 0
    for row, found in zip(rows, subject.tokenize(texts).to_list(), strict=True):
        text = row["text"]
        if not comparable(text):
            continue
        if not (subject.lower_case and "ς" in text.lower()):
            assert found == row["fast"][place], text
            as_fast += 1
        if unicodedata.is_normalized("NFC", text):
            slow = row["slow"].get(str(place), row["fast"][place])
            assert found == slow, text
            as_slow += 1
    assert as_fast > 210
    assert as_slow > 170


def test_private_characters_of_a_vocabulary_stay_apart_from_ideographs():
    tokens = [*SPECIAL, "中", "\U000f0000", "##國", "中國", "a##"]
    tokens += ["##\U000f0001", "a"]
    subject = BertTokenizer(tokens, tokenize_chinese_chars=False)
    texts = ["中", "中國", "\U000f0000國", "\U000f0001", "a中", "龍"]
    texts.append("a\U000f0001")
    check(subject, [*texts, *(f"{text}!{text}" for text in texts)])
    assert subject.tokenize("中國 龍").numpy().tolist() == [8, 1]


@settings(max_examples=10)
@given(
    lines=st.lists(
        st.lists(
            st.one_of(
                st.sampled_from(
                    [b"a", b" ", "Σ".encode(), "é".encode(), b"\xef\xbb\xbf"]
                ),
                st.binary(min_size=1, max_size=2),
            ),
            min_size=1,
            max_size=8,
        ).map(b"".join),
        min_size=5,
        max_size=20,
    ),
    rules=st.sampled_from([UNCASED, CASED]),
)
def test_bytes_that_are_not_utf8(lines, rules) -> None:
    subject = tokenizer_of(rules)
    texts = [line.decode("utf-8", errors="replace") for line in lines]
    found = subject.tokenize_with_offsets(tf.constant(lines))
    # The reference takes no bytes; `check` holds text against it.
    expected = subject.tokenize_with_offsets(texts)
    for left, right in zip(found, expected, strict=True):
        assert left.to_list() == right.to_list()


def test_shapes_and_types() -> None:
    subject = tokenizer_of(UNCASED)
    ids = subject.tokenize(["ab", "a b!"])
    assert isinstance(ids, tf.RaggedTensor)
    assert (ids.dtype, ids.shape.as_list()) == (tf.int32, [2, None])
    single = subject.tokenize("ab")
    assert (single.dtype, single.shape.rank) == (tf.int32, 1)
    for values in subject.tokenize_with_offsets(tf.constant("a b")):
        assert (values.dtype, values.shape) == (tf.int32, [2])
    assert subject.tokenize(tf.constant([], tf.string)).to_list() == []
    assert subject.tokenize("").numpy().tolist() == []


def test_in_a_dataset_before_and_after_batching() -> None:
    subject = tokenizer_of(UNCASED)
    texts = ["ab a", "é Σ中", "", "a\u0301!"]
    expected = subject.tokenize(texts).to_list()
    data = tf.data.Dataset.from_tensor_slices(texts)
    one = [row.numpy().tolist() for row in data.map(subject.tokenize)]
    assert one == expected
    batches = data.batch(3).map(subject.tokenize)
    assert [row for rows in batches for row in rows.to_list()] == expected


def test_detokenize() -> None:
    subject = tokenizer_of(CASED)
    names = ["[CLS]", "ab", "##ab", "!", "[SEP]", "[UNK]", "##é", "[PAD]"]
    ids = [subject.vocabulary.ids[name] for name in names]
    assert subject.detokenize(ids).numpy() == b"abab ! [UNK]\xc3\xa9"
    rows = tf.ragged.constant([ids, [], [0, 0]])
    found = subject.detokenize(rows).numpy().tolist()
    assert found == [b"abab ! [UNK]\xc3\xa9", b"", b""]
    specials = subject.id_to_token([[2, 3]]).numpy().tolist()
    assert specials == [[b"[CLS]", b"[SEP]"]]


@pytest.mark.parametrize("texts", [7, [1, 2], [["a"]], [["a"], ["b", "c"]]])
def test_texts_of_another_kind(texts) -> None:
    with pytest.raises(UserError, match="texts"):
        tokenizer_of(UNCASED).tokenize(texts)


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
for name in ("uncased", "cased", "added"):
    found = getattr(module, name)(texts)
    print(json.dumps([values.to_list() for values in found]))
packed = module.packed(texts, texts[::-1])
print(json.dumps({k: v.numpy().tolist() for k, v in packed.items()}))
assert not any(name.startswith("bert_tf") for name in sys.modules)
"""


def test_saved_model_in_a_fresh_process(tmp_path) -> None:
    """Tokenizers, one of them with added tokens, and a packer."""
    subjects = {
        "uncased": tokenizer_of(UNCASED),
        "cased": tokenizer_of(CASED),
        "added": BertTokenizer.from_checkpoint(
            GOLDEN / "added_tokens" / "uncased"
        ),
    }
    strings = tf.TensorSpec([None], tf.string)
    module = tf.Module()
    for name, subject in subjects.items():
        serve = tf.function(
            subject.tokenize_with_offsets, input_signature=[strings]
        )
        setattr(module, name, serve)
        setattr(module, f"{name}_tokenizer", subject)
    module.packer = SentencePacker(subjects["uncased"], 9)
    module.packed = tf.function(
        module.packer.pack, input_signature=[strings, strings]
    )
    tf.saved_model.save(module, str(tmp_path))
    texts = ["ab a!", "ΑΣ É\u0301a", "中\x01a\U000e0fffa", "é" * 201, "각", ""]
    texts += ["a newword [E1] two\twords", "É <l> cat concat"]
    command = [sys.executable, "-c", LOAD, str(tmp_path), json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *tokenized, packed = map(json.loads, done.stdout.splitlines())
    for subject, found in zip(subjects.values(), tokenized, strict=True):
        expected = subject.tokenize_with_offsets(texts)
        assert found == [values.to_list() for values in expected]
    expected = module.packer.pack(texts, texts[::-1])
    assert packed == {k: v.numpy().tolist() for k, v in expected.items()}


def test_self_check_table_is_the_reference() -> None:
    tokens = set(tokenizer.CHECK_TOKENS)
    for text, *expected in tokenizer.CHECKS:
        for lower_case, names in zip((True, False), expected, strict=True):
            found = reference.tokenize(text, tokens, lower_case)
            assert [token.text for token in found] == names.split(), text


def test_self_check_names_the_version_and_the_text(monkeypatch) -> None:
    """With TF Text's own table in place of ours, the first use says so."""
    import tensorflow_text

    version = tensorflow_text.__version__
    assert version == tokenizer.TESTED, "set TESTED to the installed version"
    for lower_case in (True, False):
        tokenizer.check_rules(lower_case)

    class Stock(tensorflow_text.FastBertNormalizer):
        def __init__(self, model_buffer):
            super().__init__(lower_case_nfd_strip_accents=True)

    monkeypatch.setattr(normalizer.tf_text, "FastBertNormalizer", Stock)
    monkeypatch.setattr(tokenizer, "TESTED", "0")
    tokenizer.check_rules.cache_clear()
    with pytest.raises(UserError, match=f"{version} breaks BERT's rules: 'a"):
        BertTokenizer(TOKENS, lower_case=True)
    monkeypatch.undo()
    tokenizer.check_rules.cache_clear()
    BertTokenizer(TOKENS, lower_case=True)
