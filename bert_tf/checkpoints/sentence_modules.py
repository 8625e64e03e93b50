"""How the vectors of a text's tokens become one vector: a value.

`sentence_files.py` reads and writes it as sentence-transformers does.
"""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from bert_tf.errors import UserError, first_few

CLS, MAX, MEAN = "cls", "max", "mean"
MEAN_SQRT_LEN, WEIGHTED_MEAN = "mean_sqrt_len_tokens", "weightedmean"
LAST_TOKEN = "lasttoken"
MODES = (CLS, MAX, MEAN, MEAN_SQRT_LEN, WEIGHTED_MEAN, LAST_TOKEN)
# Activations by the names of torch's classes, with their default arguments.
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
      activation: of the values of `TORCH_ACTIVATIONS`.
      use_residual: whether the input is added to what the activation gives.
      residual_kernel: float32 [I, O], which the input is multiplied by before;
        None adds it as it is.
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
    """How the vectors of a text's tokens become one vector.

    Attributes:
      pooling: of `MODES`; the vectors of several are joined.
      include_prompt: whether the tokens of a prompt are pooled.
      steps: what follows, in order.
      max_seq_length: the longest row; longer texts are truncated.
      prompts: text that is put before a text, by name.
      default_prompt_name: the prompt of texts for which none is named; None
        puts nothing before them.
      truncate_dim: how many numbers of a vector are kept; None keeps all.
      similarity: which function compares vectors; None is not stated.
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
        """Whether there are prompts whose tokens are not pooled."""
        return not self.include_prompt and any(self.prompts.values())

    def prompt(self, name: str | None) -> str:
        """The text that is put before texts.

        Args:
          name: of the prompt; None takes the default one.

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
        """The numbers of a vector."""
        size = len(self.pooling) * hidden_size
        for step in self.steps:
            if isinstance(step, Dense):
                size = step.kernel.shape[1]
        return min(size, self.truncate_dim or size)

    def __str__(self) -> str:
        kinds = [type(step).__name__ for step in self.steps]
        return ", ".join((f"Pooling ({' and '.join(self.pooling)})", *kinds))
