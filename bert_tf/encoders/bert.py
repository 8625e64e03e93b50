"""The BERT encoder as a Keras model, and its weights as named arrays."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import keras
import numpy as np

from bert_tf.checkpoints import (
    BILSTM,
    POOLER,
    TASK_HEADS,
    Checkpoint,
    load_checkpoint,
)
from bert_tf.checkpoints.layout import encoder_parts, names_of
from bert_tf.compat import symbolic_outputs
from bert_tf.config import BertConfig
from bert_tf.encoders.inputs import check_inputs, check_options
from bert_tf.errors import UserError
from bert_tf.layers import (
    BiLSTM,
    Embeddings,
    Pooler,
    TransformerBlock,
    attention_adder,
)
from bert_tf.layers.attention import AttentionMask
from bert_tf.layers.heads import at_positions, last_positions
from bert_tf.layers.rematerialization import rematerialized
from bert_tf.layers.unpadding import TokenPlaces
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

    An ordinary Keras model: it can be called on tensors and on Keras inputs,
    compiled, fitted, saved. Its weights exist as soon as it is constructed.

    Args:
      config: the architecture.
      dtype: Keras dtype policy or its name; None takes Keras' global policy.
        "bfloat16" and "float16" store the weights so too, for inference;
        layer normalisation and softmax are computed in float32 all the same.
      name: name of the model.
      trainable: whether training changes the weights.
      rematerialize: while training, keeps of each block its input alone and
        computes the block again in the backward pass: less memory, more time,
        and the same gradients, dropout included.
      embeddings: a layer for the embeddings, such as one that shares another
        encoder's tables; None makes one.

    With the configuration's `bilstm`, a BiLSTM reads the last block's output:
    sequence_output is what it gives, and pooled_output is of the states that
    both directions end with. all_encoder_layers are the blocks' as ever, and
    pooled_only computes all positions. A row is one sequence then.

    With the configuration's `lora_rank` (Hu et al. 2021), kernels have low-rank
    updates, and of embeddings and blocks these alone are trained. They begin as
    0, so that the encoder computes what it does without them.

    Call arguments:
      inputs: a dict of int32 [B, S]: input_ids, input_mask (1 = token, 0 =
        padding) and segment_ids; optional position_ids (default 0..S-1) and,
        for rows that hold several sequences, sequence_ids (0 = padding,
        1..k = sequence of the row) and cls_positions [B, K], where they
        begin; and word_embeddings, float [B, S, E], which take the place of
        the rows of the word table that input_ids name, for gradients with
        respect to words. Other keys are left alone.
      training: whether dropout is active.
      return_all_layers: adds all_encoder_layers and embedding_output.
      return_attention_probs: adds attention_probs.
      pooled_only: returns pooled_output alone, and computes of the last layer
        only what the pooled position needs of it.
      unpadded: computes on the tokens alone; attention sees sequences of
        similar length together, those of one row each by itself. The first
        token of a row is pooled, wherever it stands, or what cls_positions
        name; outputs of padding repeat those of tokens. Not on JAX under jit,
        where the number of tokens would have to be known.

    Returns:
      A dict in the compute dtype: sequence_output [B, S, H] and pooled_output
      [B, H], with cls_positions [B, K, H], of the first token of a sequence
      or, in a causal model, of its last; on request all_encoder_layers, a
      tuple of L tensors [B, S, H] of which the last is sequence_output
      (without a BiLSTM), embedding_output [B, S, H], and attention_probs, a
      tuple of L tensors [B, N, S, S] (before dropout).

    Raises:
      UserError: an input is missing, S exceeds the longest input, or
        pooled_only or unpadded do not go with what else is asked for.
    """

    # What an architecture has of its own.
    config_class: ClassVar[type[BertConfig]] = BertConfig
    embeddings_class: ClassVar[type[Embeddings]] = Embeddings
    block_class: ClassVar[type[TransformerBlock]] = TransformerBlock
    pooler_class: ClassVar[type[keras.layers.Layer]] = Pooler

    def __init__(
        self,
        config: BertConfig,
        dtype: Any = None,
        name: str = "bert",
        trainable: bool = True,
        rematerialize: bool = False,
        embeddings: Embeddings | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        if type(config) is not self.config_class:
            raise UserError(
                f"{type(self).__name__}: config is a {type(config).__name__}; "
                f"it takes a {self.config_class.__name__}."
            )
        self.config = config
        self.rematerialize = rematerialize
        policy = self.dtype_policy
        if embeddings is None:
            embeddings = self.embeddings_class(
                config, name="embeddings", dtype=policy
            )
        self.embeddings = embeddings
        made: dict[tuple[int, ...], TransformerBlock] = {}
        for numbers in config.block_numbers:
            if numbers not in made:
                made[numbers] = self.block_class(
                    config, name=f"layer_{len(made)}", dtype=policy
                )
        # That of each layer; layers may share one.
        self.blocks = [made[numbers] for numbers in config.block_numbers]
        self.bilstm = None
        if config.bilstm:
            self.bilstm = BiLSTM(config, name="bilstm", dtype=policy)
        self.pooler = self.pooler_class(config, name="pooler", dtype=policy)
        self.build()

    built: bool

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; called once, by the constructor."""
        if self.built:
            return
        for layer in (self.embeddings, *self.blocks, self.pooler):
            if not layer.built:
                layer.build(None)
        if self.bilstm is not None:
            self.bilstm.build(None)
        if self.config.lora_rank:
            for layer in (self.embeddings, *self.blocks):
                for weight in layer.weights:
                    weight.trainable = is_low_rank(weight.name)
        self.built = True

    def __repr__(self) -> str:
        size = self.config.in_words(weight.shape for weight in self.weights)
        return f"<{type(self).__name__} name={self.name}, {size}>"

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any):
        """Checks the arguments, then calls; see the class."""
        # Here already, because Keras wraps what call() raises in many lines.
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
        places = None
        if unpadded:
            places = TokenPlaces(
                inputs["input_mask"], self.config.causal, packed
            )
        # Of the last block, what the pooler reads; a BiLSTM reads all, and of
        # a row of several sequences no single token is pooled.
        cls_only = pooled_only and self.bilstm is None
        if places is not None and packed is not None:
            cls_only = False
        # Only of a causal model; otherwise the first position is pooled.
        last = None
        if self.config.causal and (places is None or packed is not None):
            last = last_positions(inputs["input_mask"], packed, starts)
        if places is None:
            embedded, layers, probabilities = self._encode_rows(
                inputs, training, cls_only, return_attention_probs, last
            )
        else:
            probabilities = []
            embedded, layers = self._encode_tokens(
                inputs, places, training, cls_only
            )

        def rows(hidden: Any) -> Any:
            return hidden if places is None else places.padded(hidden)

        hidden = layers[-1]
        if cls_only:
            pooled = self.pooler(hidden, training=training)
            outputs = {"pooled_output": pooled}
        else:
            sequence = rows(hidden)
            if self.bilstm is not None:
                sequence, ends = self.bilstm(sequence, inputs["input_mask"])
                pooled = self.pooler(ends[:, None], training=training)
            elif places is None or packed is not None or starts is not None:
                pooled = self._pool(sequence, inputs, last, training)
            else:
                first = places.pooled(hidden)
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
        adders = self.attention_adders(
            inputs["input_mask"], inputs.get("sequence_ids")
        )
        embedded = hidden = self.embeddings(
            inputs["input_ids"],
            inputs["segment_ids"],
            inputs.get("position_ids"),
            training=training,
            word_embeddings=inputs.get("word_embeddings"),
        )
        layers, probabilities = [], []
        for layer, block in enumerate(self.blocks):

            def attend(
                hidden: Any, block: Any = block, layer: int = layer
            ) -> Any:
                outputs = block(
                    hidden,
                    adders[layer],
                    cls_only=cls_only and layer == len(self.blocks) - 1,
                    training=training,
                    cls_positions=last,
                    return_probabilities=return_probabilities,
                )
                return outputs if return_probabilities else outputs[:1]

            hidden, *found = self._run(block, attend, hidden, training)
            layers.append(hidden)
            probabilities += found
        return embedded, layers, probabilities

    def _encode_tokens(
        self,
        inputs: Mapping[str, Any],
        places: TokenPlaces,
        training: bool | None,
        cls_only: bool,
    ) -> tuple[Any, list[Any]]:
        """Embeddings and hidden states of the tokens alone, [T, H]."""
        positions = inputs.get("position_ids")
        embedded = self.embeddings(
            places.tokens(inputs["input_ids"]),
            places.tokens(inputs["segment_ids"]),
            places.positions()
            if positions is None
            else places.tokens(positions),
            training=training,
        )
        embedded = hidden = embedded[0]
        groups = [self._group_masks(tokens) for tokens in places.masks]
        layers = []
        for layer, block in enumerate(self.blocks):
            attend = functools.partial(
                block.of_tokens,
                places=places,
                masks=[masks[layer] for masks in groups],
                cls_only=cls_only and layer == len(self.blocks) - 1,
                training=training,
            )
            hidden = self._run(block, attend, hidden, training)
            layers.append(hidden)
        return embedded, layers

    def attention_adders(
        self, input_mask: Any, sequence_ids: Any = None
    ) -> list[Any]:
        """What each layer adds to its attention scores; of a BERT one for all.

        Args:
          input_mask: int32 [B, S], 1 = token, 0 = padding.
          sequence_ids: int32 [B, S]; None: a row is one sequence.

        Returns:
          For each layer float32, broadcast to [B, N, S, S]; see
          `attention_adder`.
        """
        adder = attention_adder(
            input_mask, sequence_ids, causal=self.config.causal
        )
        return [adder] * len(self.blocks)

    def _group_masks(self, tokens: Any) -> list[AttentionMask]:
        """The mask of each layer for a group [G, L] of rows; see `TokenPlaces`.

        Layers with one mask get the same object.
        """
        adders = self.attention_adders(tokens)
        length, heads = tokens.shape[1], self.config.num_attention_heads
        made = {
            id(adder): AttentionMask.of(adder, length, heads)
            for adder in {id(adder): adder for adder in adders}.values()
        }
        return [made[id(adder)] for adder in adders]

    def _pool(
        self,
        hidden: Any,
        inputs: Mapping[str, Any],
        last: Any,
        training: bool | None,
    ) -> Any:
        """The pooled output of hidden states [B, S, H] of padded rows.

        `last` is where a causal model pools, int32 [B, K]; None of another.
        """
        places = inputs.get("cls_positions")
        if last is not None and places is None:
            hidden, last = at_positions(hidden, last), None
        elif last is None:
            last = places
        return self.pooler(hidden, last, training=training)

    @property
    def output(self) -> list[keras.KerasTensor]:
        """The outputs of that call on Keras inputs which had the most.

        Keras assumes that each call has the number of outputs that this has;
        of a layer it is that of the first call, which may have had the pooled
        output alone.
        """
        calls = symbolic_outputs(self)
        return max(calls, key=len) if calls else super().output

    def _run(
        self,
        block: TransformerBlock,
        function: Callable[[Any], Any],
        hidden: Any,
        training: bool | None,
    ) -> Any:
        """What a function of a block returns; see `rematerialized`."""
        if self.rematerialize and training:
            return rematerialized(block, function, hidden)
        return function(hidden)

    def compute_output_spec(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
        return_attention_probs: bool = False,
        pooled_only: bool = False,
        unpadded: bool = False,
    ) -> dict[str, Any]:
        """The outputs as symbols, without tracing every layer."""
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
        """The weights by their names in our model folders."""
        config = self.config
        layers = [self.embeddings, *dict.fromkeys(self.blocks)]
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
            are left alone.

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

        A folder without a pooler (some of Hugging Face's task models) leaves
        the pooler as drawn, and one line says so; another says which
        fine-tuned head the folder has, since that is no part of the encoder.

        Args:
          source: a model folder of any family, hf://organisation/name or
            keras_hub://preset; see `load_checkpoint`.
          dtype: Keras dtype policy or its name.
          rematerialize: see the class.
          ignore: a regular expression of arrays that are no part of the model;
            see `load_checkpoint`.

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
        """The encoder of a checkpoint; see `from_checkpoint`."""
        encoder = cls(
            checkpoint.config, dtype=dtype, rematerialize=rematerialize
        )
        for head in checkpoint.heads:
            if head in TASK_HEADS:
                source = checkpoint.source
                log(
                    f"{source}: its {head} is left out; restore(model, "
                    f"{source!r}) loads it into a model that has one."
                )
        restore_weights(
            encoder.named_weights(), encoder.config, encoder.name, checkpoint
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
        """Builds the encoder from what `get_config` returned."""
        return cls(
            BertConfig.from_dict(config["config"], cls.__name__),
            dtype=keras.dtype_policies.deserialize(config["dtype"]),
            name=config["name"],
            trainable=config["trainable"],
            # Files of older models do not say.
            rematerialize=config.get("rematerialize", False),
        )
