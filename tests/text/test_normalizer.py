import unicodedata

import pytest
import reference_tokenization
import tensorflow as tf

from bert_tf.text import unicode_tables
from bert_tf.text.normalizer import BertNormalizer, CodePoints, FinalSigma
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig

SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
ASSIGNED = [
    code
    for code in SCALARS
    if unicodedata.category(chr(code)) not in ("Cn", "Co") or code % 97 == 0
]


def test_the_category_of_every_code_point() -> None:
    expected = [unicodedata.category(chr(code)) for code in range(0x110000)]
    assert unicode_tables.categories().astype(str).tolist() == expected


@pytest.mark.parametrize(
    ("codes", "lower_case", "strip_accents"),
    [
        pytest.param(ASSIGNED, True, True, id="uncased"),
        pytest.param(ASSIGNED, True, False, id="uncased with accents"),
        pytest.param(ASSIGNED, False, True, id="cased without accents"),
        pytest.param(ASSIGNED, False, False, id="cased"),
        pytest.param(SCALARS, True, True, id="all"),
    ],
)
def test_every_code_point(codes, lower_case, strip_accents) -> None:
    normalizer = BertNormalizer(TokenizerConfig.of(lower_case, strip_accents))
    texts = [chr(code) for code in codes]
    found = normalizer.normalize(tf.constant(texts)).numpy()
    wrong = [
        hex(ord(text))
        for text, result in zip(texts, found, strict=True)
        if result.decode() != normalized(text, lower_case, strip_accents)
        # Blanks are left to the splitting that follows.
        and not text.isspace()
    ]
    assert wrong == []


def normalized(*arguments) -> str:
    characters = reference_tokenization.normalized(*arguments)
    return "".join(character for character, _ in characters)


@pytest.mark.parametrize("lower_case", [True, False])
def test_every_code_point_between_letters(lower_case: bool) -> None:
    """Whether each is dropped, joins, separates or stands alone."""
    subject = BertTokenizer([*SPECIAL_TOKENS, "a", "##a", "##b"], lower_case)
    counts = subject.tokenize([f"a{chr(c)}b" for c in ASSIGNED])
    alone = unicode_tables.punctuation() | unicode_tables.ideographs()
    a, b, unknown = (subject.vocabulary.ids[t] for t in ("a", "##b", "[UNK]"))
    joined = [a, b]
    wrong = []
    for code, found in zip(ASSIGNED, counts.to_list(), strict=True):
        text = reference_tokenization.normalized(f"a{chr(code)}b", lower_case)
        middle = "".join(character for character, _ in text)[1:-1]
        if not middle:
            expected = joined
        elif middle.isspace():
            expected = [a, unknown]
        elif (
            middle in ("a", "b") or middle.isalpha() and set(middle) <= {*"ab"}
        ):
            word = f"a{middle}b"
            pieces = reference_tokenization.pieces(word, {"a", "##a", "##b"})
            expected = [subject.vocabulary.ids[piece] for piece in pieces]
        elif len(middle) == 1 and ord(middle) in alone:
            expected = [a, unknown, unknown]
        else:
            expected = [unknown]
        if found != expected:
            wrong.append(hex(code))
    assert wrong == []


def test_replaces_what_python_does_not_know() -> None:
    code = 0xE0FFF
    assert unicodedata.category(chr(code)) == "Cn"
    text = tf.constant([f"a{chr(code)}b"])
    config = TokenizerConfig.of()
    code_points = CodePoints(unassigned="?")
    replaced = BertNormalizer(config, code_points).normalize(text)
    assert replaced.numpy()[0] == b"a?b"
    code_points = CodePoints(frozenset([code]), "?")
    kept = BertNormalizer(config, code_points).normalize(text)
    assert kept.numpy()[0].decode() == f"a{chr(code)}b"


@pytest.mark.parametrize(
    "text",
    ["Σ", "ΑΣ", "ΑΣΑ", "ΑΣ ΣΑ", "ΣΣ", "Α'Σ'", "Α\u0301Σ\u0301Α", "ʰΣ", "1Σ"],
)
def test_final_sigma_is_that_of_str_lower(text: str) -> None:
    found = FinalSigma()(tf.constant([text, "", "x"])).numpy()
    assert found[0].decode().lower() == text.lower()
    assert "ς" in found[0].decode() or "ς" not in text.lower()
    assert found[1:].tolist() == [b"", b"x"]


def test_case_classes_agree_with_str_lower_on_all_letters() -> None:
    cased, transparent = unicode_tables.case_classes()
    for code in SCALARS:
        kind = unicodedata.category(chr(code))
        if kind in ("Lu", "Ll", "Lt"):
            assert code in cased | transparent
        if kind in ("Mn", "Me", "Cf"):
            assert code in transparent
    assert not cased & transparent


def test_offsets_point_into_the_repaired_text() -> None:
    normalizer = BertNormalizer(TokenizerConfig.of())
    texts = tf.constant([b"a\xffE\xcc\x81b", "각Σ".encode()])
    found, sources, repaired = normalizer.normalize_with_offsets(texts)
    normalized = [text.decode() for text in found.numpy()]
    assert normalized == ["aeb", "\u1100\u1161\u11a8σ"]
    # What is dropped stands for itself with an accent of two bytes.
    assert repaired.numpy()[0].decode() == "a\u0300E\u0301b"
    assert sources.to_list() == [[0, 3, 6, 7], [0] * 9 + [3, 3, 5]]
