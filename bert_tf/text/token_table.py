"""The tokens of any tokenizer, and how special tokens frame rows."""

import abc
import dataclasses
import functools
import hashlib
import math
import types
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bert_tf.errors import UserError


class SpecialTokens(NamedTuple):
    """The special tokens, by default those of a BERT; None if missing.

    Attributes:
      pad: pads rows.
      unk: replaces words without pieces.
      cls: begins a row and represents it.
      sep: ends each text of a row.
      mask: replaces tokens that a masked LM predicts.
    """

    pad: str | None = "[PAD]"
    unk: str | None = "[UNK]"
    cls: str | None = "[CLS]"
    sep: str | None = "[SEP]"
    mask: str | None = "[MASK]"

    def to_dict(self) -> dict[str, str | None]:
        """The tokens by the keys of Hugging Face's tokenizer_config.json."""
        return {
            f"{name}_token": token for name, token in self._asdict().items()
        }

    @property
    def present(self) -> tuple[str, ...]:
        """The special tokens that exist."""
        return tuple(token for token in self if token is not None)


SPECIAL_TOKENS = SpecialTokens()
# Of a WordPiece vocabulary whose texts have no special tokens around them.
UNFRAMED = SpecialTokens(pad=None, cls=None, sep=None, mask=None)


@dataclasses.dataclass(frozen=True)
class Packing:
    """How special tokens frame the texts A and B of a row.

    A BERT's rows are [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with B and its
    [SEP] in segment 1. RoBERTa's, <s> A </s> and <s> A </s></s> B </s>, have
    two tokens in the middle and one segment.

    Attributes:
      begin: the ids before A.
      middle: the ids between A and B.
      end: the ids after the last text.
      second_segment: the segment of B and its end; all else is in segment 0.
      pad_id: the padding id.
    """

    begin: tuple[int, ...]
    middle: tuple[int, ...]
    end: tuple[int, ...]
    second_segment: int
    pad_id: int

    def num_special(self, texts: int) -> int:
        """The number of special tokens in a row of one or two texts."""
        middle = len(self.middle) if texts == 2 else 0
        return len(self.begin) + middle + len(self.end)

    def of_one_text(self) -> Self:
        """The same for rows whose B is empty and has no tokens around it."""
        return dataclasses.replace(self, middle=(), second_segment=0)

    def before_second(self, first: Any) -> Any:
        """The number of tokens before B, given that of A (or arrays)."""
        return first + len(self.begin) + len(self.middle)


class TokenTable(abc.ABC):
    """The V tokens of a model in the order of their ids.

    Attributes:
      special: the special tokens, any of which may be missing.
    """

    special: SpecialTokens
    # The kind of tokenizer in text.
    title: ClassVar[str] = "custom"
    # Whether the answers of questions are cut out of their contexts by the
    # texts of tokens, as in google-research/bert, run_squad.py; else by their
    # offsets.
    aligns_texts: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def tokens(self) -> tuple[str, ...]:
        """The tokens, which may repeat."""

    @property
    @abc.abstractmethod
    def packing(self) -> Packing:
        """How special tokens frame a row."""

    @property
    @abc.abstractmethod
    def starts_word(self) -> np.ndarray:
        """Which tokens always begin a word, bool [V].

        The first token of a text begins a word in any case.
        """

    @property
    @abc.abstractmethod
    def texts(self) -> tuple[str, ...]:
        """The text of each token, without marks of words: V strings."""

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each token; the last one if it repeats."""
        return types.MappingProxyType(
            {token: number for number, token in enumerate(self.tokens)}
        )

    def _id(self, token: str | None) -> int:
        return -1 if token is None else self.ids[token]

    @property
    def pad_id(self) -> int:
        """The id of [PAD]; -1 if there is none."""
        return self._id(self.special.pad)

    @property
    def unk_id(self) -> int:
        """The id of [UNK]; -1 if there is none."""
        return self._id(self.special.unk)

    @property
    def cls_id(self) -> int:
        """The id of [CLS]; -1 if there is none."""
        return self._id(self.special.cls)

    @property
    def sep_id(self) -> int:
        """The id of [SEP]; -1 if there is none."""
        return self._id(self.special.sep)

    @property
    def mask_id(self) -> int:
        """The id of [MASK]; -1 if there is none."""
        return self._id(self.special.mask)

    @property
    def blank_id(self) -> int:
        """The id that masks a token: [MASK], or [PAD] if there is none."""
        return self.packing.pad_id if self.mask_id < 0 else self.mask_id

    @property
    def mask_takes_blanks(self) -> bool:
        """Whether the mask token includes the blanks before it in a text."""
        return False

    def require_mask(self) -> str:
        """The mask token.

        Raises:
          UserError: there is none.
        """
        if self.special.mask is None:
            raise UserError(
                "this model's tokenizer has no mask token; choose a model or "
                "an objective that needs none."
            )
        return self.special.mask

    def digest(self) -> str:
        """The SHA-256 of the tokens joined by line feeds, in hexadecimal.

        Special tokens are appended if they are not those of a BERT.
        """
        tokens = [*self.tokens]
        if self.special != SPECIAL_TOKENS:
            tokens += self.special.present
        return hashlib.sha256("\n".join(tokens).encode()).hexdigest()

    def require_rows(
        self, rows: int, place: str, spare: float = math.inf
    ) -> None:
        """Raises `UserError` if a model's word table has other tokens.

        Args:
          rows: the rows of the table, vocab_size.
          place: the model's name in errors.
          spare: the number of rows without a token must be below this; some
            models round their sizes up.
        """
        if not 0 <= rows - len(self) < spare:
            raise UserError(
                f"{place}: the vocabulary has {len(self)} tokens, but "
                f"vocab_size is {rows}, so it belongs to another model or is "
                "truncated; put the one that the model was trained with into "
                "the folder, or fit the model to this one with "
                "bert-tf convert `vocab_file`."
            )

    @property
    def description(self) -> str:
        """The kind and number of tokens, for people."""
        return f"{self.title}, {len(self):,} tokens"

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TokenTable)
            and self.tokens == other.tokens
            and self.special == other.special
        )

    def __hash__(self) -> int:
        return hash((self.tokens, self.special))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} tokens, {self.digest()[:12]})"
        )
