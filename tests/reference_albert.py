"""google-research/albert's preprocessing, written from its rules."""

import unicodedata
from typing import Any


def encode_pieces(library: Any, text: str) -> list[str]:
    """The pieces of tokenization.py's `encode_pieces`, lower-cased.

    Args:
      library: a SentencePieceProcessor.
      text: the text before `preprocess_text`.
    """
    text = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
    text = "".join(c for c in text if not unicodedata.combining(c)).lower()
    found = []
    for piece in library.encode(text, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            bare = library.encode(
                piece[:-1].replace("\u2581", ""), out_type=str
            )
            if piece[0] != "\u2581" and bare[0][0] == "\u2581":
                if len(bare[0]) == 1:
                    bare = bare[1:]
                else:
                    bare[0] = bare[0][1:]
            found.extend([*bare, ","])
        else:
            found.append(piece)
    return found
