"""A WordPiece vocabulary: its tokens, and how special ones frame a row."""

import codecs
import dataclasses
import functools
import hashlib
import os
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.foreign_files import read_bytes

VOCABULARY_FILE = "vocab.txt"
CONTINUATION = "##"
# tokenization.py `WordpieceTokenizer`: longer words become [UNK].
MAX_WORD_CHARACTERS = 200


class SpecialTokens(NamedTuple):
    """The tokens of special meaning, by default those of a BERT.

    Attributes:
      pad: fills rows up.
      unk: stands for a word that no tokens spell.
      cls: begins a row; its vector stands for the whole.
      sep: ends each text of a row.
      mask: hides a token that a masked LM predicts.
    """

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"

    def to_dict(self) -> dict[str, str]:
        """The tokens by the keys of Hugging Face's tokenizer_config.json."""
        return {
            f"{name}_token": token for name, token in self._asdict().items()
        }


SPECIAL_TOKENS = SpecialTokens()


@dataclasses.dataclass(frozen=True)
class Packing:
    """How special tokens frame the texts A and B of a row.

    A BERT's rows are [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with B and its
    [SEP] in segment 1. RoBERTa's, <s> A </s> and <s> A </s></s> B </s>, have
    two tokens in the middle and one segment.

    Attributes:
      begin: the ids before A.
      middle: those between A and B.
      end: those behind the last text.
      second_segment: the segment of B and what ends it; the rest is in 0.
      pad_id: fills rows up.
    """

    begin: tuple[int, ...]
    middle: tuple[int, ...]
    end: tuple[int, ...]
    second_segment: int
    pad_id: int

    def num_special(self, texts: int) -> int:
        """Special tokens in a row of one text or two."""
        middle = len(self.middle) if texts == 2 else 0
        return len(self.begin) + middle + len(self.end)

    def before_second(self, first: Any) -> Any:
        """Tokens before B where A has `first`; a number, array or tensor."""
        return first + len(self.begin) + len(self.middle)


def _check(
    tokens: tuple[str, ...], special: SpecialTokens, source: str, row: str
) -> None:
    """Refuses what no tokenizer can work with; `row` names a token's place."""
    first = 1 if row == "line" else 0
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens, start=first):
        if not isinstance(token, str):
            raise UserError(
                f"{source}, {row} {number}: {token!r} is no string."
            )
        if not token:
            raise UserError(
                f"{source}, {row} {number}: is blank; every {row} holds one "
                "token."
            )
        if token in seen:
            raise UserError(
                f"{source}: {token!r} is on {row} {seen[token]} and again on "
                f"{row} {number}; every token may occur once."
            )
        seen[token] = number
    missing = [token for token in special if token not in seen]
    if missing:
        raise UserError(
            f"{source}: lacks {' '.join(missing)} of the special tokens "
            f"{' '.join(special)}; a tokenizer_config.json beside a vocab.txt "
            "may name others."
        )


def read_tokens(path: str | os.PathLike) -> list[str]:
    """Reads a vocab.txt: one token a line, UTF-8.

    Lines end at a line feed alone and lose white space at their ends, as in
    Google's `load_vocab`. Nothing else is changed: released vocabularies hold
    entries that are not in a Unicode normal form.

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
            f"{path}: is a directory; give its vocabulary file, for "
            f"example {path / VOCABULARY_FILE}"
        ) from None
    if data.startswith(codecs.BOM_UTF8):
        raise UserError(
            f"{path}: begins with a byte order mark, which would be part "
            "of the first token; save it as UTF-8 without one."
        )
    if not data.strip():
        raise UserError(f"{path}: the vocabulary file is empty.")
    rows = data.rstrip().split(b"\n")
    tokens = []
    for number, row in enumerate(rows, start=1):
        try:
            tokens.append(row.decode("utf-8").strip())
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number}: is not UTF-8.") from None
    return tokens


class Vocabulary:
    """The tokens of a WordPiece vocabulary; a token's place is its id."""

    def __init__(
        self,
        tokens: Sequence[str],
        source: str = "vocabulary",
        row: str = "entry",
        special: SpecialTokens = SPECIAL_TOKENS,
    ):
        """Checks and keeps the tokens.

        Args:
          tokens: the V tokens in the order of their ids.
          source: what error messages call the vocabulary.
          row: what they call a token's place; a "line" counts from 1.
          special: what the special tokens are called.

        Raises:
          UserError: a blank token, a token that occurs twice, or a missing
            special token.
        """
        if isinstance(tokens, str):
            raise UserError(
                f"{source}: give a list of tokens, not the string "
                f"{tokens[:40]!r}."
            )
        self.special = special
        self._tokens = tuple(tokens)
        _check(self._tokens, special, source, row)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike, special: SpecialTokens = SPECIAL_TOKENS
    ) -> "Vocabulary":
        """Reads a vocab.txt.

        Raises:
          UserError: see `read_tokens`, or what it holds is no vocabulary; the
            message names the file and the line.
        """
        return cls(read_tokens(path), str(path), "line", special)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes a vocab.txt, whole or not at all."""
        write_text(path, "\n".join(self._tokens) + "\n")

    def __setattr__(self, name: str, value: object) -> None:
        if "_tokens" in self.__dict__:
            raise AttributeError(
                f"a Vocabulary is frozen: {name} stays as it is"
            )
        super().__setattr__(name, value)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The V tokens in the order of their ids."""
        return self._tokens

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each token."""
        return types.MappingProxyType(
            {token: number for number, token in enumerate(self._tokens)}
        )

    @property
    def pad_id(self) -> int:
        """The id of [PAD], which pads rows."""
        return self.ids[self.special.pad]

    @property
    def unk_id(self) -> int:
        """The id of [UNK]."""
        return self.ids[self.special.unk]

    @property
    def cls_id(self) -> int:
        """The id of [CLS]."""
        return self.ids[self.special.cls]

    @property
    def sep_id(self) -> int:
        """The id of [SEP]."""
        return self.ids[self.special.sep]

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self.ids[self.special.mask]

    @functools.cached_property
    def packing(self) -> Packing:
        """How a BERT's rows are laid out."""
        end = (self.sep_id,)
        return Packing((self.cls_id,), end, end, 1, self.pad_id)

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Which tokens continue a word ("##ing"); bool [V], read-only."""
        flags = np.array([t.startswith(CONTINUATION) for t in self._tokens])
        flags.setflags(write=False)
        return flags

    def digest(self) -> str:
        """The SHA-256 of the tokens joined by line feeds, in hexadecimal.

        Where the special tokens are not a BERT's, they follow.
        """
        tokens = self._tokens
        if self.special != SPECIAL_TOKENS:
            tokens += self.special
        return hashlib.sha256("\n".join(tokens).encode()).hexdigest()

    def looks_cased(self) -> bool:
        """Whether a token would change in lower case, [CLS] and such apart.

        A capital without a small form (U+211D, in Google's uncased
        vocabulary) does not count.
        """
        return any(
            token != token.lower()
            for token in self._tokens
            if token not in self.special
            and not (token.startswith("[") and token.endswith("]"))
        )

    def __len__(self) -> int:
        return len(self._tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        # What is cached cannot all be pickled.
        arguments = self._tokens, "vocabulary", "entry", self.special
        return type(self), arguments

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Vocabulary)
            and self._tokens == other._tokens
            and self.special == other.special
        )

    def __hash__(self) -> int:
        return hash((self._tokens, self.special))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, {self.digest()[:12]})"
