"""What to compute of a text."""

import dataclasses
from collections.abc import Sequence

from bert_tf.config import BertConfig
from bert_tf.errors import UserError

TOKENS, MEAN, CLS, MAX, POOLED = "none", "mean", "cls", "max", "pooled"
POOLINGS = (TOKENS, MEAN, CLS, MAX, POOLED)
SENTENCE_POOLINGS = POOLINGS[1:]
# As google-research/bert, extract_features.py, --layers.
DEFAULT_TOKEN_LAYERS = (-1, -2, -3, -4)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to compute of a text.

    Attributes:
      layers: K layers by number: 0 is the embeddings, 1 to L the outputs of
        the Transformer's layers, -1 to -L the same from the last one back.
      pooling: one vector a text: the "mean" or the "max" over all its tokens,
        [CLS] and [SEP] included, the one of [CLS] ("cls"), or what the model's
        own pooler makes of that ("pooled", of the last layer alone); or
        "none", a vector for each token.
      max_seq_length: S, the longest row, with [CLS] and [SEP]; longer texts
        are cut. 0: as many positions as the model has.
      batch_size: rows computed at a time; fewer where they are longer than
        128 tokens, so that memory stays level.
    """

    layers: Sequence[int] = (-1,)
    pooling: str = MEAN
    max_seq_length: int = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_pooling(self.pooling, POOLINGS)
        _check_size("batch_size", self.batch_size, 1)
        if self.max_seq_length != 0:
            _check_size("max_seq_length", self.max_seq_length, 3)
        if not self.layers:
            raise UserError("layers: name at least one, for example -1.")

    def length(self, config: BertConfig) -> int:
        """The longest row for a model.

        Raises:
          UserError: the model has not that many positions.
        """
        positions = config.max_position_embeddings
        if self.max_seq_length > positions:
            raise UserError(
                f"max_seq_length={self.max_seq_length}: the model takes "
                f"{positions} (max_position_embeddings)."
            )
        return self.max_seq_length or positions

    def layer_numbers(self, config: BertConfig) -> tuple[int, ...]:
        """The layers of a model by number, 0 the embeddings.

        Raises:
          UserError: the model has no such layer, one is named twice, or the
            pooler is to take another than the last.
        """
        count = config.num_hidden_layers
        found: list[int] = []
        for layer in self.layers:
            if not isinstance(layer, int) or not -count <= layer <= count:
                raise UserError(
                    f"layers={layer!r}: the model has layers 1 to {count}, "
                    f"also called -{count} to -1, and 0, the embeddings."
                )
            number = layer + count + 1 if layer < 0 else layer
            if number in found:
                raise UserError(
                    f"layers={layer}: layer {number} is named twice."
                )
            found.append(number)
        if self.pooling == POOLED and found != [count]:
            raise UserError(
                f"layers={','.join(map(str, self.layers))}: the pooler takes "
                "the last layer alone; give -1 with pooling=pooled."
            )
        return tuple(found)


def parse_layers(text: str, pooling: str) -> tuple[int, ...]:
    """Layers as they are written on the command line, -1,-2.

    Args:
      text: numbers, comma-separated; empty is the default for `pooling`.
      pooling: see `Settings`.

    Raises:
      UserError: something else than numbers.
    """
    if not text:
        return DEFAULT_TOKEN_LAYERS if pooling == TOKENS else (-1,)
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise UserError(
            f"`layers`={text}: give whole numbers, comma-separated, for "
            "example -1,-2."
        ) from None


def check_pooling(pooling: str, allowed: Sequence[str]) -> None:
    """Raises `UserError` unless a way of pooling is one of those allowed."""
    if pooling not in allowed:
        raise UserError(
            f"pooling={pooling}: unknown; it takes one of {', '.join(allowed)}."
        )


def _check_size(name: str, value: int, least: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise UserError(
            f"{name}={value!r}: a whole number of at least {least} is wanted."
        )
