"""The BERT encoder as a Keras model, and its weights as named arrays."""

import functools
import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints import (
    BILSTM,
    POOLER,
    TASK_HEADS,
    Checkpoint,
    load_checkpoint,
)
from bert_tf.checkpoints.layout import encoder_parts, names_of
from bert_tf.compat import symbolic_outputs
from bert_tf.config import MEAN, BertConfig
from bert_tf.encoders.inputs import check_inputs, check_options
from bert_tf.errors import UserError
from bert_tf.layers import (
    BiLSTM,
    Embeddings,
    LayerNorm,
    Pooler,
    TransformerBlock,
    attention_bias,
)
from bert_tf.layers.attention import AttentionMask
from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.heads import (
    at_positions,
    last_positions,
    sequence_means,
)
from bert_tf.layers.initialization import assigned_later
from bert_tf.layers.rematerialization import rematerialized
from bert_tf.layers.traced_once import can_trace_once, traced_once
from bert_tf.layers.unpadding import TokenIndices
from bert_tf.named_weights import (
    NamedWeights,
    arrays_of,
    assign_arrays,
    head_weights,
    is_low_rank,
    named_by_parts,
    restore_weights,
)
from bert_tf.progress import log


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(keras.Model):
    """The encoder of Devlin et al. 2019, section 3, with its pooler.

    A Keras model: call it on tensors or Keras inputs, compile, fit, save. Its
    weights are created by the constructor.

    Args:
      config: the architecture.
      dtype: Keras dtype policy or its name; None takes Keras' global policy.
        "bfloat16" and "float16" also store the weights in 16 bits, for
        inference; layer norm and softmax are computed in float32.
      name: name of the model.
      trainable: whether training changes the weights.
      rematerialize: while training, stores only the input of each block and
        recomputes the block in the backward pass: less memory, more time,
        the same gradients and dropout.
      embeddings: a layer for the embeddings, such as one that shares another
        encoder's tables; None makes one.
      max_seq_length: the longest row; None: as long as the architecture allows.
        Where rows are few and short, their graph is smaller.

    With `bilstm` in the configuration, a BiLSTM reads the last block's output:
    sequence_output is its output and pooled_output is computed from the final
    states of both directions. all_encoder_layers are the blocks' outputs, and
    pooled_only computes all positions. Rows hold one sequence each.

    With classifier_pooling "mean" in the configuration, the pooler reads the
    mean of a sequence's tokens instead of its first token, and pooled_only
    computes all positions.

    With `lora_rank` in the configuration (Hu et al. 2021), kernels have
    low-rank updates, the only trainable weights of embeddings and blocks. They
    are initially 0, so the outputs are unchanged.

    Call arguments:
      inputs: a dict of int32 [B, S]: input_ids, input_mask (1 = token, 0 =
        padding) and segment_ids; optionally position_ids (default 0..S-1) and,
        for rows of several sequences, sequence_ids (0 = padding, 1..k =
        sequence of the row) and cls_positions [B, K], their first positions;
        and word_embeddings, float [B, S, E], which replace the word table's
        rows of input_ids, for gradients with respect to words. Other keys are
        ignored.
      training: whether dropout is active.
      return_all_layers: adds all_encoder_layers and embedding_output.
      return_attention_probs: adds attention_probs.
      pooled_only: returns only pooled_output, and computes only the pooled
        position of the last layer.
      unpadded: computes without padding; attention is computed over groups of
        sequences of similar length, one sequence per row. Pools the first
        token of a row, at any position, or those at cls_positions; outputs at
        padding repeat those of tokens. Not on JAX under jit, which requires
        static shapes.

    Returns:
      A dict in the compute dtype: sequence_output [B, S, H] and pooled_output
      [B, H], with cls_positions [B, K, H], of the first token of a sequence
      or, in a causal model, of its last; on request all_encoder_layers, a
      tuple of L tensors [B, S, H] of which the last is sequence_output
      (without a BiLSTM), embedding_output [B, S, H], and attention_probs, a
      tuple of L tensors [B, N, S, S] (before dropout).

    Raises:
      UserError: an input is missing, S exceeds the longest input, or
        pooled_only or unpadded exclude another argument.
    """

    # Overridden by the encoders of other architectures.
    config_class: ClassVar[type[BertConfig]] = BertConfig
    embeddings_class: ClassVar[type[Embeddings]] = Embeddings
    block_class: ClassVar[type[TransformerBlock]] = TransformerBlock
    pooler_class: ClassVar[type[keras.layers.Layer]] = Pooler
    # Transforms tokens before the last layer of heads on tokens, if any.
    token_head_class: ClassVar[type[ConfiguredLayer] | None] = None

    def __init__(
        self,
        config: BertConfig,
        dtype: Any = None,
        name: str = "bert",
        trainable: bool = True,
        rematerialize: bool = False,
        embeddings: Embeddings | None = None,
        max_seq_length: int | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        if type(config) is not self.config_class:
            raise UserError(
                f"{type(self).__name__}: config is a {type(config).__name__}; "
                f"it takes a {self.config_class.__name__}."
            )
        self.config = config
        self.rematerialize = rematerialize
        self.max_seq_length = max_seq_length or config.longest_input
        policy = self.dtype_policy
        if embeddings is None:
            embeddings = self.embeddings_class(
                config, name="embeddings", dtype=policy
            )
        self.embeddings = embeddings
        blocks: dict[tuple[int, ...], TransformerBlock] = {}
        for numbers in config.block_numbers:
            if numbers not in blocks:
                blocks[numbers] = self.make_block(
                    numbers, f"layer_{len(blocks)}"
                )
        # The block of each layer; layers may share one.
        self.blocks = [blocks[numbers] for numbers in config.block_numbers]
        self.final = self.make_final()
        self.bilstm = None
        if config.bilstm:
            self.bilstm = BiLSTM(config, name="bilstm", dtype=policy)
        self.pooler = self.pooler_class(config, name="pooler", dtype=policy)
        self.build()

    built: bool

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; called by the constructor."""
        if self.built:
            return
        for layer in (self.embeddings, *self.blocks, self.pooler):
            if not layer.built:
                layer.build(None)
        if self.final is not None:
            self.final.build((None, None, self.config.hidden_size))
        if self.bilstm is not None:
            self.bilstm.build(None)
        if self.config.lora_rank:
            layers = [self.embeddings, *self.blocks, self.final]
            for layer in (layer for layer in layers if layer is not None):
                for weight in layer.weights:
                    weight.trainable = is_low_rank(weight.name)
        self.built = True

    def make_block(
        self, numbers: tuple[int, ...], name: str
    ) -> TransformerBlock:
        """Makes the block with these numbers; see `block_numbers`."""
        del numbers
        return self.block_class(self.config, name=name, dtype=self.dtype_policy)

    def make_final(self) -> LayerNorm | None:
        """Makes the layer after the last block; a BERT has none."""
        return None

    @property
    def pools_all(self) -> bool:
        """Whether the pooler reads all tokens, not only the first."""
        return self.config.classifier_pooling == MEAN

    def __repr__(self) -> str:
        size = self.config.in_words(weight.shape for weight in self.weights)
        return f"<{type(self).__name__} name={self.name}, {size}>"

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any):
        """Checks the arguments, then calls; see the class."""
        # Keras wraps errors of call() in many lines, so check before it.
        check_inputs(inputs, self.config, self.name)
        check_options(inputs, kwargs, self.name)
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
        return_attention_probs: bool = False,
        pooled_only: bool = False,
        unpadded: bool = False,
    ) -> dict[str, Any]:
        """Encodes a batch; see the class for arguments and outputs."""
        check_inputs(inputs, self.config, self.name)
        packed, starts = map(inputs.get, ("sequence_ids", "cls_positions"))
        token_indices = None
        if unpadded:
            token_indices = TokenIndices(
                inputs["input_mask"], self.config.causal, packed
            )
        # Whether the last block computes only the pooled token of each row: a
        # BiLSTM or the pooler may read all, and unpadded packed rows have
        # several.
        cls_only = pooled_only and self.bilstm is None and not self.pools_all
        if token_indices is not None and packed is not None:
            cls_only = False
        # The pooled positions of a causal model; others pool the first.
        last = None
        if self.config.causal and (token_indices is None or packed is not None):
            last = last_positions(inputs["input_mask"], packed, starts)
        if token_indices is None:
            embedded, layers, probabilities = self._encode_rows(
                inputs, training, cls_only, return_attention_probs, last
            )
        else:
            probabilities = []
            embedded, layers = self._encode_tokens(
                inputs, token_indices, training, cls_only
            )

        def rows(hidden: Any) -> Any:
            return (
                hidden
                if token_indices is None
                else token_indices.padded(hidden)
            )

        hidden = [embedded, *layers][-1]
        if self.final is not None:
            hidden = self.final(hidden)
            if not cls_only:
                layers = [*layers[:-1], hidden]
        if cls_only:
            pooled = self.pooler(hidden, training=training)
            outputs = {"pooled_output": pooled}
        else:
            sequence = rows(hidden)
            if self.bilstm is not None:
                sequence, ends = self.bilstm(sequence, inputs["input_mask"])
                pooled = self.pooler(ends[:, None], training=training)
            elif (
                token_indices is None
                or packed is not None
                or starts is not None
                or self.pools_all
            ):
                pooled = self.pool(sequence, inputs, last, training)
            else:
                first = token_indices.pooled(hidden)
                pooled = self.pooler(first, training=training)
            outputs = {"pooled_output": pooled}
            if not pooled_only:
                outputs["sequence_output"] = sequence
        if return_all_layers:
            outputs["all_encoder_layers"] = tuple(map(rows, layers))
            outputs["embedding_output"] = rows(embedded)
        if return_attention_probs:
            outputs["attention_probs"] = tuple(probabilities)
        return outputs

    def _encode_rows(
        self,
        inputs: Mapping[str, Any],
        training: bool | None,
        cls_only: bool,
        return_probabilities: bool,
        last: Any,
    ) -> tuple[Any, list[Any], list[Any]]:
        """Embeddings, hidden states and probabilities of padded rows."""
        biases = self.attention_biases(
            inputs["input_mask"], inputs.get("sequence_ids")
        )
        embedded = hidden = self.embeddings(
            inputs["input_ids"],
            inputs["segment_ids"],
            inputs.get("position_ids"),
            training=training,
            word_embeddings=inputs.get("word_embeddings"),
        )

        def attend(layer: int, block: TransformerBlock, hidden: Any) -> Any:
            outputs = block(
                hidden,
                biases[layer],
                cls_only=cls_only and layer == len(self.blocks) - 1,
                training=training,
                cls_positions=last,
                return_probabilities=return_probabilities,
            )
            return outputs if return_probabilities else outputs[:1]

        layers, probabilities = [], []
        keys = list(map(id, biases))
        for run in self._layer_functions(attend, keys, cls_only, training):
            hidden, *optional = run(hidden)
            layers.append(hidden)
            probabilities += optional
        return embedded, layers, probabilities

    def _encode_tokens(
        self,
        inputs: Mapping[str, Any],
        token_indices: TokenIndices,
        training: bool | None,
        cls_only: bool,
    ) -> tuple[Any, list[Any]]:
        """Embeddings and hidden states of tokens without padding, [T, H]."""
        positions = inputs.get("position_ids")
        embedded = self.embeddings(
            token_indices.tokens(inputs["input_ids"]),
            token_indices.tokens(inputs["segment_ids"]),
            token_indices.positions()
            if positions is None
            else token_indices.tokens(positions),
            training=training,
        )
        embedded = hidden = embedded[0]
        groups = [self._group_masks(tokens) for tokens in token_indices.masks]
        masks = list(zip(*groups, strict=True))

        def attend(layer: int, block: TransformerBlock, hidden: Any) -> Any:
            return block.of_tokens(
                hidden,
                token_indices,
                masks[layer],
                cls_only=cls_only and layer == len(self.blocks) - 1,
                training=training,
            )

        layers = []
        keys = [tuple(map(id, each)) for each in masks]
        for run in self._layer_functions(attend, keys, cls_only, training):
            hidden = run(hidden)
            layers.append(hidden)
        return embedded, layers

    def attention_biases(
        self, input_mask: Any, sequence_ids: Any = None
    ) -> list[Any]:
        """Computes the attention bias of each layer, without its window.

        A BERT's is the same in all layers.

        Args:
          input_mask: int32 [B, S], 1 = token, 0 = padding.
          sequence_ids: int32 [B, S]; None: a row is one sequence.

        Returns:
          For each layer float32, broadcast to [B, N, S, S]; see
          `attention_bias`.
        """
        bias = attention_bias(
            input_mask, sequence_ids, causal=self.config.causal
        )
        return [bias] * len(self.blocks)

    def _group_masks(self, input_mask: Any) -> list[AttentionMask]:
        """The attention mask of each layer for a group [G, L] of rows.

        Layers with the same bias and window share a mask.
        """
        biases = self.attention_biases(input_mask)
        length, heads = input_mask.shape[1], self.config.num_attention_heads
        masks: dict[tuple[int, int | None], AttentionMask] = {}
        found = []
        for block, bias in zip(self.blocks, biases, strict=True):
            window = block.attention.window
            key = id(bias), window
            if key not in masks:
                masks[key] = AttentionMask.of(
                    bias, length, heads, window, self.max_seq_length
                )
            found.append(masks[key])
        return found

    def pool(
        self,
        hidden: Any,
        inputs: Mapping[str, Any],
        last: Any,
        training: bool | None,
    ) -> Any:
        """Pools hidden states [B, S, H] of padded rows.

        `last` are the pooled positions of a causal model, int32 [B, K].
        """
        starts = inputs.get("cls_positions")
        if self.pools_all:
            hidden = sequence_means(
                hidden, inputs["input_mask"], inputs.get("sequence_ids"), starts
            )
            last = None
            if starts is not None:
                numbers = ops.arange(ops.shape(starts)[1], dtype=starts.dtype)
                last = ops.broadcast_to(numbers[None], ops.shape(starts))
        elif last is not None and starts is None:
            hidden, last = at_positions(hidden, last), None
        elif last is None:
            last = starts
        return self.pooler(hidden, last, training=training)

    @property
    def output(self) -> list[keras.KerasTensor]:
        """The outputs of the call on Keras inputs with the most outputs.

        Keras assumes that each call has as many outputs as this property,
        which by default is that of the first call.
        """
        calls = symbolic_outputs(self)
        return max(calls, key=len) if calls else super().output

    def _layer_functions(
        self,
        function: Callable[[int, TransformerBlock, Any], Any],
        masks: Sequence[Hashable],
        cls_only: bool,
        training: bool | None,
    ) -> Sequence[Callable[[Any], Any]]:
        """Functions that compute the layers' outputs from hidden states.

        Layers that compute the same are traced once; see `traced_once`.

        Args:
          function: maps a layer's number, its block and its inputs to outputs.
          masks: for each layer a key of its masks, equal for equal ones.
          cls_only: whether the last layer computes only the pooled tokens.
          training: whether dropout is active.
        """

        def of_block(layer: int, block: TransformerBlock, hidden: Any) -> Any:
            if self.rematerialize and training:
                run = functools.partial(function, layer, block)
                return rematerialized(block, run, hidden)
            return function(layer, block, hidden)

        runs = [functools.partial(of_block, n) for n in range(len(self.blocks))]
        each = [
            functools.partial(run, block)
            for run, block in zip(runs, self.blocks, strict=True)
        ]
        if not can_trace_once():
            return each
        keys: list[Hashable] = [
            (block.computation, mask)
            for block, mask in zip(self.blocks, masks, strict=True)
        ]
        if cls_only:
            keys[-1] = None
        counts = Counter(keys)
        # The function of a single layer would save nothing.
        return [
            functools.partial(
                traced_once, block, run, key=key, training=training
            )
            if counts[key] > 1
            else alone
            for block, run, key, alone in zip(
                self.blocks, runs, keys, each, strict=True
            )
        ]

    def compute_output_spec(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
        return_attention_probs: bool = False,
        pooled_only: bool = False,
        unpadded: bool = False,
    ) -> dict[str, Any]:
        """The symbolic outputs, without tracing every layer."""
        check_inputs(inputs, self.config, self.name)
        config = self.config
        batch, length = inputs["input_ids"].shape

        def symbol(*shape: int | None) -> keras.KerasTensor:
            return keras.KerasTensor(shape, dtype=self.compute_dtype)

        def layers(*shape: int | None) -> tuple[keras.KerasTensor, ...]:
            return tuple(symbol(*shape) for _ in self.blocks)

        wide = (batch, length, config.hidden_size)
        starts = inputs.get("cls_positions")
        rows = (batch,) if starts is None else starts.shape
        outputs = {"pooled_output": symbol(*rows, config.hidden_size)}
        if not pooled_only:
            outputs["sequence_output"] = symbol(*wide)
        if return_all_layers:
            outputs["all_encoder_layers"] = layers(*wide)
            outputs["embedding_output"] = symbol(*wide)
        if return_attention_probs:
            outputs["attention_probs"] = layers(
                batch, config.num_attention_heads, length, length
            )
        return outputs

    def named_weights(self) -> NamedWeights:
        """The weights by their names in bert_tf's model folders."""
        config = self.config
        layers = [self.embeddings, *dict.fromkeys(self.blocks)]
        if self.final is not None:
            layers.append(self.final)
        named = named_by_parts(config, encoder_parts(config), layers)
        if self.bilstm is not None:
            named |= head_weights(config, BILSTM, self.bilstm)
        if POOLER in names_of(config).heads:
            named |= head_weights(config, POOLER, self.pooler)
        return named

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The weights as float32 arrays with Google's TF1 names and shapes."""
        return arrays_of(self.named_weights())

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assigns every weight of the encoder from named arrays.

        Args:
          arrays: arrays with Google's TF1 names and shapes; those of heads
            are ignored.

        Raises:
          UserError: a name is missing, unexpected or has another shape; no
            weight is changed.
        """
        assign_arrays(self.named_weights(), arrays, self.config, self.name)

    @classmethod
    def from_checkpoint(
        cls,
        source: str | os.PathLike,
        dtype: Any = None,
        rematerialize: bool = False,
        ignore: str = "",
    ) -> Self:
        """Builds the encoder that a model folder describes, weights included.

        If the folder has no pooler (some task models of Hugging Face), the
        pooler is initialized randomly, with a message; another message names
        a fine-tuned head, which is not part of the encoder.

        Args:
          source: a model folder of any family, hf://organisation/name or
            keras_hub://preset; see `load_checkpoint`.
          dtype: Keras dtype policy or its name.
          rematerialize: see the class.
          ignore: a regular expression of arrays to ignore; see
            `load_checkpoint`.

        Raises:
          UserError: the source is no model, or its arrays do not fit its
            configuration.
        """
        checkpoint = load_checkpoint(source, ignore=ignore)
        if type(checkpoint.config) is not cls.config_class:
            raise UserError(
                f"{source}: its model_type is {checkpoint.config.model_type}, "
                f"and that of {cls.__name__} {cls.config_class.model_type}; "
                "load it with the encoder of its architecture."
            )
        return cls.of_checkpoint(checkpoint, dtype, rematerialize)

    @classmethod
    def of_checkpoint(
        cls,
        checkpoint: Checkpoint,
        dtype: Any = None,
        rematerialize: bool = False,
    ) -> Self:
        """Builds the encoder of a checkpoint; see `from_checkpoint`."""
        for head in checkpoint.heads:
            if head in TASK_HEADS:
                source = checkpoint.source
                log(
                    f"{source}: its {head} is left out; restore(model, "
                    f"{source!r}) loads it into a model that has one."
                )
        with assigned_later():
            encoder = cls(
                checkpoint.config, dtype=dtype, rematerialize=rematerialize
            )
            restore_weights(
                encoder.named_weights(),
                encoder.config,
                encoder.name,
                checkpoint,
            )
        return encoder

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {
            "config": self.config.to_dict(),
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
            "trainable": self.trainable,
            "rematerialize": self.rematerialize,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        """Builds the encoder from the result of `get_config`."""
        return cls(
            BertConfig.from_dict(config["config"], cls.__name__),
            dtype=keras.dtype_policies.deserialize(config["dtype"]),
            name=config["name"],
            trainable=config["trainable"],
            # Missing in files of older versions.
            rematerialize=config.get("rematerialize", False),
        )
