"""Estimates the tokens of texts from their characters."""

from collections.abc import Iterable

import numpy as np

# In English text.
_CHARACTERS_A_TOKEN = 4
# [CLS] and two [SEP].
SPECIAL_TOKENS = 3


def estimated_tokens(texts: Iterable[str]) -> np.ndarray:
    """The estimated number of tokens of each text, int64 [N]."""
    lengths = np.fromiter(map(len, texts), np.int64)
    return -(-lengths // _CHARACTERS_A_TOKEN)


def tokens_of_rows(texts: Iterable[str], longest: int) -> float:
    """The tokens of rows of these texts, which are cut at `longest` tokens."""
    lengths = estimated_tokens(texts) + SPECIAL_TOKENS
    return float(np.minimum(lengths, longest).sum())
