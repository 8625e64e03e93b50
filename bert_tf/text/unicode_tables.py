"""BERT's rules for each code point, from Python's Unicode tables.

The rules are those of google-research/bert, tokenization.py, which reads the
same tables (`unicodedata.unidata_version`); those of the libraries inside
TensorFlow differ.
"""

import functools
import itertools
import operator
import re
import unicodedata
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import numpy as np

CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
NONCHARACTERS = range(0xFDD0, 0xFDF0)
# Planes with characters; the others are unassigned or for private use.
ASSIGNED_PLANES = (range(0x40000), range(0xE0000, 0xF0000))
PRIVATE_USE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)
# Unassigned characters that keep others apart in a tokenizer.json.
WALL, GAP = "\ufff0", "\ufff1"
CAPITAL_SIGMA, FINAL_SIGMA, SMALL_SIGMA = 0x3A3, 0x3C2, 0x3C3

# tokenization.py `_is_chinese_char`: first and last of each block.
IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# tokenization.py `_is_punctuation`: ASCII symbols count as punctuation.
ASCII_PUNCTUATION = ((33, 47), (58, 64), (91, 96), (123, 126))


@functools.cache
def categories() -> np.ndarray:
    """The general category of every code point, two letters each, bytes."""
    kinds = np.full(CODE_POINTS, b"Cn", "S2")
    for codes in PRIVATE_USE:
        kinds[codes.start : codes.stop] = b"Co"
    # To ask for each of the other planes too would take four times as long.
    for codes in ASSIGNED_PLANES:
        found = "".join(map(unicodedata.category, map(chr, codes)))
        kinds[codes.start : codes.stop] = np.frombuffer(
            found.encode("ascii"), "S2"
        )
    kinds.setflags(write=False)
    return kinds


def _of_categories(*kinds: bytes) -> np.ndarray:
    """Which code points have one of these categories, bool."""
    return functools.reduce(np.logical_or, (categories() == k for k in kinds))


@functools.cache
def dropped() -> frozenset[int]:
    """The code points that `_clean_text` removes."""
    controls = np.flatnonzero(_of_categories(b"Cc", b"Cf")).tolist()
    return frozenset({0, 0xFFFD, *controls} - {ord(c) for c in "\t\n\r"})


@functools.cache
def punctuation() -> frozenset[int]:
    """The code points that `_is_punctuation` makes separate words."""
    marks = np.flatnonzero(categories().astype("S1") == b"P").tolist()
    symbols = (c for a, b in ASCII_PUNCTUATION for c in range(a, b + 1))
    return frozenset((*marks, *symbols))


@functools.cache
def ideographs() -> frozenset[int]:
    """The code points that `_is_chinese_char` makes separate words."""
    return frozenset(c for a, b in IDEOGRAPHS for c in range(a, b + 1))


@functools.cache
def spaces() -> frozenset[int]:
    """The code points that separate words."""
    return frozenset(c for c in range(CODE_POINTS) if chr(c).isspace())


@functools.cache
def accents() -> frozenset[int]:
    """The code points that `_run_strip_accents` removes."""
    return frozenset(np.flatnonzero(_of_categories(b"Mn")).tolist())


@functools.cache
def unassigned() -> np.ndarray:
    """The code points unknown to Python's tables and to the rules, bool."""
    flags = _of_categories(b"Cn")
    for first, last in IDEOGRAPHS:
        flags[first : last + 1] = False
    flags.setflags(write=False)
    return flags


class Replacements(NamedTuple):
    """The effect of lower-casing and stripping accents on code points.

    Attributes:
      mapping: the replacement of each code point that changes.
      reordered: code points whose replacement is subject to canonical ordering:
        marks of a combining class above 0 that are not accents (not Mn).
    """

    mapping: dict[int, str]
    reordered: frozenset[int]


@functools.cache
def replacements(lower_case: bool, strip_accents: bool) -> Replacements:
    """Tabulates `token.lower()` and then `_run_strip_accents`."""
    mapping, reordered = {}, set()
    chars = list(
        map(chr, sorted(assigned()) if lower_case or strip_accents else ())
    )
    changes = itertools.compress(
        chars,
        map(
            any,
            zip(
                map(operator.ne, map(str.lower, chars), chars),
                map(unicodedata.decomposition, chars),
                map(unicodedata.combining, chars),
                strict=True,
            ),
        ),
    )
    # Accents without a class, and Hangul syllables, which are decomposed by a
    # formula, are not among the changes.
    marks = map(chr, accents())
    for char in sorted({*changes, *marks, *map(chr, HANGUL_SYLLABLES)}):
        code = ord(char)
        result = char.lower() if lower_case else char
        if strip_accents:
            parts = unicodedata.normalize("NFD", result)
            result = "".join(p for p in parts if ord(p) not in accents())
            if any(map(unicodedata.combining, result)):
                reordered.add(code)
        if result != char:
            mapping[code] = result
    return Replacements(mapping, frozenset(reordered))


@functools.cache
def assigned() -> frozenset[int]:
    """The code points that are assigned in Python's tables."""
    known = ~_of_categories(b"Cn", b"Co", b"Cs")
    return frozenset(np.flatnonzero(known).tolist())


@functools.cache
def case_classes() -> tuple[frozenset[int], frozenset[int]]:
    """The classes of code points in the rule of the final sigma.

    Python does not publish the two properties, but `str.lower` reveals them: a
    capital sigma becomes final after a cased letter (and ignorable ones)
    unless a cased letter follows.

    Returns:
      The cased code points, which make a following capital sigma final, and
      the case-ignorable ones, which the rule skips.
    """
    sigmas = {CAPITAL_SIGMA, FINAL_SIGMA, SMALL_SIGMA}
    codes = np.array([c for c in sorted(assigned()) if c not in sigmas])

    def final(before: str, behind: str) -> np.ndarray:
        """Whether a sigma next to each of the code points is final."""
        chars = f"{behind} {before}".join(map(chr, codes.tolist()))
        text = f"{before}{chars}{behind}".lower().encode("utf-32-le")
        lowered = np.frombuffer(text, "<u4")
        is_final = lowered == FINAL_SIGMA
        return is_final[is_final | (lowered == SMALL_SIGMA)]

    cased = sigmas.union(codes[~final("AΣ", "")].tolist())
    ignorable = set(codes[final("A", "Σ")].tolist()) - cased
    return frozenset(cased), frozenset(ignorable)


class SigmaClasses(NamedTuple):
    """Classes of code points in the rule of the final sigma.

    Attributes:
      sigmas: capital sigmas.
      ends: the code points that end in a cased letter, which makes a following
        sigma final.
      begins: those that begin with one, before which no sigma is final.
      skipped: the code points that the rule skips.
    """

    sigmas: set[int]
    ends: set[int]
    begins: set[int]
    skipped: set[int]


def sigma_classes(forms: Mapping[int, str]) -> SigmaClasses:
    """The classes, if `forms` replaces code points before lower-casing."""
    cased, ignorable = case_classes()
    ends, begins = set(cased - forms.keys()), set(cased - forms.keys())
    found = SigmaClasses(
        {CAPITAL_SIGMA}, ends, begins, set(ignorable - forms.keys())
    )
    for code, form in forms.items():
        letters = [ord(char) for char in form if ord(char) not in ignorable]
        if not letters:
            found.skipped.add(code)
            continue
        if letters == [CAPITAL_SIGMA]:
            found.sigmas.add(code)
        if letters[-1] in cased:
            ends.add(code)
        if letters[0] in cased:
            begins.add(code)
    return found


def ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges of these code points, as first and last."""
    runs: list[list[int]] = []
    for code in sorted(codes):
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return [(first, last) for first, last in runs]


def character_class(runs: Iterable[tuple[int, int]]) -> str:
    """A character class of ranges, first and last, in RE2's syntax."""
    inside = "".join(rf"\x{{{a:X}}}-\x{{{b:X}}}" for a, b in runs)
    return f"[{inside}]"


def other_ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges of all code points except these and the surrogates."""
    bounds = sorted({*codes, *SURROGATES, CODE_POINTS})
    firsts = [0, *(code + 1 for code in bounds)]
    gaps = zip(firsts, bounds, strict=False)
    return [(first, bound - 1) for first, bound in gaps if first < bound]


@functools.cache
def stand_alone(tokenize_chinese_chars: bool = True) -> frozenset[int]:
    """The code points that always are separate words."""
    return punctuation() | (
        ideographs() if tokenize_chinese_chars else frozenset()
    )


@functools.cache
def word_pattern(tokenize_chinese_chars: bool = True) -> re.Pattern[str]:
    """A pattern of the words of normalized text, the input of WordPiece."""
    isolated = "".join(
        rf"\U{first:08X}-\U{last:08X}"
        for first, last in ranges(stand_alone(tokenize_chinese_chars))
    )
    return re.compile(rf"[{isolated}]|[^\s{isolated}]+")


def ideographs_as_letters(known: Set[int], unknown: str) -> dict[int, str]:
    """Replacements of ideographs that TF Text treats as letters.

    It always makes separate words of ideographs. So those of the vocabulary
    become private-use code points that are not in the vocabulary. Such code
    points in a text, and ideographs that are not in the vocabulary, make their
    word unknown.
    """
    letters = dict.fromkeys(ideographs(), unknown)
    private_use = itertools.chain(*PRIVATE_USE)
    free = (code for code in private_use if code not in known)
    for code, private in zip(sorted(ideographs() & known), free, strict=False):
        letters[code] = chr(private)
        letters[private] = unknown
    return letters
