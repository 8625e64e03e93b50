"""What of a model to compute: layers, pooling, lengths."""

import dataclasses
import numbers
from collections.abc import Sequence

from bert_tf.checkpoints.sentence_modules import (
    CLS,
    MAX,
    MEAN,
    SentenceModules,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, check_choice, whole_number

PER_TOKEN, AUTO, POOLED = "none", "auto", "pooled"
POOLINGS = (PER_TOKEN, AUTO, MEAN, CLS, MAX, POOLED)
SENTENCE_POOLINGS = POOLINGS[1:]
# As google-research/bert, extract_features.py, --layers.
DEFAULT_TOKEN_LAYERS = (-1, -2, -3, -4)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to compute of a text.

    Attributes:
      layers: K layers by number: 0 is the embeddings, 1 to L the outputs of
        the Transformer's layers, -1 to -L the same from the last one back. A
        BiLSTM on top is none of them; "pooled" alone reads it.
      pooling: one vector a text: the "mean" or the "max" over all its tokens,
        [CLS] and [SEP] included, the one of [CLS] ("cls"; of a causal model,
        whose [CLS] sees only itself, that of the last [SEP]), or what the
        model's own pooler makes of that ("pooled", of the last layer alone);
        or "none", a vector for each token. "auto" applies the modules of the
        model's folder to the last layer, see `SentenceModules`; without
        modules, and of other layers, it is the mean.
      max_seq_length: S, the longest row, with [CLS] and [SEP]; longer texts
        are truncated. 0: as many positions as the model has, or, with modules,
        their max_seq_length.
      batch_size: rows of 128 tokens computed at a time, or as many tokens in
        longer or shorter rows, so that memory stays level.
      prompt_name: which of the folder's prompts is put before a text; None is
        its default one. It requires modules and "auto".
    """

    layers: Sequence[int] = (-1,)
    pooling: str = AUTO
    max_seq_length: int = 0
    batch_size: int = 32
    prompt_name: str | None = None

    def __post_init__(self) -> None:
        check_choice("`pooling`", self.pooling, POOLINGS)
        sizes = {"batch_size": 1}
        if self.max_seq_length != 0:
            sizes["max_seq_length"] = 3
        for name, least in sizes.items():
            size = whole_number(name, getattr(self, name), least)
            # The settings are frozen for others.
            object.__setattr__(self, name, size)
        if not self.layers:
            raise UserError("layers: name at least one, for example -1.")

    def follows(
        self, modules: SentenceModules | None, config: BertConfig
    ) -> bool:
        """Whether the modules of the model's folder are applied.

        Raises:
          UserError: they are not, and a prompt is named.
        """
        is_last = self.layer_numbers(config) == (config.num_hidden_layers,)
        leaves_to_folder = self.pooling == AUTO and is_last
        if leaves_to_folder and modules is not None:
            return True
        if self.prompt_name is not None:
            why = "the model's folder has no modules.json, and so no prompts"
            if not leaves_to_folder:
                why = (
                    "belongs to the modules of the model's folder, which are "
                    f"not applied with `pooling`={self.pooling} and layer "
                    f"{','.join(map(str, self.layers))}; leave these out"
                )
            raise UserError(f"`prompt_name`={self.prompt_name}: {why}.")
        return False

    def layer_numbers(self, config: BertConfig) -> tuple[int, ...]:
        """The layers of a model by number, 0 the embeddings.

        Raises:
          UserError: the model has no such layer, one is named twice, or the
            pooler is to take another than the last.
        """
        count = config.num_hidden_layers
        found: list[int] = []
        for layer in self.layers:
            is_whole = isinstance(layer, numbers.Integral)
            if not is_whole or not -count <= layer <= count:
                raise UserError(
                    f"`layers`={layer!r}: the model has layers 1 to {count}, "
                    f"also called -{count} to -1, and 0, the embeddings."
                )
            number = int(layer) + (count + 1 if layer < 0 else 0)
            if number in found:
                raise UserError(
                    f"`layers`={layer}: layer {number} is named twice."
                )
            found.append(number)
        if self.pooling == POOLED and found != [count]:
            raise UserError(
                f"`layers`={','.join(map(str, self.layers))}: the pooler takes "
                "the last layer alone; give -1 with `pooling`=pooled."
            )
        return tuple(found)


def parse_layers(text: str, pooling: str) -> tuple[int, ...]:
    """Layers as they are written on the command line, -1,-2.

    Empty is the default for a way of pooling. Raises `UserError` for
    something else than numbers.
    """
    if not text:
        return DEFAULT_TOKEN_LAYERS if pooling == PER_TOKEN else (-1,)
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise UserError(
            f"`layers`={text}: give whole numbers, comma-separated, for "
            "example -1,-2."
        ) from None
