"""Pooling and further modules of sentence-transformers, as data.

`sentence_files.py` reads and writes them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from bert_tf.errors import UserError, first_few

# model_type in config_sentence_transformers.json.
SENTENCE_TRANSFORMER, CROSS_ENCODER = "SentenceTransformer", "CrossEncoder"
SPARSE_ENCODER, MULTI_VECTOR = "SparseEncoder", "MultiVectorEncoder"
# Activations of torch's classes with default arguments.
TORCH_ACTIVATIONS = {
    "Identity": "linear",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu_erf",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
    "ELU": "elu",
    "LeakyReLU": "leaky_relu",
    "Softplus": "softplus",
}
# As sentence-transformers 6.2, `encode_query` and `encode_document`.
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
SPARSE_POOLINGS = ("max", "sum")
SPARSE_ACTIVATIONS = ("relu", "log1p_relu")


@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """A dense layer on the vector of a text or a token.

    Attributes:
      kernel: float32 [I, O].
      bias: float32 [O], or None.
      activation: one of the values of `TORCH_ACTIVATIONS`.
      use_residual: whether the input is added to the output.
      residual_kernel: float32 [I, O], projects the input before the addition;
        None adds it unchanged.
    """

    kernel: np.ndarray
    bias: np.ndarray | None
    activation: str
    use_residual: bool = False
    residual_kernel: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Normalize:
    """A vector divided by its length, at least 1e-12."""


Step: TypeAlias = Dense | Normalize


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TextModules:
    """What the modules of all kinds of folders state.

    Attributes:
      max_seq_length: the longest row; longer texts are truncated.
      prompts: prefixes of texts, by name.
      default_prompt_name: the prompt of texts without a named one; None for no
        prompt.
      similarity: the name of the similarity function; None if not stated.
      model_type: the kind of folder.
      leaves_prompts_out: whether the tokens of prompts are not pooled.
    """

    model_type: ClassVar[str]
    max_seq_length: int
    prompts: Mapping[str, str]
    default_prompt_name: str | None = None
    similarity: str | None = None

    @property
    def leaves_prompts_out(self) -> bool:
        """See the class."""
        return False

    def prompt(self, name: str | None) -> str:
        """Returns the prefix of texts; None is the default prompt.

        Raises:
          UserError: there is no prompt of that name.
        """
        if name is None:
            name = self.default_prompt_name
            return "" if name is None else self.prompts[name]
        if name not in self.prompts:
            raise UserError(
                f"`prompt_name`={name}: the model has the prompts "
                f"{first_few(list(self.prompts))}."
            )
        return self.prompts[name]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SentenceModules(TextModules):
    """Computes the vector of a text from those of its tokens.

    Attributes:
      pooling: names in `config.POOLINGS`; several vectors are concatenated.
      include_prompt: whether the tokens of a prompt are pooled.
      steps: the modules after pooling, in order.
      truncate_dim: the number of dimensions to keep; None for all.
    """

    model_type: ClassVar[str] = SENTENCE_TRANSFORMER
    pooling: tuple[str, ...]
    include_prompt: bool
    steps: tuple[Step, ...]
    truncate_dim: int | None = None

    @property
    def leaves_prompts_out(self) -> bool:
        """See the class."""
        return not self.include_prompt and any(self.prompts.values())

    def width(self, hidden_size: int) -> int:
        """Returns the dimension of the vectors."""
        size = _width(self.steps, len(self.pooling) * hidden_size)
        return min(size, self.truncate_dim or size)

    def __str__(self) -> str:
        kinds = [type(step).__name__ for step in self.steps]
        return ", ".join((f"Pooling ({' and '.join(self.pooling)})", *kinds))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SparseModules(TextModules):
    """Computes the weights of terms from masked-LM logits (SPLADE).

    Formal et al. 2021 (v2, equations 1 and 6): log(1 + relu(logit)), summed
    over the tokens or their maximum.

    Attributes:
      pooling: one of `SPARSE_POOLINGS`.
      activation: one of `SPARSE_ACTIVATIONS`; log1p_relu takes the logarithm
        twice (Geng et al. 2024).
      vocab_size: V, the number of terms.
      max_active_dims: the number of largest weights to keep; None for all.
    """

    model_type: ClassVar[str] = SPARSE_ENCODER
    pooling: str
    activation: str
    vocab_size: int
    max_active_dims: int | None = None

    def width(self, hidden_size: int) -> int:
        """Returns the dimension of the vectors."""
        del hidden_size
        return self.vocab_size

    def __str__(self) -> str:
        return f"SpladePooling ({self.pooling}, {self.activation})"


@dataclasses.dataclass(frozen=True)
class Expansion:
    """Query expansion by a token (Khattab and Zaharia 2020, section 3.2).

    Attributes:
      length: rows of queries are filled to this number of tokens.
      is_fixed: whether longer queries are truncated to `length`.
      attend: whether the other tokens attend to the added ones.
      token: the added token; None for the tokenizer's [MASK].
    """

    length: int
    is_fixed: bool
    attend: bool = False
    token: str | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MultiVectorModules(TextModules):
    """Computes vectors of the tokens of queries and documents (ColBERT).

    Attributes:
      steps: the modules that each token's vector passes, in order.
      skipped_words: tokens that are not scored.
      skipped_tasks: where they are not: any of query and document.
      scored_ids: the only ids of documents that are scored; empty for all.
      query_length, document_length: the longest rows; None for
        `max_seq_length`.
      expansion: how queries are expanded; None if they are not.
    """

    model_type: ClassVar[str] = MULTI_VECTOR
    steps: tuple[Step, ...]
    skipped_words: tuple[str, ...] = ()
    skipped_tasks: tuple[str, ...] = ("document",)
    scored_ids: tuple[int, ...] = ()
    query_length: int | None = None
    document_length: int | None = None
    expansion: Expansion | None = None

    def width(self, hidden_size: int) -> int:
        """Returns the dimension of the vectors."""
        return _width(self.steps, hidden_size)

    def __str__(self) -> str:
        kinds = [type(step).__name__ for step in self.steps]
        return ", ".join(("MultiVectorMask", *kinds))


Modules: TypeAlias = SentenceModules | SparseModules | MultiVectorModules


def _width(steps: Sequence[Step], size: int) -> int:
    """Returns the dimension of vectors of a given size after modules."""
    dense = [step for step in steps if isinstance(step, Dense)]
    return dense[-1].kernel.shape[1] if dense else size


def first_prompt(modules: Modules | None, names: Sequence[str]) -> str | None:
    """Returns the first of some prompts that there is; None for none."""
    known = modules.prompts if modules is not None else ()
    return next((name for name in names if name in known), None)
