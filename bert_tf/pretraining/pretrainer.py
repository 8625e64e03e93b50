"""The pre-training model: an encoder with masked-LM and NSP heads."""

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints import (
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    head_shapes,
    load_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.encoders.inputs import check_inputs
from bert_tf.errors import UserError
from bert_tf.layers import MaskedLMHead, NextSentenceHead
from bert_tf.layers.initialization import assigned_later
from bert_tf.layers.unpadding import TokenIndices
from bert_tf.named_weights import (
    NamedWeights,
    arrays_of,
    assign_arrays,
    head_weights,
    restore_weights,
)
from bert_tf.partly_trained import PartlyTrained
from bert_tf.pretraining.objective import (
    MaskedLanguageModeling,
    ObjectiveTraits,
    PretrainingObjective,
)
from bert_tf.sources import local_folder
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.training.step import Objective

# Features of the records that training a head requires.
_LABELS = {
    MASKED_LM: ("masked_lm_ids", "masked_lm_weights"),
    NEXT_SENTENCE: ("next_sentence_labels",),
}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(PartlyTrained):
    """BERT with its masked-LM and next-sentence heads.

    A Keras model that computes its loss from the labels in the records:
    `compile(optimizer=...)` and `fit(dataset_of_records)` suffice. With several
    replicas the loss of `fit` is the mean of the replicas' losses, as in
    google-research/bert.

    Args:
      config_or_encoder: the architecture, or an encoder to put heads on.
      dtype: Keras dtype policy or its name; None takes the encoder's, or
        Keras' global policy.
      name: name of the model.
      trainable: whether training changes the weights.
      objective: the objective; None for `PretrainingObjective()`, or
        `MaskedLanguageModeling()` if the architecture has no pooler. Heads
        that it does not train are not trainable weights. An objective with a
        `get_config`, as those in bert_tf/pretraining/objective.py, can be
        saved in Keras' files.
      unpadded: computes on the tokens only, see `BertEncoder`; for packed rows
        no attention scores between sequences are computed.

    Call arguments:
      inputs: the inputs of `BertEncoder`, with cls_positions for packed rows,
        and masked_lm_positions int32 [B, P]; labels are ignored.
      training: whether dropout is active.
      return_all_layers: adds the encoder's all_encoder_layers and
        embedding_output, and token_logits and token_weights for distillation.

    Returns:
      A dict: masked_lm_logits float32 [B, P, V], next_sentence_logits float32
      [B, 2], and the encoder's sequence_output [B, S, H] and pooled_output
      [B, H] in the compute dtype. With cls_positions next_sentence_logits are
      [B, K, 2] and pooled_output is [B, K, H]. An architecture without pooler
      has no next_sentence_logits. On request token_logits float32 [B, S, V],
      those of the masked LM at every token, and token_weights float32 [B, S], 1
      for tokens and 0 for padding; unpadded, both of the T tokens only, [1, T].

    Raises:
      UserError: an input is missing, or S exceeds the longest input; or the
        objective needs a causal encoder or a pooler that the encoder lacks.
    """

    def __init__(
        self,
        config_or_encoder: BertConfig | BertEncoder,
        dtype: Any = None,
        name: str = "bert_pretrainer",
        trainable: bool = True,
        objective: "Objective | None" = None,
        unpadded: bool = False,
    ) -> None:
        if isinstance(config_or_encoder, BertEncoder) and dtype is None:
            dtype = config_or_encoder.dtype_policy
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        policy = self.dtype_policy
        self.encoder = (
            config_or_encoder
            if isinstance(config_or_encoder, BertEncoder)
            else encoder_class(config_or_encoder)(
                config_or_encoder, dtype=policy
            )
        )
        self.config = self.encoder.config
        self.unpadded = unpadded
        if objective is None:
            objective = (
                PretrainingObjective()
                if self.config.has_pooler
                else MaskedLanguageModeling()
            )
        self.objective = objective
        self._traits = ObjectiveTraits.of(objective)
        heads, name = self._traits.heads, type(objective).__name__
        pooled = [head for head in heads if head in (POOLER, NEXT_SENTENCE)]
        if pooled and not self.config.has_pooler:
            raise UserError(
                f"{name}: trains {' and '.join(pooled)}, and "
                f"{self.config.model_type} has no pooler; use an objective "
                "that trains the masked LM only (`objective`=masked_lm)."
            )
        if self._traits.reads_next_tokens and not self.config.causal:
            raise UserError(
                f"{name}: predicts next tokens, which the encoder sees; give "
                "it a config with causal=True."
            )
        if self._traits.reads_next_tokens and self.config.bilstm:
            raise UserError(
                f"{name}: predicts next tokens, which a BiLSTM reads from the "
                "right; give it a config with bilstm=False."
            )
        self._make_heads()
        if missing := [
            head for head in heads if head not in self.head_layers()
        ]:
            raise UserError(
                f"{name}: trains {missing[0]}, which a {type(self).__name__} "
                "does not have."
            )
        self.accuracies = [
            keras.metrics.Mean(name=name) for name in self._traits.metrics
        ]
        self.build()

    def _make_heads(self) -> None:
        config, policy = self.config, self.dtype_policy
        self.masked_lm = MaskedLMHead(config, name="masked_lm", dtype=policy)
        self.next_sentence = None
        if config.has_pooler:
            self.next_sentence = NextSentenceHead(
                config, name="next_sentence", dtype=policy
            )

    built: bool

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; called by the constructor."""
        if self.built:
            return
        self.masked_lm.build(None)
        if self.next_sentence is not None:
            self.next_sentence.build(None)
        self.built = True

    def head_layers(self) -> dict[str, Any]:
        """Returns head name to layer, for the heads an objective may train."""
        heads = {
            POOLER: self.encoder.pooler,
            MASKED_LM: self.masked_lm,
            NEXT_SENTENCE: self.next_sentence,
        }
        return {name: head for name, head in heads.items() if head is not None}

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the heads that a model folder stores."""
        named = self.named_weights()
        return tuple(
            head
            for head, shapes in head_shapes(self.config).items()
            if named.keys() >= shapes.keys()
        )

    def untrained(self) -> list[keras.Variable]:
        """Returns the weights of heads that the objective does not train."""
        return [
            weight
            for head, layer in self.head_layers().items()
            if head not in self._traits.heads
            for weight in layer.weights
        ]

    def __repr__(self) -> str:
        size = self.config.in_words(weight.shape for weight in self.weights)
        return f"<BertPretrainer name={self.name}, {size}>"

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any):
        """Checks the inputs and calls the model; see the class."""
        # Keras wraps an error raised in call() in many lines.
        self.check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
    ) -> dict[str, Any]:
        """Computes the encoder's outputs and all logits; see the class."""
        self.check(inputs)
        outputs = self.encoder(
            inputs,
            training=training,
            unpadded=self.unpadded,
            return_all_layers=return_all_layers,
        )
        logits = {
            "masked_lm_logits": self.masked_lm(
                outputs["sequence_output"],
                inputs["masked_lm_positions"],
                self.encoder.embeddings.word_table,
            )
        }
        if self.next_sentence is not None:
            logits["next_sentence_logits"] = self.next_sentence(
                outputs["pooled_output"]
            )
        if return_all_layers:
            logits |= self._token_logits(inputs, outputs["sequence_output"])
        return logits | outputs

    def _token_logits(
        self, inputs: Mapping[str, Any], sequence: Any
    ) -> dict[str, Any]:
        """Computes token_logits and token_weights; see the class."""
        mask = inputs["input_mask"]
        if self.unpadded:
            token_indices = TokenIndices(
                mask, self.config.causal, inputs.get("sequence_ids")
            )
            sequence = token_indices.hidden_of_tokens(sequence)[None]
            mask = ops.ones(ops.shape(sequence)[:2])
        rows, length = ops.shape(mask)
        positions = ops.broadcast_to(ops.arange(length), (rows, length))
        words = self.encoder.embeddings.word_table
        return {
            "token_logits": self.masked_lm(sequence, positions, words),
            "token_weights": ops.cast(ops.not_equal(mask, 0), "float32"),
        }

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Returns the outputs' shapes and dtypes without tracing layers."""
        self.check(inputs)
        encoded = self.encoder.compute_output_spec(inputs)

        def logits(shape: tuple[int | None, ...], size: int) -> Any:
            return keras.KerasTensor((*shape, size), dtype="float32")

        outputs = {
            "masked_lm_logits": logits(
                inputs["masked_lm_positions"].shape, self.config.vocab_size
            )
        }
        if self.next_sentence is not None:
            rows = encoded["pooled_output"].shape[:-1]
            outputs["next_sentence_logits"] = logits(rows, 2)
        return outputs | encoded

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raises `UserError` if an input is missing or invalid."""
        check_inputs(inputs, self.config, self.encoder.name)
        if "masked_lm_positions" not in inputs:
            raise UserError(
                f"{self.name}: missing input masked_lm_positions; the inputs "
                f"given are {', '.join(sorted(inputs)) or 'none'}."
            )

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the loss of a batch of records from their labels.

        Args:
          x: the records with labels.
          y: unused.
          y_pred: the outputs of the model.
          sample_weight: unused, see masked_lm_weights.
          training: unused.

        Returns:
          Scalar float32.
        """
        labels = [n for h in self._traits.heads for n in _LABELS.get(h, ())]
        if missing := [name for name in labels if name not in x]:
            raise UserError(
                f"{self.name}: the records hold no {', '.join(missing)}."
            )
        sums, _ = self.objective(y_pred, x)
        means = self.objective.normalise(sums, self.objective.loss_weights(x))
        return _ReplicaLoss("replica_loss")(0.0, sum(means.values()))

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Updates and returns the loss and the objective's metrics."""
        _, metrics = self.objective(y_pred, x)
        for accuracy in self.accuracies:
            total, weight = metrics[accuracy.name]
            mean = ops.divide_no_nan(total, weight)
            accuracy.update_state(mean, sample_weight=weight)
        return self.get_metrics_result()

    def named_weights(self) -> NamedWeights:
        """Returns the weights by their names in Google's TF1 checkpoints."""
        named = self.encoder.named_weights()
        named |= head_weights(self.config, MASKED_LM, self.masked_lm)
        if (head := self.next_sentence) is not None:
            named |= head_weights(self.config, NEXT_SENTENCE, head)
        return named

    def save_beside(self, folder: pathlib.Path, tokenizer: Tokenizer) -> None:
        """Writes further models of a subclass into a model folder."""

    def load_beside(self, folder: pathlib.Path) -> None:
        """Loads what `save_beside` wrote."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the weights as float32 arrays with Google's TF1 names."""
        return arrays_of(self.named_weights())

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assigns every weight from named arrays.

        Args:
          arrays: arrays with Google's TF1 names and shapes; those of other
            heads are ignored.

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
        objective: "Objective | None" = None,
    ) -> Self:
        """Builds the model of a model folder and loads its weights.

        Heads that the folder does not have are initialized randomly, and a line
        names them.

        Args:
          source: a model folder of any family, hf://organisation/name or
            keras_hub://preset; see `load_checkpoint`.
          dtype: Keras dtype policy or its name.
          objective: see the class.

        Raises:
          UserError: the source is not a model, or its arrays do not fit.
        """
        checkpoint, folder = load_checkpoint(source), local_folder(source)
        with assigned_later():
            pretrainer = cls(
                checkpoint.config,
                dtype=dtype,
                objective=objective,
                **cls.arguments_beside(folder),
            )
            restore_weights(
                pretrainer.named_weights(),
                pretrainer.config,
                pretrainer.name,
                checkpoint,
            )
            pretrainer.load_beside(folder)
        return pretrainer

    @classmethod
    def arguments_beside(cls, folder: pathlib.Path) -> dict[str, Any]:
        """Returns further constructor arguments that a folder determines."""
        return {}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments as plain data."""
        config = {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
            "trainable": self.trainable,
            "unpadded": self.unpadded,
        }
        # Files without an objective have the default one.
        if type(self.objective) is not PretrainingObjective:
            config["objective"] = keras.saving.serialize_keras_object(
                self.objective
            )
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        """Builds the model from what `get_config` returned."""
        return cls(**cls.arguments_of(config, custom_objects))

    @classmethod
    def arguments_of(
        cls, config: dict[str, Any], custom_objects: Any
    ) -> dict[str, Any]:
        """Returns the constructor arguments of a `get_config`."""
        return {
            "config_or_encoder": keras.saving.deserialize_keras_object(
                config["encoder"], custom_objects=custom_objects
            ),
            "dtype": keras.dtype_policies.deserialize(config["dtype"]),
            "name": config["name"],
            "trainable": config["trainable"],
            "objective": keras.saving.deserialize_keras_object(
                config.get("objective"), custom_objects=custom_objects
            ),
            "unpadded": config.get("unpadded", False),
        }


class _ReplicaLoss(keras.losses.Loss):
    """The loss of a replica, which Keras divides by the number of replicas.

    Keras' optimizers sum gradients over replicas.
    """

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss with shape [1], of which Keras takes the mean."""
        del y_true
        return ops.reshape(y_pred, (1,))
