"""Pooling and further modules of sentence-transformers, as data.

`sentence_files.py` reads and writes them.
"""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from bert_tf.errors import UserError, first_few

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


@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """A dense layer on the vector of a text.

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


@dataclasses.dataclass(frozen=True, eq=False)
class SentenceModules:
    """Computes the vector of a text from those of its tokens.

    Attributes:
      pooling: names in `config.POOLINGS`; several vectors are concatenated.
      include_prompt: whether the tokens of a prompt are pooled.
      steps: the modules after pooling, in order.
      max_seq_length: the longest row; longer texts are truncated.
      prompts: prefixes of texts, by name.
      default_prompt_name: the prompt of texts without a named one; None for no
        prompt.
      truncate_dim: the number of dimensions to keep; None for all.
      similarity: the name of the similarity function; None if not stated.
    """

    pooling: tuple[str, ...]
    include_prompt: bool
    steps: tuple[Step, ...]
    max_seq_length: int
    prompts: Mapping[str, str]
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    similarity: str | None = None

    @property
    def leaves_prompts_out(self) -> bool:
        """Whether the tokens of prompts are not pooled."""
        return not self.include_prompt and any(self.prompts.values())

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

    def width(self, hidden_size: int) -> int:
        """Returns the dimension of the vectors."""
        size = len(self.pooling) * hidden_size
        for step in self.steps:
            if isinstance(step, Dense):
                size = step.kernel.shape[1]
        return min(size, self.truncate_dim or size)

    def __str__(self) -> str:
        kinds = [type(step).__name__ for step in self.steps]
        return ", ".join((f"Pooling ({' and '.join(self.pooling)})", *kinds))
