"""A corpus of any size, by repeating a small one with changes."""

import pathlib
import random
from collections.abc import Sequence

_CHANGED_WORDS = 0.03


def write_text_of_size(
    sources: Sequence[pathlib.Path], path: pathlib.Path, size: int, seed: int
) -> None:
    """Writes at least `size` bytes of documents.

    The documents of the sources come in an order of chance, again and again;
    each time some words give way to others, or to numbers, so that neither
    documents nor words repeat themselves.
    """
    rng = random.Random(seed)
    text = "\n\n".join(source.read_text(encoding="utf-8") for source in sources)
    documents = [part for part in text.split("\n\n") if part.strip()]
    words = text.split()
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < size:
            document = rng.choice(documents)
            lines = []
            for line in document.split("\n"):
                parts = line.split(" ")
                for _ in range(1 + int(len(parts) * _CHANGED_WORDS)):
                    place = rng.randrange(len(parts))
                    parts[place] = (
                        rng.choice(words)
                        if rng.random() < 0.8
                        else f"{rng.choice(words)}{rng.randrange(10_000)}"
                    )
                lines.append(" ".join(parts))
            file.write("\n".join(lines) + "\n\n")
