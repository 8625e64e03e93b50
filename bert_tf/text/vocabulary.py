"""A WordPiece vocabulary: the tokens of a vocab.txt."""

import codecs
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.files import write_text
from bert_tf.foreign_files import read_bytes
from bert_tf.progress import log_once
from bert_tf.text.token_table import (
    SPECIAL_TOKENS,
    Packing,
    SpecialTokens,
    TokenTable,
)

VOCABULARY_FILE = "vocab.txt"
CONTINUATION = "##"
# tokenization.py `WordpieceTokenizer`: longer words become [UNK].
MAX_WORD_CHARACTERS = 200


def _check(
    entries: Sequence[str], special: SpecialTokens, source: str, row: str
) -> None:
    """Refuses invalid entries; `row` is the name of an entry in errors."""
    for number, entry in enumerate(entries, start=_first_number(row)):
        if not isinstance(entry, str):
            raise UserError(
                f"{source}, {row} {number}: {excerpt(entry)} is no string."
            )
        if "\n" in entry:
            raise UserError(
                f"{source}, {row} {number}: {excerpt(entry)} holds a line "
                f"feed, which {VOCABULARY_FILE} cannot represent."
            )
    tokens = {entry.strip() for entry in entries}
    missing = [token for token in special.present if token not in tokens]
    if missing:
        raise UserError(
            f"{source}: lacks {' '.join(missing)[:100]} of the special tokens "
            f"{' '.join(special.present)[:100]}; a tokenizer_config.json next "
            "to a vocab.txt can name others."
        )


def _first_number(row: str) -> int:
    return 1 if row == "line" else 0


def read_entries(path: str | os.PathLike) -> list[str]:
    """Reads the lines of a vocab.txt in UTF-8.

    As in Google's `load_vocab`, entries are not normalized, may be blank, and
    end only at a line feed: released vocabularies contain U+2028.

    Raises:
      UserError: the file is missing, empty or not UTF-8.
    """
    path = pathlib.Path(path)
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such vocabulary file.") from None
    except IsADirectoryError:
        raise UserError(
            f"{path}: is a directory; pass its vocabulary file, for "
            f"example {path / VOCABULARY_FILE}"
        ) from None
    if data.startswith(codecs.BOM_UTF8):
        raise UserError(
            f"{path}: begins with a byte order mark, which would be part "
            "of the first token; save it as UTF-8 without one."
        )
    if not data.strip():
        raise UserError(f"{path}: the vocabulary file is empty.")
    entries = []
    for number, row in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        try:
            entries.append(row.decode("utf-8"))
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number}: is not UTF-8.") from None
    return entries


class Vocabulary(TokenTable):
    """The tokens of a WordPiece vocabulary; a token's index is its id.

    An entry of a vocab.txt, stripped of white space, is a token, as in Google's
    `load_vocab`. The id of a repeated token is its last index; blank tokens
    match no text.
    """

    title: ClassVar[str] = "WordPiece"
    aligns_texts: ClassVar[bool] = True

    def __init__(
        self,
        tokens: Sequence[str],
        source: str = "vocabulary",
        row: str = "entry",
        special: SpecialTokens = SPECIAL_TOKENS,
        notify: bool = True,
    ):
        """Checks the tokens.

        Args:
          tokens: the V tokens in the order of their ids, as in a vocab.txt.
          source: the vocabulary's name in errors.
          row: the name of an entry in errors; a "line" counts from 1.
          special: the special tokens.
          notify: whether repeated tokens are logged.

        Raises:
          UserError: a token is no string or contains a line feed, or a special
            token is missing.
        """
        if isinstance(tokens, str):
            raise UserError(
                f"{source}: pass a list of tokens, not the string "
                f"{tokens[:40]!r}."
            )
        self.special = special
        _check(tokens, special, source, row)
        self._entries = tuple(tokens)
        self._tokens = tuple(token.strip() for token in tokens)
        if notify:
            self._log_repeated(source, row)

    def _log_repeated(self, source: str, row: str) -> None:
        """Logs the first repeated token, if any."""
        repeated = [
            (number, token)
            for number, token in enumerate(self._tokens)
            if token and self.ids[token] != number
        ]
        if repeated:
            first, token = repeated[0]
            start = _first_number(row)
            more = f", and {len(repeated) - 1} more" * (len(repeated) > 1)
            log_once(
                f"{source}: {excerpt(token)} is on {row} {first + start} and "
                f"again on {row} {self.ids[token] + start}{more}; the last one "
                "counts, as in Google's code"
            )

    @classmethod
    def from_file(
        cls, path: str | os.PathLike, special: SpecialTokens = SPECIAL_TOKENS
    ) -> "Vocabulary":
        """Reads a vocab.txt.

        Raises:
          UserError: see `read_entries`, or a special token is missing; the
            message names the file.
        """
        return cls(read_entries(path), str(path), "line", special)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes a vocab.txt with the entries as read, atomically."""
        write_text(path, "\n".join(self._entries) + "\n")

    def without_blank_end(self, rows: int) -> "Vocabulary":
        """Removes blank entries after the first `rows`.

        A model has no rows for blank lines at the end of a file.
        """
        if any(self._tokens[rows:]):
            return self
        entries = self._entries[:rows]
        return type(self)(entries, special=self.special, notify=False)

    def __setattr__(self, name: str, value: object) -> None:
        if "_tokens" in self.__dict__:
            raise AttributeError(
                f"a Vocabulary is frozen: {name} cannot be set"
            )
        super().__setattr__(name, value)

    @property
    def entries(self) -> tuple[str, ...]:
        """The V entries of the vocab.txt, in the order of their ids."""
        return self._entries

    @property
    def tokens(self) -> tuple[str, ...]:
        """The V tokens in the order of their ids."""
        return self._tokens

    @functools.cached_property
    def packing(self) -> Packing:
        """The rows of a BERT, without special tokens that do not exist."""
        begin, end = (
            () if number < 0 else (number,)
            for number in (self.cls_id, self.sep_id)
        )
        return Packing(begin, end, end, 1, max(self.pad_id, 0))

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Which tokens continue a word ("##ing"); bool [V], read-only."""
        flags = np.array([t.startswith(CONTINUATION) for t in self._tokens])
        flags.setflags(write=False)
        return flags

    @functools.cached_property
    def starts_word(self) -> np.ndarray:
        """All tokens but continuations; bool [V]."""
        return ~self.is_continuation

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """The tokens without their "##"."""
        return tuple(t.removeprefix(CONTINUATION) for t in self._tokens)

    @functools.cached_property
    def in_words(self) -> np.ndarray:
        """Which tokens can be pieces of words; bool [V], read-only.

        Words contain neither white space nor NUL, and of a repeated token the
        last one counts.
        """
        flags = np.array(
            [
                token.split() == [token]
                and "\0" not in token
                and self.ids[token] == number
                for number, token in enumerate(self._tokens)
            ]
        )
        flags.setflags(write=False)
        return flags

    def looks_cased(self) -> bool:
        """Whether lower-casing changes a token that is not in brackets.

        Capitals without a lower case (U+211D, in Google's uncased vocabulary)
        do not count.
        """
        return any(
            token != token.lower()
            for token in self._tokens
            if token not in self.special
            and not (token.startswith("[") and token.endswith("]"))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Some cached values cannot be pickled.
        arguments = "vocabulary", "entry", self.special, False
        return type(self), (self._entries, *arguments)
