"""BERT's tokenization in plain Python, the reference for `bert_tf.text`.

Written from the published rules (google-research/bert, tokenization.py) with
nothing but `unicodedata`; slow and plain on purpose. A text is a list of
(character, index in the original text), so that offsets come along.
"""

import json
import pathlib
import sys
import unicodedata
from typing import NamedTuple

IDEOGRAPH_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
ASCII_SYMBOLS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


class Token(NamedTuple):
    """A piece and the characters of the original text that it spans."""

    text: str
    start: int
    end: int


Characters = list[tuple[str, int]]


def clean(text: str) -> Characters:
    """Drops control characters and makes every blank a space."""
    kept = []
    for index, char in enumerate(text):
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            kept.append((" ", index))
        elif char not in "\x00\ufffd" and unicodedata.category(char) not in (
            "Cc",
            "Cf",
        ):
            kept.append((char, index))
    return kept


def lowered(characters: Characters) -> Characters:
    """Lower case."""
    whole = "".join(char for char, _ in characters).lower()
    found, place = [], 0
    for char, index in characters:
        for _ in char.lower():
            found.append((whole[place], index))
            place += 1
    return found


def without_accents(characters: Characters) -> Characters:
    """Canonical decomposition, no Mn."""
    whole = "".join(char for char, _ in characters)
    decomposed = [
        (part, index)
        for char, index in characters
        for part in unicodedata.normalize("NFD", char)
    ]
    ordered = unicodedata.normalize("NFD", whole)
    assert sorted(ordered) == sorted(part for part, _ in decomposed)
    # A mark that moves leaves its origin behind.
    origins = [i for part, i in decomposed if not is_accent(part)]
    kept = [part for part in ordered if not is_accent(part)]
    return list(zip(kept, origins, strict=True))


def is_accent(char: str) -> bool:
    """Whether a character is dropped from decomposed text."""
    return unicodedata.category(char) == "Mn"


def stands_alone(char: str, tokenize_chinese_chars: bool = True) -> bool:
    """Whether a character is a word of its own."""
    return (
        char in ASCII_SYMBOLS
        or unicodedata.category(char).startswith("P")
        or tokenize_chinese_chars
        and any(first <= ord(char) <= last for first, last in IDEOGRAPH_BLOCKS)
    )


def normalized(
    text: str, lower_case: bool, strip_accents: bool | None = None
) -> Characters:
    """Cleaned text, in lower case and without accents if asked."""
    characters = clean(text)
    if lower_case:
        characters = lowered(characters)
    if lower_case if strip_accents is None else strip_accents:
        characters = without_accents(characters)
    return characters


def words(
    characters: Characters, tokenize_chinese_chars: bool = True
) -> list[list[int]]:
    """The words, as lists of places in `characters`."""
    found: list[list[int]] = [[]]
    for place, (char, _) in enumerate(characters):
        if char.isspace():
            found.append([])
        elif stands_alone(char, tokenize_chinese_chars):
            found += [[place], []]
        else:
            found[-1].append(place)
    return [word for word in found if word]


def pieces(word: str, vocabulary: set[str]) -> list[str]:
    """Greedy longest-match-first WordPiece."""
    if len(word) > 200:
        return ["[UNK]"]
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                found.append(piece)
                start = end
                break
        else:
            return ["[UNK]"]
    return found


def tokenize(
    text: str,
    vocabulary: set[str],
    lower_case: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> list[Token]:
    """All tokens of a text."""
    characters = normalized(text, lower_case, strip_accents)
    sources = [index for _, index in characters] + [len(text)]
    tokens = []
    for word in words(characters, tokenize_chinese_chars):
        spelled = "".join(characters[place][0] for place in word)
        first = word[0]
        for piece in pieces(spelled, vocabulary):
            length = len(piece.removeprefix("##"))
            if piece == "[UNK]":
                length = len(word)
            last = first + length - 1
            end = max(sources[last + 1], sources[last] + 1)
            tokens.append(Token(piece, sources[first], end))
            first = last + 1
    return tokens


GOLDEN_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Don't stop (or do) -- it's 3.14 % of e-mail@example.org, isn't it?",
    "a_b|c~d^e`f\\g<h>i=j+k$l#m*n{o}p[q]",
    "Crème brûlée, naïve façade, Ångström, ŁÓDŹ, İstanbul'da ılık",
    "Cafe\u0301 cafe\u0301\u0323 e\u0327\u0301 \u01d5 \u1e69",
    "Straße GROẞE ﬁnal ﬂow ½ ² ① Ｈｅｌｌｏ …",
    "Это предложение. Ёж и Йод: ВСЁ!",
    "Ο Σίσυφος ΣΊΣΥΦΟΣ. ΌΣΟΣ; ΑΣ\u0301 ΑΣʼ ΑΣ'Α Σ ΣΣ",
    "هذا نص عربيٌّ قصير؟ أهلاً",
    "זה משפט קצר, שָׁלוֹם.",
    "यह एक वाक्य है। क़िला कि",
    "ภาษาไทยไม่มีช่องว่าง",
    "日本語のテキスト、「引用」です。ガ か\u3099",
    "中文没有空格，但有标点。㐀𠀀豈",
    "한국어 문장입니다. 가 각",
    "Tiếng Việt có nhiều dấu",
    "tab\tnewline\ncarriage\r\nreturn nbsp\u00a0em\u2003ideographic\u3000end",
    "line\u2028separator\u2029paragraph \u1680ogham",
    "bell\x07 null\x00 del\x7f c1\x85next \ufeffbom zero\u200bwidth",
    "soft\u00adhyphen",
    "joiner\u200d\u200c rtl\u200f \ufffdreplacement\ufffd tag\U000e0041",
    "[CLS] is text [MASK] ##not a piece [UNK]",
    "emoji 😀👍🏽 👩\u200d💻 flags 🇫🇷",
    "\u302e\U00016ff0 \U00016ff0\u302e a\u302f\u302e \U0001d15f\ua9c0",
    "private\ue000 non\ufdd0character \U0010ffff",
    "“quotes” ‘single’ «guillemets» – — ― ¿qué? ¡sí! § ¶ ° ©",
    "a" * 200,
    "a" * 201,
    "é" * 200 + " " + "é" * 201,
    "ж" * 150 + "中" + "ж" * 201 + "!",
    "",
    " \t ",
)


def golden_vocabulary() -> list[str]:
    """Every character of the texts, both forms, and pairs that occur twice."""
    counts: dict[str, int] = {}
    for text in GOLDEN_TEXTS:
        for lower_case in (True, False):
            characters = normalized(text, lower_case)
            for word in words(characters):
                spelled = "".join(characters[place][0] for place in word)
                for size in (1, 2, 3):
                    for start in range(len(spelled) - size + 1):
                        piece = spelled[start : start + size]
                        piece = f"##{piece}" if start else piece
                        counts[piece] = counts.get(piece, 0) + 1
    # One character in nine is left out, so that some words are [UNK].
    pieces = sorted(
        piece
        for piece, count in counts.items()
        if (len(piece.removeprefix("##")) == 1 or count > 2)
        and ord(piece[-1]) % 9
    )
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]


def write_golden(folder: pathlib.Path) -> None:
    """Writes vocab.txt and the tokens of every text, cased and uncased."""
    vocabulary = golden_vocabulary()
    folder.joinpath("vocab.txt").write_text(
        "\n".join(vocabulary) + "\n", encoding="utf-8"
    )
    for name, lower_case in (("uncased", True), ("cased", False)):
        rows = []
        for text in GOLDEN_TEXTS:
            tokens = tokenize(text, set(vocabulary), lower_case)
            row = {
                "text": text,
                "tokens": [token.text for token in tokens],
                "starts": [token.start for token in tokens],
                "ends": [token.end for token in tokens],
            }
            rows.append(json.dumps(row) + "\n")
        folder.joinpath(f"{name}.jsonl").write_text("".join(rows))


if __name__ == "__main__":
    write_golden(pathlib.Path(sys.argv[1]))
