"""What a model needs of a tokenizer, without TensorFlow."""

import pathlib
from typing import TYPE_CHECKING, Any, Protocol

from bert_tf.text.vocabulary import Packing, Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.text.tokenizer_config import TokenizerConfig


class Tokenizer(Protocol):
    """What a model needs of a tokenizer; `BertTokenizer` is one."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens, with the ids of the special ones."""

    @property
    def packing(self) -> Packing:
        """How special tokens frame the texts of a row."""

    @property
    def config(self) -> "TokenizerConfig":
        """How text is split into words."""

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""

    def tokenize(self, texts: Any) -> "tf.RaggedTensor":
        """Splits string [B] into ids, int32, ragged [B, tokens]."""

    def tokenize_with_offsets(
        self, texts: Any
    ) -> "tuple[tf.RaggedTensor, ...]":
        """The same, with starts and exclusive ends in characters of a text."""

    def id_to_token(self, ids: Any) -> Any:
        """The tokens of int32 ids of any shape, string of that shape."""

    def detokenize(self, ids: Any) -> "tf.Tensor":
        """Joins int32 ids [B, tokens] to texts, string [B]."""

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes its files into a model folder."""
