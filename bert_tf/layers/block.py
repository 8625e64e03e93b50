"""One layer of the Transformer encoder."""

from collections.abc import Hashable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.config import QUERY_VALUE, BertConfig
from bert_tf.layers.attention import AttentionMask, SelfAttention
from bert_tf.layers.base import ConfiguredLayer, Dense, LayerNorm
from bert_tf.layers.heads import at_positions
from bert_tf.layers.part_weights import PartWeights
from bert_tf.layers.unpadding import TokenIndices


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerBlock(ConfiguredLayer):
    """Self-attention and feed-forward, each with a normalised residual.

    Post-LN as in Vaswani et al. 2017, section 3.1: the sum of a sub-layer's
    input and its output (after dropout), in float32, is normalised.
    """

    @property
    def dense_config(self) -> BertConfig:
        """The configuration of its dense layers."""
        if self.config.lora_on == QUERY_VALUE:
            return self.config.without_lora()
        return self.config

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights of both sub-layers."""
        config, policy = self.config, self.dtype_policy
        wide = (None, None, config.hidden_size)
        self.attention = SelfAttention(config, name="attention", dtype=policy)
        dense = self.dense_config
        self.attention_output = Dense(
            dense, config.hidden_size, name="attention_output", dtype=policy
        )
        self.attention_norm = LayerNorm(
            config, name="attention_layer_norm", dtype=policy
        )
        self.intermediate = Dense(
            dense,
            config.intermediate_size,
            config.hidden_act,
            name="intermediate",
            dtype=policy,
        )
        self.output_dense = Dense(
            dense, config.hidden_size, name="output", dtype=policy
        )
        self.output_norm = LayerNorm(
            config, name="output_layer_norm", dtype=policy
        )
        # The order decides which random numbers initialize each weight.
        self.attention.build(wide)
        self.attention_output.build((None, None, config.attention_size))
        for layer in (self.attention_norm, self.intermediate, self.output_norm):
            layer.build(wide)
        self.output_dense.build((None, None, config.intermediate_size))
        self.attention_dropout = self.make_dropout(
            config.hidden_dropout_prob, "attention_dropout"
        )
        self.output_dropout = self.make_dropout(
            config.hidden_dropout_prob, "output_dropout"
        )

    def call(
        self,
        hidden: Any,
        attention_bias: Any,
        cls_only: bool = False,
        training: bool | None = None,
        cls_positions: Any = None,
        return_probabilities: bool = True,
    ) -> tuple[Any, Any]:
        """Applies the block; the arguments are those of `SelfAttention.call`.

        Returns:
          The output float [B, Q, H] of the positions that attend, and the
          attention probabilities float [B, N, Q, S] or None, both in the
          compute dtype.
        """
        context, probabilities = self.attention(
            self.attention_input(hidden),
            attention_bias,
            cls_only=cls_only,
            training=training,
            cls_positions=cls_positions,
            return_probabilities=return_probabilities,
        )
        if cls_only and cls_positions is None:
            hidden = hidden[:, :1]
        elif cls_only:
            hidden = at_positions(hidden, cls_positions)
        return self._transform(hidden, context, training), probabilities

    def of_tokens(
        self,
        tokens: Any,
        token_indices: TokenIndices,
        masks: Sequence[AttentionMask],
        cls_only: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Applies the block to a batch without padding.

        The arguments are those of `SelfAttention.of_tokens`.

        Returns:
          float [T, H]; with cls_only, [B, 1, H].
        """
        context = self.attention.of_tokens(
            self.attention_input(tokens),
            token_indices,
            masks,
            cls_only=cls_only,
            training=training,
        )
        if cls_only:
            tokens = token_indices.pooled(tokens)
        return self._transform(tokens, context, training)

    def attention_input(self, hidden: Any) -> Any:
        """The input of attention: in post-LN the hidden states themselves."""
        return hidden

    def scores(self, hidden: Any) -> Any:
        """The attention scores of hidden states; see `SelfAttention`."""
        return self.attention.scores(self.attention_input(hidden))

    def full_bias(self, bias: Any) -> Any:
        """The bias of all pairs of tokens; see `SelfAttention`."""
        return self.attention.full_bias(bias)

    @property
    def computation(self) -> Hashable:
        """Equal for blocks whose variables enter the same computation."""
        variables = tuple(
            (tuple(v.shape), v.dtype, v.trainable) for v in self.variables
        )
        return type(self), self.attention.window, variables

    def part_weights(self) -> list[PartWeights]:
        """The weights of all parts of a layer."""
        layers = (
            self.attention,
            self.attention_output,
            self.attention_norm,
            self.intermediate,
            self.output_dense,
            self.output_norm,
        )
        return [part for layer in layers for part in layer.part_weights()]

    def _transform(
        self, hidden: Any, context: Any, training: bool | None
    ) -> Any:
        """The part of the block after attention, position by position."""
        attended = self.attention_dropout(
            self.attention_output(context), training=training
        )
        hidden = self.attention_norm(ops.add(hidden, attended))
        inner = self.intermediate(hidden, training=training)
        outer = self.output_dropout(self.output_dense(inner), training=training)
        return self.output_norm(ops.add(hidden, outer))
