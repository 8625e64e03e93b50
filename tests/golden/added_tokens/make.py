"""Records where transformers' BertTokenizer finds added tokens.

Usage: .venv-peers/bin/python tests/golden/added_tokens/make.py
"""

import json
import pathlib
import random
import shutil
import string

from transformers import AddedToken, AutoTokenizer, BertTokenizer

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = [*string.ascii_letters, *string.digits, *"éüßÉÜ[]<>/-.,!#中国人"]
TOKENS = [
    *SPECIAL,
    *CHARACTERS,
    *(f"##{c}" for c in CHARACTERS if c.isalnum() and c not in "中国人"),
    *("the", "##ing", "new", "##es", "word"),
]
PLAIN = ["newword", "two words", "Ünï", "newer", "new york", "中国", "e-mail"]
FLAGGED = [
    AddedToken("cat", single_word=True),
    AddedToken("COVID-19", single_word=True),
    AddedToken("Straße", normalized=False),
    AddedToken("ABC", normalized=False, single_word=True),
    AddedToken("<l>", lstrip=True, normalized=False),
    AddedToken("<r>", rstrip=True, normalized=False),
    AddedToken("<b>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("<low>", lstrip=True, single_word=True),
    AddedToken("lr", lstrip=True, rstrip=True),
]
MARKS = ["[E1]", "[/E1]"]
SENTENCES = (
    "a newword, newwords; a NEWWORD anewword",
    "two words Two\tWords two  words twowords (two words)",
    "ünï Ünï UNI uni u\u0308nï",
    "cat cats concat cat. _cat cat_ cat5 écat cat-cat catcat cat cat",
    "covid-19 COVID-19 COVID-199 xCOVID-19 covid 19",
    "Straße straße STRASSE Straßen ABC abc ABCD xABC ABC!",
    "a <l> b<l>c  <l>  d",
    "a <r> b<r>c  <r>  d",
    "a <b> b<b>c  <b>  d <l> <r> <b><b>  <r>  <l> e",
    "a <low> b <LOW>c x<low> y \u3000<low>",
    "a lr b lrlr  lr  lr Lr hlrh",
    "[E1] new york [/E1] and [e1]New York[/E1]x[E1]",
    "中国人 中 国 a中国b 中国中国",
    "newer newest new newnewer e-mail e - mail E-Mails",
    "[CLS] newword [SEP] [MASK]ing [MASK] <l>[MASK] [PAD][UNK]",
    "café newword\u0301 newword\u200b cat\u200d cat\u0301 \u0301cat",
    "\u00a0<r>\u00a0\u2003x <l>\u3000<r>\ty\n<b>\n",
    "\x01newword\x00two words\ufffdcat",
    "x" * 120 + "newword" + "y" * 90 + " cat",
    "",
    " \t ",
    "newword",
    "<l>",
)


def texts() -> list[str]:
    """The sentences, and random mixtures of tokens, words and blanks."""
    draw = random.Random(23)
    tokens = [*PLAIN, *MARKS, *SPECIAL[2:], *(t.content for t in FLAGGED)]
    tokens += [t.upper() for t in tokens] + [t.lower() for t in tokens]
    others = [
        " ",
        " ",
        "  ",
        "\t",
        "\u00a0",
        "a",
        "s",
        "-",
        ".",
        "é",
        "中",
        "_",
    ]
    mixtures = []
    for _ in range(180):
        parts = [
            draw.choice(draw.choice((tokens, others)))
            for _ in range(draw.randint(2, 12))
        ]
        mixtures.append("".join(parts))
    return [*SENTENCES, *mixtures]


def main() -> None:
    """Writes two folders, and the ids and offsets of every text by each."""
    for name, lower_case in (("uncased", True), ("cased", False)):
        ids = {token: number for number, token in enumerate(TOKENS)}
        tokenizer = BertTokenizer(vocab=ids, do_lower_case=lower_case)
        tokenizer.add_tokens(PLAIN)
        tokenizer.add_tokens(FLAGGED)
        tokenizer.add_special_tokens({"extra_special_tokens": MARKS})
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer.save_pretrained(folder)
        again = AutoTokenizer.from_pretrained(folder).backend_tokenizer
        lines = []
        for text in texts():
            found = again.encode(text, add_special_tokens=False)
            row = {"text": text, "ids": found.ids, "offsets": found.offsets}
            lines.append(json.dumps(row, separators=(",", ":")) + "\n")
        (folder / "ids.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
