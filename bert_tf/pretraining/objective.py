"""Pre-training objectives: their losses, metrics and normalisation."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
from keras import ops

from bert_tf.checkpoints import (
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    REPLACED_TOKENS,
)
from bert_tf.distiller import soft_target_loss
from bert_tf.errors import UserError, did_you_mean
from bert_tf.records.recipe import SENTENCE_ORDER, SENTENCE_PAIRS
from bert_tf.user_modules import is_user_module, run_user_module

if TYPE_CHECKING:
    from bert_tf.training.step import Objective

# Google's masked-LM mean divides by the sum of the weights plus this
# (google-research/bert, run_pretraining.py, get_masked_lm_output).
MASKED_LM_EPSILON = 1e-5
PRETRAINING_HEADS = (POOLER, MASKED_LM, NEXT_SENTENCE, REPLACED_TOKENS)
# google-research/electra, run_pretraining.py, configure_pretraining.py.
_ELECTRA_EPSILON = 1e-6
_REPLACED_TOKENS_WEIGHT = 50.0
# The methods of `Objective` in bert_tf/training/step.py.
_METHODS = ("loss_weights", "__call__", "normalise")
# The name of the objective in a user's file.
_NAME_IN_FILE = "OBJECTIVE"

Sums = tuple[dict[str, Any], dict[str, tuple[Any, Any]]]


@dataclasses.dataclass(frozen=True)
class ObjectiveTraits:
    """Properties of an objective that a pre-training run depends on.

    They are read from attributes of the objective with these names; the
    defaults apply to attributes that it does not have.

    Attributes:
      heads: the heads that it trains: pooler, masked_lm, next_sentence,
        replaced_tokens. Other heads are not changed.
      sequences: the kind of records whose labels next_sentence learns
        (`RecordsRecipe.sequences`).
      reads_next_tokens: whether the target of each token is the next one. The
        encoder must be causal then, and no token is masked.
      detects_replaced_tokens: whether a generator replaces tokens, as in
        ELECTRA.
      masks: defaults of the recipe's settings of masking; other settings
        default to those of the records.
      token_task: prefix of the loss and accuracy of tokens, "masked_lm" for
        masked_lm_loss and masked_lm_accuracy, for which the report has
        perplexities and a unigram baseline. Empty for none.
      metrics: names of the metrics, which Keras' `fit` needs in advance.
    """

    heads: tuple[str, ...] = (POOLER, MASKED_LM, NEXT_SENTENCE)
    sequences: str = SENTENCE_PAIRS
    reads_next_tokens: bool = False
    detects_replaced_tokens: bool = False
    masks: Mapping[str, float] = dataclasses.field(default_factory=dict)
    token_task: str = ""
    metrics: tuple[str, ...] = ()

    @classmethod
    def of(cls, objective: object) -> Self:
        """Reads the traits of an objective.

        Raises:
          UserError: its heads are not a tuple of known heads.
        """
        traits = cls(
            **{
                field.name: getattr(objective, field.name)
                for field in dataclasses.fields(cls)
                if hasattr(objective, field.name)
            }
        )
        for head in traits.heads:
            if head not in PRETRAINING_HEADS:
                raise UserError(
                    f"{type(objective).__name__}: heads is {traits.heads!r}; "
                    f"it takes a tuple of {', '.join(PRETRAINING_HEADS)}."
                )
        return traits


class LanguageModeling:
    """Predicts tokens at given positions; the base of the objectives here.

    Calls return sums and `loss_weights` their denominators, so that a batch may
    be split over replicas and accumulation steps: `normalise` of the summed
    parts is the loss of the whole batch. For its attributes see
    `ObjectiveTraits`.
    """

    heads: ClassVar[tuple[str, ...]] = (MASKED_LM,)
    reads_next_tokens: ClassVar[bool] = False
    detects_replaced_tokens: ClassVar[bool] = False
    token_task: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the denominator of each loss, from the batch only.

        Args:
          batch: masked_lm_weights float32 [B, P].

        Returns:
          Name to a scalar float32, the number of predicted tokens.
        """
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        return {f"{self.token_task}_loss": ops.sum(weights)}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the negative log likelihoods and the correct predictions.

        Args:
          outputs: masked_lm_logits [B, P, V].
          batch: masked_lm_ids int32 [B, P], masked_lm_weights float32 [B, P].

        Returns:
          losses: name to a scalar float32, the weighted sum.
          metrics: name to (weighted sum, weight), scalars float32.
        """
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        loss, accuracy = _weighted_sums(
            outputs["masked_lm_logits"], batch["masked_lm_ids"], weights
        )
        return (
            {f"{self.token_task}_loss": loss},
            {f"{self.token_task}_accuracy": accuracy},
        )

    def soft_target_weight(self, batch: Mapping[str, Any]) -> Any:
        """Returns the denominator of `soft_target_loss`: the tokens."""
        return ops.sum(ops.cast(batch["input_mask"], "float32"))

    def soft_target_loss(
        self,
        outputs: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Mapping[str, Any],
        temperature: float,
    ) -> Any:
        """Sums the divergence from a teacher over every token of the batch.

        Masked tokens and all others, as in Sanh et al. 2019, section 3.

        Args:
          outputs: token_logits [B, S, V] and token_weights [B, S].
          teacher: token_logits [B, S, V] of the teacher.
          batch: unused.
          temperature: see `bert_tf.distiller.soft_target_loss`.
        """
        del batch
        loss = soft_target_loss(
            outputs["token_logits"], teacher["token_logits"], temperature
        )
        return ops.sum(outputs["token_weights"] * loss)

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Divides summed losses by their summed weights.

        Args:
          losses: name to a scalar, the sum over the whole batch.
          weights: name to a scalar, `loss_weights` over the whole batch.

        Returns:
          Name to the mean loss; the loss to minimise is their plain sum.
        """
        name = f"{self.token_task}_loss"
        return {name: losses[name] / (weights[name] + MASKED_LM_EPSILON)}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, for Keras' files."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the objective from what `get_config` returned."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLanguageModeling(LanguageModeling):
    """Masked LM only (Devlin et al. 2019, section 5.1, "No NSP")."""

    token_task = MASKED_LM
    metrics: ClassVar[tuple[str, ...]] = ("masked_lm_accuracy",)


@keras.saving.register_keras_serializable(package="bert_tf")
class LeftToRightLanguageModeling(LanguageModeling):
    """Left-to-right LM of a causal encoder (section 5.1, "LTR & No NSP").

    The batch holds its targets like those of masked LM: masked_lm_ids has the
    token after each of masked_lm_positions.
    """

    reads_next_tokens = True
    token_task = "next_token"
    metrics = ("next_token_accuracy",)


class PretrainingObjective(MaskedLanguageModeling):
    """Masked LM and next sentence (Devlin et al. 2019, section 3.1)."""

    heads = (POOLER, MASKED_LM, NEXT_SENTENCE)
    sequences: ClassVar[str] = SENTENCE_PAIRS
    metrics = ("masked_lm_accuracy", "next_sentence_accuracy")
    # Prefix of the loss and accuracy of the head next_sentence.
    pair_task: ClassVar[str] = NEXT_SENTENCE

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of masked tokens and of sequences with a label.

        Args:
          batch: masked_lm_weights float32 [B, P] and next_sentence_labels
            int32 [B], for packed rows [B, K], -1 for no label.
        """
        sequences = ops.sum(_sequence_weights(batch))
        name = f"{self.pair_task}_loss"
        return super().loss_weights(batch) | {name: sequences}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the losses and correct predictions, see `LanguageModeling`.

        Args:
          outputs: also next_sentence_logits [B, 2], for packed rows [B, K, 2].
          batch: also next_sentence_labels, see `loss_weights`.

        Raises:
          UserError: there is not one label for each sequence.
        """
        losses, metrics = super().__call__(outputs, batch)
        logits = outputs["next_sentence_logits"]
        labels = batch["next_sentence_labels"]
        if len(labels.shape) != len(logits.shape) - 1:
            # They would be broadcast.
            raise UserError(
                f"next_sentence_labels: has the shape {tuple(labels.shape)}; "
                "give one label for each sequence, in the shape "
                f"{tuple(logits.shape[:-1])}."
            )
        loss, accuracy = _weighted_sums(
            logits, ops.maximum(labels, 0), _sequence_weights(batch)
        )
        return (
            losses | {f"{self.pair_task}_loss": loss},
            metrics | {f"{self.pair_task}_accuracy": accuracy},
        )

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Divides summed losses by their weights; see `LanguageModeling`."""
        name = f"{self.pair_task}_loss"
        mean = losses[name] / weights[name]
        return super().normalise(losses, weights) | {name: mean}


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceOrderPrediction(PretrainingObjective):
    """Masked LM and sentence order (Lan et al. 2020, section 3.1)."""

    sequences = SENTENCE_ORDER
    metrics = ("masked_lm_accuracy", "sentence_order_accuracy")
    pair_task = SENTENCE_ORDER


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokenDetection(MaskedLanguageModeling):
    """Detection of replaced tokens (Clark et al. 2020, section 2).

    The generator is trained on masked LM and the discriminator on detection,
    with a weight of 50. Of the chosen tokens 85 % are masked and the others
    unchanged, as in google-research/electra.
    """

    heads = (MASKED_LM, REPLACED_TOKENS)
    detects_replaced_tokens = True
    masks: ClassVar[Mapping[str, float]] = {
        "mask_token_rate": 0.85,
        "random_token_rate": 0.0,
    }
    metrics = (
        "masked_lm_accuracy",
        "replaced_token_precision",
        "replaced_token_recall",
    )

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of masked tokens and of all tokens.

        Args:
          batch: masked_lm_weights float32 [B, P], input_mask int32 [B, S].
        """
        tokens = ops.sum(ops.cast(batch["input_mask"], "float32"))
        return super().loss_weights(batch) | {"replaced_token_loss": tokens}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the losses of the generator and the discriminator.

        The metrics of the discriminator are precision and recall of replaced
        tokens at a probability of 0.5. Otherwise see `LanguageModeling`.

        Args:
          outputs: also replaced_token_logits [B, S] and replaced_tokens [B, S],
            1 for a replaced token.
          batch: also input_mask int32 [B, S].
        """
        losses, metrics = super().__call__(outputs, batch)
        is_token = ops.cast(ops.not_equal(batch["input_mask"], 0), "float32")
        logits = ops.cast(outputs["replaced_token_logits"], "float32")
        replaced = is_token * ops.cast(outputs["replaced_tokens"], "float32")
        # The sigmoid cross entropy in a form without overflow.
        loss = ops.relu(logits) - logits * replaced
        loss = loss + ops.log1p(ops.exp(-ops.abs(logits)))
        predicted = is_token * ops.cast(logits > 0, "float32")
        correct = ops.sum(predicted * replaced)
        return losses | {"replaced_token_loss": ops.sum(is_token * loss)}, {
            **metrics,
            "replaced_token_precision": (correct, ops.sum(predicted)),
            "replaced_token_recall": (correct, ops.sum(replaced)),
        }

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the mean losses, the discriminator's times 50."""
        means = {n: losses[n] / (weights[n] + _ELECTRA_EPSILON) for n in losses}
        means["replaced_token_loss"] *= _REPLACED_TOKENS_WEIGHT
        return means


OBJECTIVES: Mapping[str, LanguageModeling] = {
    "masked_lm_next_sentence": PretrainingObjective(),
    "masked_lm": MaskedLanguageModeling(),
    "masked_lm_sentence_order": SentenceOrderPrediction(),
    "left_to_right": LeftToRightLanguageModeling(),
    "replaced_tokens": ReplacedTokenDetection(),
}


def load_objective(name: str) -> "Objective":
    """Returns the objective that a recipe names.

    Args:
      name: one of `OBJECTIVES`, or the path of a Python file that defines
        OBJECTIVE, an object with the methods of `Objective` and optionally the
        attributes of `ObjectiveTraits`.

    Raises:
      UserError: an unknown name, or the file defines no valid objective.
    """
    takes = (
        f"one of {', '.join(OBJECTIVES)}, or a Python file that defines "
        f"{_NAME_IN_FILE}"
    )
    if not is_user_module(name):
        if name in OBJECTIVES:
            return OBJECTIVES[name]
        hint = did_you_mean(name, OBJECTIVES)
        raise UserError(
            f"`objective`={name}: no such objective.{hint} It takes {takes}."
        )
    module = run_user_module(
        name,
        "objective",
        takes,
        "objectives to derive from are in bert_tf.pretraining.objective",
    )
    objective = getattr(module, _NAME_IN_FILE, None)
    if objective is None or isinstance(objective, type):
        raise UserError(
            f"`objective`={name}: the file defines no {_NAME_IN_FILE}; write "
            f"{_NAME_IN_FILE} = MyObjective(), of a class derived from "
            "PretrainingObjective of bert_tf.pretraining.objective."
        )
    missing = [
        method
        for method in _METHODS
        if not callable(getattr(objective, method, None))
    ]
    if missing:
        raise UserError(
            f"`objective`={name}: {_NAME_IN_FILE} is of type "
            f"{type(objective).__name__}, which has no "
            f"{' and no '.join(missing)}; derive it from PretrainingObjective "
            "of bert_tf.pretraining.objective."
        )
    try:
        ObjectiveTraits.of(objective)
    except UserError as error:
        raise UserError(f"`objective`={name}: {error}") from None
    return objective


def _sequence_weights(batch: Mapping[str, Any]) -> Any:
    """Returns 1 for each sequence with a label and 0 for the others."""
    return ops.cast(batch["next_sentence_labels"] >= 0, "float32")


def _weighted_sums(
    logits: Any, labels: Any, weights: Any
) -> tuple[Any, tuple[Any, Any]]:
    """Returns the summed cross entropy, and correct predictions and weights."""
    logits = ops.cast(logits, "float32")
    nll = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    predicted = ops.argmax(logits, axis=-1)
    correct = ops.equal(predicted, ops.cast(labels, predicted.dtype))
    correct = ops.sum(weights * ops.cast(correct, "float32"))
    return ops.sum(weights * nll), (correct, ops.sum(weights))
