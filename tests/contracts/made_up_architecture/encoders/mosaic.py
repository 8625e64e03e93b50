"""A Mosaic's encoder: gated pre-LN blocks, some of which see near tokens."""

from typing import Any

import keras
from bert_tf.architectures.mosaic import MosaicConfig
from keras import ops

from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import Dense, TransformerBlock
from bert_tf.layers.attention import MASKED_SCORE
from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.heads import first_tokens
from bert_tf.layers.part_weights import PartWeights


@keras.saving.register_keras_serializable(package="bert_tf")
class MosaicBlock(TransformerBlock):
    """Attention and a gated feed-forward, each of normalised states."""

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights of both sub-layers, and the gate."""
        super().build(input_shape)
        self.gate = Dense(
            self.intermediate.config,
            self.config.intermediate_size,
            name="gate",
            dtype=self.dtype_policy,
        )
        self.gate.build((None, None, self.config.hidden_size))

    def attention_input(self, hidden: Any) -> Any:
        """What attention reads: normalised hidden states."""
        return self.attention_norm(hidden)

    def part_weights(self) -> list[PartWeights]:
        """The weights by part of a table."""
        *first, inner, outer, norm = super().part_weights()
        return [*first, *self.gate.part_weights(), inner, outer, norm]

    def _transform(
        self, hidden: Any, context: Any, training: bool | None
    ) -> Any:
        attended = self.attention_dropout(
            self.attention_output(context), training=training
        )
        hidden = self.compute(ops.add(hidden, attended))
        rows = self.output_norm(hidden)
        inner = self.intermediate(rows, training=training)
        inner = inner * self.gate(rows, training=training)
        outer = self.output_dropout(self.output_dense(inner), training=training)
        return self.compute(ops.add(hidden, outer))


@keras.saving.register_keras_serializable(package="bert_tf")
class FirstToken(ConfiguredLayer):
    """The first token of a sequence as it is."""

    def call(
        self,
        sequence_output: Any,
        positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Takes one token of each sequence; see `bert_tf.layers.Pooler`."""
        return first_tokens(sequence_output, positions)


@keras.saving.register_keras_serializable(package="bert_tf")
class MosaicEncoder(BertEncoder):
    """As `BertEncoder`, but of a `MosaicConfig`."""

    config_class = MosaicConfig
    block_class = MosaicBlock
    pooler_class = FirstToken

    def attention_biases(
        self, input_mask: Any, sequence_ids: Any = None
    ) -> list[Any]:
        """The attention bias of each layer, by its window."""
        bias, *_ = super().attention_biases(input_mask, sequence_ids)
        positions = ops.arange(ops.shape(input_mask)[1])
        squares = ops.square(positions[:, None] - positions[None, :])
        windows = self.config.windows
        biases = {
            window: ops.where(squares > window**2, MASKED_SCORE, bias)
            for window in windows
            if window
        }
        biases[0] = bias
        layers = range(self.config.num_hidden_layers)
        return [biases[windows[layer % len(windows)]] for layer in layers]
