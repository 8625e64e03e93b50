"""The interface of tokenizers, without TensorFlow.

An architecture names a class of `TokenizerData`: the tokens and rules as data,
which reads and writes the files of model folders, is small, comparable, and can
be sent to worker processes. `tokenizer()` makes TensorFlow operations of it,
`worker()` a tokenizer for large texts that does not need TensorFlow.
"""

import abc
import functools
import hashlib
import importlib
import json
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
from bert_tf.text.tokenizer_files import describe_tokenizer

if TYPE_CHECKING:
    import tensorflow as tf


@runtime_checkable
class Tokenizer(Protocol):
    """A tokenizer of TensorFlow operations, such as `BertTokenizer`.

    Attributes:
      split_special_tokens: whether special tokens in text are split like other
        text.
    """

    split_special_tokens: bool

    @property
    def vocabulary(self) -> TokenTable:
        """The tokens and the ids of the special tokens."""

    @property
    def packing(self) -> Packing:
        """How special tokens frame the texts of a row."""

    @property
    def data(self) -> "TokenizerData":
        """The tokens and rules it was made of."""

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""

    @property
    def stand_alone(self) -> frozenset[int]:
        """The code points that always are separate words."""

    @property
    def added_ids(self) -> tuple[int, ...]:
        """The ids of tokens that are recognized in text before it is split."""

    def tokenize(self, texts: Any) -> "tf.RaggedTensor":
        """Splits string [B] into ids, int32, ragged [B, tokens]."""

    def tokenize_with_offsets(
        self, texts: Any
    ) -> "tuple[tf.RaggedTensor, ...]":
        """Also returns starts and exclusive ends in characters of the text."""

    def normalize(self, texts: "tf.Tensor") -> "tf.Tensor":
        """Normalizes texts, string [B], as before splitting."""

    def id_to_token(self, ids: Any) -> Any:
        """Maps int32 ids of any shape to tokens, string of that shape."""

    def detokenize(self, ids: Any) -> "tf.Tensor":
        """Joins int32 ids [B, tokens] to texts, string [B]."""

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes the tokenizer's files into a model folder."""


class WorkerTokenizer(Protocol):
    """A tokenizer with the same ids that uses one thread and no TensorFlow.

    Attributes:
      dtype: of the ids.
    """

    dtype: type[np.integer]

    def tokenize(
        self, text: bytes, sentence_bytes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits sentences into ids.

        Args:
          text: the sentences, UTF-8, each followed by a line feed.
          sentence_bytes: bytes of each sentence without its line feed, int64
            [s].

        Returns:
          The ids concatenated, `dtype` [t], and the number of ids of each
          sentence, int64 [s].
        """


class TokenizerData(Protocol):
    """The tokens, rules and files of a tokenizer.

    If an argument `lower_case` is None, the files decide. `of_file` refuses a
    value that contradicts the files; the other methods follow it.

    Attributes:
      FILES: the files of the tokens in bert_tf's folders; the rules are in
        tokenizer_config.json.
      GRAPH: the class that makes TensorFlow operations, as `module.Class`, with
        a constructor `from_data(data, split_special_tokens)`.
      title: the kind, for people.
      other_rules: why the rules of a folder are not supported; empty if they
        are.
    """

    FILES: ClassVar[tuple[str, ...]]
    GRAPH: ClassVar[str]
    title: ClassVar[str]

    @property
    def other_rules(self) -> str:
        """See the class."""

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""

    @property
    def vocabulary(self) -> TokenTable:
        """The tokens and the ids of the special tokens."""

    @classmethod
    @abc.abstractmethod
    def read(
        cls,
        folder: str | pathlib.Path,
        lower_case: bool | None = None,
        rows: int | None = None,
        notify: bool = True,
    ) -> Self | None:
        """Reads a model folder of any layout; None if it has no vocabulary.

        `rows` is the number of rows of the model's table, if known; `notify`
        whether irregularities are logged.
        """

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, lower_case: bool | None = None
    ) -> Self:
        """Reads a vocabulary file and the files next to it."""

    @classmethod
    def of_tokens(cls, path: str | os.PathLike, rows: int) -> Self:
        """Reads only the tokens of a file, without rules and added tokens."""

    def with_rules_of(
        self, folder: pathlib.Path, lower_case: bool | None = None
    ) -> Self:
        """Combines these tokens with the rules of a folder."""

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All data as JSON values."""

    @classmethod
    @abc.abstractmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; removes its keys from `values`."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything but the tokens that determines the ids, as JSON values."""

    def tokenizer(self, split_special_tokens: bool = True) -> Tokenizer:
        """Makes the tokenizer of TensorFlow operations; see `GRAPH`."""

    @abc.abstractmethod
    def worker(self) -> WorkerTokenizer:
        """Makes the tokenizer that does not need TensorFlow."""

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """Writes the files of bert_tf's folders.

        `max_length` is the longest row; None means all positions.
        """

    @abc.abstractmethod
    def save_hugging_face(self, folder: pathlib.Path, max_length: int) -> None:
        """Writes the files that transformers reads."""

    def save_json(
        self,
        folder: pathlib.Path,
        max_length: int | None,
        padded: bool,
        finds_special: bool = False,
    ) -> None:
        """Writes tokenizer.json for programs without TensorFlow.

        Rows are truncated to `max_length`; None leaves it to the program.
        `padded` pads every row to `max_length`; `finds_special` recognizes
        special tokens in text.
        """

    def unframed(self) -> Self:
        """The same without special tokens around texts."""

    def notices(self, to: str) -> list[str]:
        """What users should know if it is written in the layout `to`."""

    @abc.abstractmethod
    def pieces_of(self, tokens: Sequence[str]) -> list[Sequence[int]]:
        """The ids that spell tokens of another vocabulary; may be empty."""


class _ByContent:
    """Data of a tokenizer, equal to other data that is stored alike."""

    def __init__(self, data: TokenizerData) -> None:
        self.data = data
        values = json.dumps(data.to_dict(), sort_keys=True)
        self._key = data.GRAPH, hashlib.sha256(values.encode()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def graph_tokenizer(
    data: TokenizerData, split_special_tokens: bool
) -> Tokenizer:
    """Builds the class `GRAPH` of a tokenizer's data, once for equal data.

    A tokenizer is never changed, and its tables and traces take a second or
    more, so whatever opens the same one shares it.
    """
    return _graph_tokenizer(_ByContent(data), split_special_tokens)


# A process that opens one model after another does not keep all of them.
@functools.lru_cache(maxsize=4)
def _graph_tokenizer(
    content: _ByContent, split_special_tokens: bool
) -> Tokenizer:
    module, _, name = content.data.GRAPH.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    tokenizer: Tokenizer = kind.from_data(content.data, split_special_tokens)
    return tokenizer


def no_vocabulary(place: object, kind: type[TokenizerData]) -> UserError:
    """An error for a model folder without the files of its tokenizer."""
    other = describe_tokenizer(pathlib.Path(str(place)))
    if other:
        return UserError(
            f"{place}: its tokenizer is {other}, which is not supported for "
            f"this architecture; it takes {kind.title}. bert_tf.load_encoder "
            "reads the weights, for ids that the library tokenizers computes."
        )
    return UserError(
        f"{place}: holds no vocabulary; put the {kind.FILES[0]} that it was "
        "trained with into the folder."
    )
