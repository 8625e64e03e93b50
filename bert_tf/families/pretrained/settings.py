"""Settings of vectors of texts: layers, pooling, lengths."""

import dataclasses
import numbers
from collections.abc import Sequence

from bert_tf.checkpoints.sentence_modules import Modules, MultiVectorModules
from bert_tf.config import AUTO, PER_TOKEN, POOLED, TEXT_POOLINGS, BertConfig
from bert_tf.errors import UserError, check_choice, whole_number

# As google-research/bert, extract_features.py, --layers.
DEFAULT_TOKEN_LAYERS = (-1, -2, -3, -4)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to compute the vectors of a text.

    Attributes:
      layers: K layers: 0 for the embeddings, 1 to L for the outputs of the
        Transformer's layers, -1 to -L for the same in reverse order. A BiLSTM
        is not among them; only "pooled" includes it.
      pooling: "mean" or "max" over all tokens, including [CLS] and [SEP]; "cls"
        for the vector of [CLS], or in a causal model of the last [SEP];
        "pooled" for the model's pooler, of the last layer only; "none" for a
        vector of each token; "auto" for the modules of the model's folder, see
        `SentenceModules`, or the mean without modules and in other layers.
      max_seq_length: S, the longest row, with [CLS] and [SEP]; longer texts
        are truncated. 0 is the max_seq_length of the modules, or the number of
        positions.
      batch_size: the size of a batch in rows of 128 tokens; a batch has fewer
        longer or more shorter rows, so that memory stays constant.
      prompt_name: the prompt of the folder that precedes a text; None is the
        default one. It requires modules and "auto".
    """

    layers: Sequence[int] = (-1,)
    pooling: str = AUTO
    max_seq_length: int = 0
    batch_size: int = 32
    prompt_name: str | None = None

    def __post_init__(self) -> None:
        check_choice("`pooling`", self.pooling, (PER_TOKEN, *TEXT_POOLINGS))
        shortest = 3 if self.max_seq_length != 0 else 0
        for name, least in (("batch_size", 1), ("max_seq_length", shortest)):
            size = whole_number(name, getattr(self, name), least)
            # The dataclass is frozen.
            object.__setattr__(self, name, size)
        if not self.layers:
            raise UserError("layers: name at least one, for example -1.")

    def applied(
        self,
        modules: Modules | None,
        config: BertConfig,
        has_pooler: bool,
    ) -> Modules | None:
        """Returns the modules of the model's folder if they are applied.

        Raises:
          UserError: the settings do not fit the model.
        """
        is_last = self.layer_numbers(config) == (config.num_blocks,)
        leaves_to_folder = self.pooling == AUTO and is_last
        if leaves_to_folder and isinstance(modules, MultiVectorModules):
            raise UserError(
                "`model`: is a MultiVectorEncoder, which computes a vector of "
                "each token; take encode_query and encode_document of "
                "bert_tf.load, or the Transformer alone by `pooling`=mean."
            )
        if leaves_to_folder and modules is not None:
            modules.prompt(self.prompt_name)
            return modules
        if self.prompt_name is not None:
            why = "the model's folder has no modules.json, and so no prompts"
            if not leaves_to_folder:
                why = (
                    "belongs to the modules of the model's folder, which are "
                    f"not applied with `pooling`={self.pooling} and layer "
                    f"{','.join(map(str, self.layers))}; leave these out"
                )
            raise UserError(f"`prompt_name`={self.prompt_name}: {why}.")
        if self.pooling == POOLED and not has_pooler:
            raise UserError(
                f"`pooling`={POOLED}: the model has no pooler; take cls, mean "
                "or max."
            )
        return None

    def layer_numbers(self, config: BertConfig) -> tuple[int, ...]:
        """Returns the non-negative numbers of the layers.

        Raises:
          UserError: the model has no such layer, a layer is named twice, or
            "pooled" is combined with another layer than the last.
        """
        count = config.num_blocks
        found: list[int] = []
        for layer in self.layers:
            is_whole = isinstance(layer, numbers.Integral)
            if not is_whole or not -max(count, 1) <= layer <= count:
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
                "only the last layer; give -1 with `pooling`=pooled."
            )
        return tuple(found)


DEFAULTS = Settings()


def parse_layers(text: str, pooling: str) -> tuple[int, ...]:
    """Parses comma-separated layers, by default those of a pooling.

    Raises:
      UserError: text that is not numbers.
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
