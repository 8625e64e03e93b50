"""Records the ids of transformers' BertTokenizers, slow and fast.

Usage: .venv-peers/bin/python tests/golden/tokenizer_settings/make.py
"""

import collections
import itertools
import json
import pathlib
import random
import sys

from transformers import BertTokenizer
from transformers.models.bert.tokenization_bert_legacy import (
    BertTokenizerLegacy,
)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

import reference_tokenization as reference  # noqa: E402

# do_lower_case, strip_accents, tokenize_chinese_chars.
SETTINGS = tuple(itertools.product((True, False), repeat=3))
SENTENCES = (
    "Die Größe der Brücke überrascht Ärzte und Öltanker; SCHÖNE GRÜẞE!",
    "Mädchen maedchen MÄDCHEN Madchen, Straße STRASSE",
    "İstanbul'da ILIK bir gün, çiçekler güzel. IŞIK ışık İĞNE",
    "Le garçon naïf a mangé une crème brûlée à Orléans; ÉTÉ, Noël, œuvre",
    "El niño pingüino pidió cigüeñas en Ávila: ¿Qué? ¡ÁÉÍÓÚ!",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. PŘÍLIŠ ŽLUŤOUČKÝ",
    "Tiếng Việt có nhiều dấu: Đặng Thị Hồng; ĐẶNG THỊ HỒNG",
    "Ἐν ἀρχῇ ἦν ὁ λόγος; ΛΌΓΟΣ ΟΔΥΣΣΕΎΣ Σ'ΑΓΑΠΏ, ΑΣ",
    "Ёлка и йод: ВСЁ ЙОД, объём",
    "東京都に住んでいる。私は日本語を話します、ガギグ。",
    "東京towerとOsaka城、ver2東京",
    "我爱北京天安门。中文ABC混合，没有空格",
    "한국어 문장과 漢字 섞기, 각각",
    "ﾊﾝｶｸ カタカナ ヴァイオリン ｶﾞ ブルー",
    "A\u0301 e\u0301 E\u0301 o\u0308 O\u0308 u\u0308U\u0308 n\u0303",
    "e\u0327\u0301 e\u0301\u0327 \u1e69 s\u0323\u0307 s\u0307\u0323",
    "豈 車 \uf900\uf902 \u2f81a 㐀 𠀀𠀁 x𠀀y",
    "שָׁלוֹם עֲלֵיכֶם, أهلاً وسَهلًا؟",
    "क़िला किला, हिन्दी में",
    "don't stop--now (É)té_É.É!É",
    "中! !中 中.é é中é Σ中 中Σ",
    "[CLS] é [MASK] 中 ##é [UNK]",
    "tab\té\nÉ\r\n中\u00a0é\u3000é",
    "ñ" * 60 + " " + "中" * 60 + " é中" * 10,
)
# Letters, marks and signs that the settings treat differently.
POOLS = (
    "aAbBeE",
    "éÉèÈñÑüÜçÇåÅøØßẞİıǅĳ",
    "\u0301\u0308\u0327\u0323\u0307\u0345",
    "中国東京豈車㐀",
    "かがカガプ\u3099ー",
    "각한글",
    "ΣσςΆάΐΑ",
    "Ёйж",
    " .,!'-—「」。 ",
)


def texts() -> list[str]:
    """The sentences, the texts of the default rules, and random mixtures."""
    draw = random.Random(17)
    mixtures = []
    for _ in range(220):
        pools = draw.sample(POOLS, draw.randint(2, 4))
        size = draw.randint(3, 16)
        mixtures.append(
            "".join(draw.choice(draw.choice(pools)) for _ in range(size))
        )
    return [*SENTENCES, *reference.GOLDEN_TEXTS, *mixtures]


def vocabulary(given: list[str]) -> list[str]:
    """The characters of the texts by all settings, and what occurs often."""
    counts: collections.Counter = collections.Counter()
    for text, settings in itertools.product(given, SETTINGS):
        characters = reference.normalized(text, *settings[:2])
        for word in reference.words(characters, settings[2]):
            spelled = "".join(characters[place][0] for place in word)
            for size in (1, 2, 3):
                for start in range(len(spelled) - size + 1):
                    piece = spelled[start : start + size]
                    counts[f"##{piece}" if start else piece] += 1
    # One character in eleven is left out, so that some words are [UNK].
    pieces = sorted(
        piece
        for piece, count in counts.items()
        if ord(piece[-1]) % 11
        and (len(piece.removeprefix("##")) == 1 or count > 19)
    )
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]


def main() -> None:
    """Writes vocab.txt and the ids of every text by every setting."""
    given = texts()
    tokens = vocabulary(given)
    path = HERE / "vocab.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    rows: list[dict] = [
        {"text": text, "fast": [], "slow": []} for text in given
    ]
    for lower_case, strip_accents, chinese in SETTINGS:
        settings = {
            "do_lower_case": lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": chinese,
        }
        fast = BertTokenizer(vocab=str(path), **settings)
        # Special tokens in text are text here.
        fast.backend_tokenizer.encode_special_tokens = True
        slow = BertTokenizerLegacy(str(path), **settings)
        ids = {token: number for number, token in enumerate(tokens)}
        for row in rows:
            encoding = fast.backend_tokenizer.encode(
                row["text"], add_special_tokens=False
            )
            row["fast"].append(encoding.ids)
            row["slow"].append(
                [ids[t] for t in slow._tokenize(row["text"], True)]
            )
    lines = []
    for row in rows:
        # By position in SETTINGS, where the slow one's are others.
        pairs = enumerate(zip(row["fast"], row["slow"], strict=True))
        row["slow"] = {
            str(i): slow for i, (fast, slow) in pairs if slow != fast
        }
        lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    (HERE / "ids.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
