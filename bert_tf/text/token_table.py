"""The tokens of a model, and how special ones frame a row; any tokenizer's."""

import abc
import dataclasses
import functools
import hashlib
import math
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError


class SpecialTokens(NamedTuple):
    """The tokens of special meaning, by default those of a BERT.

    None stands for one that an architecture does not have.

    Attributes:
      pad: fills rows up.
      unk: stands for a word that no tokens spell.
      cls: begins a row; its vector stands for the whole.
      sep: ends each text of a row.
      mask: hides a token that a masked LM predicts.
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
        """Those that there are."""
        return tuple(token for token in self if token is not None)


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


class TokenTable(abc.ABC):
    """The V tokens of a model in the order of their ids.

    Attributes:
      special: those of special meaning, any of which may be missing.
    """

    special: SpecialTokens

    @property
    @abc.abstractmethod
    def tokens(self) -> tuple[str, ...]:
        """The tokens; one may occur several times."""

    @property
    @abc.abstractmethod
    def packing(self) -> Packing:
        """How special tokens frame a row."""

    @property
    @abc.abstractmethod
    def starts_word(self) -> np.ndarray:
        """Which tokens begin a word wherever they stand, bool [V].

        The first token of a text begins one whatever it is.
        """

    @property
    @abc.abstractmethod
    def texts(self) -> tuple[str, ...]:
        """What each token spells, without the marks of words: V strings."""

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each token; of one that occurs several times, the last."""
        return types.MappingProxyType(
            {token: number for number, token in enumerate(self.tokens)}
        )

    def _id(self, token: str | None) -> int:
        return -1 if token is None else self.ids[token]

    @property
    def pad_id(self) -> int:
        """The id of [PAD], which pads rows; -1 where there is none."""
        return self._id(self.special.pad)

    @property
    def unk_id(self) -> int:
        """The id of [UNK]; -1 where there is none."""
        return self._id(self.special.unk)

    @property
    def cls_id(self) -> int:
        """The id of [CLS]; -1 where there is none."""
        return self._id(self.special.cls)

    @property
    def sep_id(self) -> int:
        """The id of [SEP]; -1 where there is none."""
        return self._id(self.special.sep)

    @property
    def mask_id(self) -> int:
        """The id of [MASK]; -1 where there is none."""
        return self._id(self.special.mask)

    @property
    def blank_id(self) -> int:
        """The id that hides a token: [MASK], or where there is none [PAD]."""
        return self.packing.pad_id if self.mask_id < 0 else self.mask_id

    def require_mask(self) -> str:
        """The mask token.

        Raises:
          UserError: there is none.
        """
        if self.special.mask is None:
            raise UserError(
                "this model's tokenizer has no mask token; choose a model or "
                "an objective without masks."
            )
        return self.special.mask

    def digest(self) -> str:
        """The SHA-256 of the tokens joined by line feeds, in hexadecimal.

        Where the special tokens are not a BERT's, they follow.
        """
        tokens = [*self.tokens]
        if self.special != SPECIAL_TOKENS:
            tokens += self.special.present
        return hashlib.sha256("\n".join(tokens).encode()).hexdigest()

    def require_rows(
        self, rows: int, place: str, spare: float = math.inf
    ) -> None:
        """Raises `UserError` where a model's table is of other tokens.

        Args:
          rows: of the table, vocab_size.
          place: what errors call the model.
          spare: it has fewer rows than this without a token. Some models have
            a few, to make a round number.
        """
        if not 0 <= rows - len(self) < spare:
            raise UserError(
                f"{place}: the vocabulary has {len(self)} tokens, but "
                f"vocab_size is {rows}, so it is another model's or cut off; "
                "put the one that the model was trained with into the folder, "
                "or fit the model to this one with tools.convert_checkpoint "
                "`vocab_file`."
            )

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
