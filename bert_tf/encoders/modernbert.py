"""ModernBERT (Warner et al. 2024): pre-norm, gated, with rotary positions."""

import dataclasses
from collections.abc import Hashable
from typing import Any

import keras
from keras import ops

from bert_tf.architectures.modernbert import ModernBertConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import (
    Dense,
    Embeddings,
    LayerNorm,
    RotaryAttention,
    TransformerBlock,
)
from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.heads import first_tokens
from bert_tf.layers.part_weights import PartWeights
from bert_tf.layers.products import activate


@keras.saving.register_keras_serializable(package="bert_tf")
class WordEmbeddings(Embeddings):
    """Word embeddings with layer norm and dropout, without positions."""

    has_positions = False


@keras.saving.register_keras_serializable(package="bert_tf")
class ModernBertBlock(TransformerBlock):
    """Attention and a gated feed-forward (Shazeer 2020), each of normed states.

    Both output kernels are initialized with the standard deviation
    initializer_range / sqrt(2 L). Source: transformers,
    modeling_modernbert.py, _init_weights.

    Args:
      config: the architecture.
      layer: the number of the layer; the first has no norm before attention.
      name: name of the layer.
      dtype: Keras dtype policy or its name.
      trainable: whether training changes the weights.
    """

    config: ModernBertConfig

    def __init__(
        self,
        config: ModernBertConfig,
        layer: int,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(config, name=name, dtype=dtype, trainable=trainable)
        self.layer = layer

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights of both sub-layers."""
        config, policy = self.config, self.dtype_policy
        self.attention = RotaryAttention(
            config,
            *config.rotations(self.layer),
            name="attention",
            dtype=policy,
        )
        dense = self.dense_config
        # 2 L outputs are added to the embeddings.
        deviation = config.initializer_range
        deviation /= (2 * config.num_hidden_layers) ** 0.5
        output = dataclasses.replace(dense, initializer_range=deviation)
        self.attention_output, self.intermediate, self.output_dense = (
            Dense(kind, units, name=name, dtype=policy)
            for name, kind, units in (
                ("attention_output", output, config.hidden_size),
                ("intermediate", dense, config.gated_size),
                ("output", output, config.hidden_size),
            )
        )
        self.input_norm = None
        if self.layer:
            self.input_norm = LayerNorm(
                config, name="attention_layer_norm", dtype=policy
            )
            self.input_norm.build((None, None, config.hidden_size))
        self.output_norm = LayerNorm(
            config, name="output_layer_norm", dtype=policy
        )
        for layer, width in (
            (self.attention, config.hidden_size),
            (self.attention_output, config.attention_size),
            (self.output_norm, config.hidden_size),
            (self.intermediate, config.hidden_size),
            (self.output_dense, config.intermediate_size),
        ):
            layer.build((None, None, width))
        self.attention_dropout = self.make_dropout(
            config.attention_probs_dropout_prob, "attention_dropout"
        )
        self.inner_dropout = self.make_dropout(
            config.mlp_dropout, "inner_dropout"
        )

    def attention_input(self, hidden: Any) -> Any:
        """The normed hidden states; in the first layer they are unchanged."""
        if self.input_norm is None:
            return hidden
        return self.input_norm(hidden)

    @property
    def computation(self) -> Hashable:
        """See `TransformerBlock`; the rotations differ between layers."""
        return super().computation, self.attention.base

    def part_weights(self) -> list[PartWeights]:
        """The weights of all parts of a layer."""
        layers = (
            self.input_norm,
            self.attention,
            self.attention_output,
            self.output_norm,
            self.intermediate,
            self.output_dense,
        )
        present = (layer for layer in layers if layer is not None)
        return [part for layer in present for part in layer.part_weights()]

    def _transform(
        self, hidden: Any, context: Any, training: bool | None
    ) -> Any:
        attended = self.attention_dropout(
            self.attention_output(context), training=training
        )
        hidden = self.compute(ops.add(hidden, attended))
        both = self.intermediate(self.output_norm(hidden), training=training)
        inner, gate = ops.split(both, 2, axis=-1)
        inner = activate(self.config.hidden_act, inner) * gate
        inner = self.inner_dropout(inner, training=training)
        outer = self.output_dense(inner, training=training)
        return self.compute(ops.add(hidden, outer))

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {**super().get_config(), "layer": self.layer}


@keras.saving.register_keras_serializable(package="bert_tf")
class HeadTransform(ConfiguredLayer):
    """The dense layer and the layer norm that every head begins with."""

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the kernel [H, H] and gamma [H]."""
        config, policy = self.config.without_lora(), self.dtype_policy
        wide = (None, None, config.hidden_size)
        self.dense = Dense(
            config,
            config.hidden_size,
            config.hidden_act,
            name="dense",
            dtype=policy,
        )
        self.layer_norm = LayerNorm(config, name="layer_norm", dtype=policy)
        for layer in (self.dense, self.layer_norm):
            layer.build(wide)

    def call(self, hidden: Any, training: bool | None = None) -> Any:
        """Maps float [..., H] to float [..., H] in the compute dtype."""
        return self.layer_norm(self.dense(hidden, training=training))

    def part_weights(self) -> list[PartWeights]:
        """The weights of both parts."""
        return [*self.dense.part_weights(), *self.layer_norm.part_weights()]


@keras.saving.register_keras_serializable(package="bert_tf")
class ModernBertPooler(ConfiguredLayer):
    """Transforms the first token of a sequence or the mean of its tokens."""

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights of the transform."""
        self.transform = HeadTransform(
            self.config, name="transform", dtype=self.dtype_policy
        )
        self.transform.build(None)

    def call(
        self,
        sequence_output: Any,
        positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Pools; see `bert_tf.layers.Pooler`."""
        first = first_tokens(sequence_output, positions)
        return self.transform(first, training=training)

    def part_weights(self) -> list[PartWeights]:
        """The weights of the transform."""
        return self.transform.part_weights()


@keras.saving.register_keras_serializable(package="bert_tf")
class ModernBertEncoder(BertEncoder):
    """The encoder of Warner et al. 2024, section 2.1.

    A `BertEncoder` of a `ModernBertConfig`: rows have one segment, 0; position
    ids are not read, because scores depend on distances between tokens.
    pooled_output is the head's dense layer and layer norm on the first token or
    the mean of a sequence, by classifier_pooling. A pre-trained ModernBERT has
    none; it is initialized randomly.
    """

    config: ModernBertConfig
    config_class = ModernBertConfig
    embeddings_class = WordEmbeddings
    pooler_class = ModernBertPooler
    token_head_class = HeadTransform

    def make_block(
        self, numbers: tuple[int, ...], name: str
    ) -> TransformerBlock:
        """Makes the block of a layer."""
        return ModernBertBlock(
            self.config, *numbers, name=name, dtype=self.dtype_policy
        )

    def make_final(self) -> LayerNorm:
        """Makes the layer norm after the last block."""
        return LayerNorm(
            self.config, name="final_layer_norm", dtype=self.dtype_policy
        )
