"""A small corpus and vocabulary that tests of records are run on."""

import hashlib
import pathlib
import random

from bert_tf.text.vocabulary import Vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
TOKENS = [*SPECIALS, *LETTERS, *WORDS, *("##" + x for x in LETTERS), "."]
VOCABULARY = Vocabulary(TOKENS)


def write_vocabulary(folder: pathlib.Path) -> pathlib.Path:
    """Writes the vocabulary into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    VOCABULARY.save(folder / "vocab.txt")
    return folder / "vocab.txt"


def sentence(rng: random.Random) -> str:
    """A sentence of known words, some of them with an ending."""
    words = [
        rng.choice(WORDS) + rng.choice(["", "", "s", "xy"])
        for _ in range(rng.randint(1, 12))
    ]
    return " ".join(words) + " ."


def text(documents: int, seed: int = 1) -> str:
    """Documents of 1 to 20 sentences, blank lines between them."""
    rng = random.Random(seed)
    return "\n\n".join(
        "\n".join(sentence(rng) for _ in range(rng.randint(1, 20)))
        for _ in range(documents)
    )


def documents(count: int, seed: int = 1) -> list[list[list[int]]]:
    """The same kind of corpus as token ids, without a tokenizer."""
    rng = random.Random(seed)
    low, high = len(SPECIALS), len(TOKENS) - 1
    return [
        [
            [rng.randint(low, high) for _ in range(rng.randint(1, 30))]
            for _ in range(rng.randint(1, 20))
        ]
        for _ in range(count)
    ]


def digests(folder: pathlib.Path) -> dict[str, str]:
    """A fingerprint of each file of a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }
