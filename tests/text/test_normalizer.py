import unicodedata

import pytest
import reference_tokenization
import tensorflow as tf

from bert_tf.text import unicode_tables
from bert_tf.text.normalizer import BertNormalizer, CodePoints, FinalSigma
from bert_tf.text.tokenizer_config import TokenizerConfig

SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


ASSIGNED = [
    code
    for code in SCALARS
    if unicodedata.category(chr(code)) not in ("Cn", "Co") or code % 97 == 0
]
CODES = [
    pytest.param(ASSIGNED, id="assigned"),
    pytest.param(SCALARS, id="all", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("strip_accents", [True, False])
@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("codes", CODES)
def test_every_code_point(
    codes: list[int], lower_case: bool, strip_accents: bool
) -> None:
    normalizer = BertNormalizer(TokenizerConfig.of(lower_case, strip_accents))
    texts = [chr(code) for code in codes]
    found = normalizer.normalize(tf.constant(texts)).numpy()
    wrong = [
        hex(ord(text))
        for text, result in zip(texts, found, strict=True)
        if result.decode() != expected(text, lower_case, strip_accents)
        # Blanks are left to the splitting that follows.
        and not text.isspace()
    ]
    assert wrong == []


def expected(text: str, lower_case: bool, strip_accents: bool) -> str:
    characters = reference_tokenization.normalized(
        text, lower_case, strip_accents
    )
    return "".join(character for character, _ in characters)


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
    tables = unicode_tables.case_classes()
    for code in SCALARS:
        kind = unicodedata.category(chr(code))
        if kind in ("Lu", "Ll", "Lt"):
            assert code in tables.cased | tables.transparent
        if kind in ("Mn", "Me", "Cf"):
            assert code in tables.transparent
    assert not tables.cased & tables.transparent


def test_offsets_point_into_the_mended_text() -> None:
    normalizer = BertNormalizer(TokenizerConfig.of())
    texts = tf.constant([b"a\xffE\xcc\x81b", "각Σ".encode()])
    found, sources, mended = normalizer.normalize_with_offsets(texts)
    normalized = [text.decode() for text in found.numpy()]
    assert normalized == ["aeb", "\u1100\u1161\u11a8σ"]
    # What is dropped stands for itself with an accent of two bytes.
    assert mended.numpy()[0].decode() == "a\u0300E\u0301b"
    assert sources.to_list() == [[0, 3, 6, 7], [0] * 9 + [3, 3, 5]]
