"""What the rest of the project knows of a tokenizer, without TensorFlow.

An architecture names a class of `TokenizerData`. It reads and writes the files
of model folders and is small, equal to others of the same rules, and can be
sent to a worker process. `tokenizer()` makes TensorFlow operations of it, and
`worker()` what tokenizes much text without TensorFlow.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    Self,
    runtime_checkable,
)

import numpy as np

from bert_tf.errors import UserError
from bert_tf.text.token_table import Packing, TokenTable

if TYPE_CHECKING:
    import tensorflow as tf


@runtime_checkable
class Tokenizer(Protocol):
    """What a model needs of a tokenizer; `BertTokenizer` is one.

    Attributes:
      split_special_tokens: whether special tokens in text are split as other
        text is.
    """

    split_special_tokens: bool

    @property
    def vocabulary(self) -> TokenTable:
        """The tokens, with the ids of the special ones."""

    @property
    def packing(self) -> Packing:
        """How special tokens frame the texts of a row."""

    @property
    def data(self) -> "TokenizerData":
        """What it was made of."""

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""

    @property
    def stand_alone(self) -> frozenset[int]:
        """The code points that are words of their own."""

    def tokenize(self, texts: Any) -> "tf.RaggedTensor":
        """Splits string [B] into ids, int32, ragged [B, tokens]."""

    def tokenize_with_offsets(
        self, texts: Any
    ) -> "tuple[tf.RaggedTensor, ...]":
        """The same, with starts and exclusive ends in characters of a text."""

    def normalize(self, texts: "tf.Tensor") -> "tf.Tensor":
        """The letters that texts, string [B], have before they are split."""

    def id_to_token(self, ids: Any) -> Any:
        """The tokens of int32 ids of any shape, string of that shape."""

    def detokenize(self, ids: Any) -> "tf.Tensor":
        """Joins int32 ids [B, tokens] to texts, string [B]."""

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes its files into a model folder."""


class WorkerTokenizer(Protocol):
    """The same ids without TensorFlow, in one thread.

    Attributes:
      dtype: of the ids.
    """

    dtype: type[np.integer]

    def tokenize(
        self, text: bytes, sentence_bytes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits sentences into ids.

        Args:
          text: the sentences, UTF-8, with a line end behind each.
          sentence_bytes: bytes of each sentence without its line end, int64
            [s].

        Returns:
          The ids concatenated, `dtype` [t], and how many each sentence has,
          int64 [s].
        """


class TokenizerData(Protocol):
    """A tokenizer as data: its tokens, its rules, and its files.

    Where `lower_case` is an argument, None takes what the files say; `of_file`
    refuses another answer than theirs, the others follow it.

    Attributes:
      FILES: what holds its tokens in our own folders; the rules stand in
        tokenizer_config.json.
      other_rules: why the rules of a folder cannot be followed; empty where
        they can.
    """

    FILES: ClassVar[tuple[str, ...]]

    @property
    def other_rules(self) -> str:
        """See the class."""

    @property
    def vocabulary(self) -> TokenTable:
        """The tokens, with the ids of the special ones."""

    @classmethod
    def read(
        cls,
        folder: str | pathlib.Path,
        lower_case: bool | None = None,
        rows: int | None = None,
        notify: bool = True,
    ) -> Self | None:
        """Reads a model folder of any layout; None where it has no vocabulary.

        `rows` is how many the model's table has, where that is known; `notify`
        whether lines say what is odd.
        """

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, lower_case: bool | None = None
    ) -> Self:
        """Reads a vocabulary file, and what lies beside it."""

    @classmethod
    def of_tokens(cls, path: str | os.PathLike, rows: int) -> Self:
        """Reads the tokens of a file alone, without rules or added ones."""

    def with_rules_of(
        self, folder: pathlib.Path, lower_case: bool | None = None
    ) -> Self:
        """The same tokens with the rules of a folder, if they can be kept."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; takes its keys out of `values`."""

    def settings(self) -> dict[str, Any]:
        """Whatever else than the tokens decides the ids, as JSON has it."""

    def tokenizer(self, split_special_tokens: bool = True) -> Tokenizer:
        """The tokenizer as TensorFlow operations."""

    def worker(self) -> WorkerTokenizer:
        """What gives the same ids without TensorFlow."""

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """Writes the files of our own folders.

        `max_length` is the longest row; None is what the model takes.
        """

    def save_hugging_face(self, folder: pathlib.Path, max_length: int) -> None:
        """Writes the files that transformers reads."""

    def save_json(
        self,
        folder: pathlib.Path,
        max_length: int,
        padded: bool,
        finds_special: bool = False,
    ) -> None:
        """Writes tokenizer.json for programs without TensorFlow.

        `padded` tells whether every row is padded to `max_length`, and
        `finds_special` whether special tokens are looked for in text.
        """

    def notices(self, to: str) -> list[str]:
        """What a user should know of it in the layout `to` of model folders."""

    def pieces_of(self, tokens: Sequence[str]) -> list[Sequence[int]]:
        """The ids that spell tokens of another vocabulary; none for some."""


def no_vocabulary(place: object, kind: type[TokenizerData]) -> UserError:
    """An error for a model folder without the files of its tokenizer."""
    return UserError(
        f"{place}: holds no vocabulary; put the {kind.FILES[0]} that it was "
        "trained with into the folder."
    )
