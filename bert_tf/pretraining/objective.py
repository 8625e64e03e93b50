"""What a pre-training learns: its losses, and how they are averaged."""

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
# What any training calls (bert_tf/training/step.py, `Objective`).
_METHODS = ("loss_weights", "__call__", "normalise")
# In a user's own file.
_NAME_IN_FILE = "OBJECTIVE"

Sums = tuple[dict[str, Any], dict[str, tuple[Any, Any]]]


@dataclasses.dataclass(frozen=True)
class ObjectiveTraits:
    """What a pre-training must know of its objective, besides the numbers.

    An objective says it in attributes of these names; of one that it does not
    have, what is here is taken.

    Attributes:
      heads: the parts beside the encoder that it trains: pooler, masked_lm,
        next_sentence, replaced_tokens. The others stay as they are.
      reads_next_tokens: whether each token's target is the next one. The
        encoder must be causal then, and no token is masked.
      detects_replaced_tokens: whether a generator replaces tokens, as an
        ELECTRA is trained.
      masks: how tokens are masked where the recipe does not say, by the names
        of its settings; what is not here is as the records say.
      token_task: what the names of the loss and the accuracy of tokens begin
        with, "masked_lm" of masked_lm_loss and masked_lm_accuracy; the
        perplexity and scores by frequency alone are told beside them. Empty
        for none.
      metrics: names of the metrics, which Keras' `fit` has to know before.
    """

    heads: tuple[str, ...] = (POOLER, MASKED_LM, NEXT_SENTENCE)
    reads_next_tokens: bool = False
    detects_replaced_tokens: bool = False
    masks: Mapping[str, float] = dataclasses.field(default_factory=dict)
    token_task: str = ""
    metrics: tuple[str, ...] = ()

    @classmethod
    def of(cls, objective: object) -> Self:
        """The traits of an objective.

        Raises:
          UserError: its heads are not a tuple of those that there are.
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

    Calling it gives sums, and `loss_weights` the weights that belong to them,
    so that a batch may be cut over replicas and accumulation steps: add the
    sums and the weights of all pieces, then `normalise`. The result is the
    loss of the whole batch. For its attributes see `ObjectiveTraits`.
    """

    heads: ClassVar[tuple[str, ...]] = (MASKED_LM,)
    reads_next_tokens: ClassVar[bool] = False
    detects_replaced_tokens: ClassVar[bool] = False
    token_task: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What each loss sum is divided by, from the batch alone.

        Args:
          batch: masked_lm_weights float32 [B, P].

        Returns:
          Scalars float32: the number of predicted tokens.
        """
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        return {f"{self.token_task}_loss": ops.sum(weights)}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the negative log likelihoods and the right answers.

        Args:
          outputs: masked_lm_logits [B, P, V].
          batch: masked_lm_ids int32 [B, P], masked_lm_weights float32 [B, P].

        Returns:
          losses: name to a scalar float32, the weighted sum.
          metrics: name to (weighted sum, weight), scalars float32.
        """
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        nll, right = _score(outputs["masked_lm_logits"], batch["masked_lm_ids"])
        correct = ops.sum(weights * right), ops.sum(weights)
        return (
            {f"{self.token_task}_loss": ops.sum(weights * nll)},
            {f"{self.token_task}_accuracy": correct},
        )

    def soft_target_weight(self, batch: Mapping[str, Any]) -> Any:
        """What the sum of `soft_target_loss` is divided by: the tokens."""
        return ops.sum(ops.cast(batch["input_mask"], "float32"))

    def soft_target_loss(
        self,
        outputs: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Mapping[str, Any],
        temperature: float,
    ) -> Any:
        """Sums the divergence from a teacher over every token of the batch.

        Sanh et al. 2019, section 3, of masked tokens and of all others.

        Args:
          outputs: token_logits [B, S, V] and token_weights [B, S].
          teacher: its token_logits [B, S, V].
          batch: not read.
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
        """No arguments, for Keras' files."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the objective from what `get_config` returned."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLanguageModeling(LanguageModeling):
    """Masked LM alone (Devlin et al. 2019, section 5.1, "No NSP")."""

    token_task = MASKED_LM
    metrics: ClassVar[tuple[str, ...]] = ("masked_lm_accuracy",)


@keras.saving.register_keras_serializable(package="bert_tf")
class LeftToRightLanguageModeling(LanguageModeling):
    """Every next token from those before (section 5.1, "LTR & No NSP").

    The encoder is causal. The predicted tokens stand in the batch as masked
    ones do: in masked_lm_ids the token after each of masked_lm_positions.
    """

    reads_next_tokens = True
    token_task = "next_token"
    metrics = ("next_token_accuracy",)


class PretrainingObjective(MaskedLanguageModeling):
    """Masked LM and next sentence (Devlin et al. 2019, section 3.1)."""

    heads = (POOLER, MASKED_LM, NEXT_SENTENCE)
    metrics = ("masked_lm_accuracy", "next_sentence_accuracy")

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What each loss sum is divided by, from the batch alone.

        Args:
          batch: masked_lm_weights float32 [B, P] and next_sentence_labels
            int32 [B], of packed rows [B, K], -1 for what counts for nothing.

        Returns:
          Scalars float32: the number of masked tokens and of sequences.
        """
        sequences = ops.sum(_sequence_weights(batch))
        return super().loss_weights(batch) | {"next_sentence_loss": sequences}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the negative log likelihoods and the right answers.

        Args:
          outputs: masked_lm_logits [B, P, V], next_sentence_logits [B, 2],
            of packed rows [B, K, 2].
          batch: masked_lm_ids int32 [B, P], masked_lm_weights float32
            [B, P], next_sentence_labels int32 [B], of packed rows [B, K], -1
            for what counts for nothing.

        Returns:
          losses: name to a scalar float32, the weighted sum.
          metrics: name to (weighted sum, weight), scalars float32.
        """
        losses, metrics = super().__call__(outputs, batch)
        weights = _sequence_weights(batch)
        labels = ops.maximum(batch["next_sentence_labels"], 0)
        nll, right = _score(outputs["next_sentence_logits"], labels)
        correct = ops.sum(weights * right), ops.sum(weights)
        return (
            losses | {"next_sentence_loss": ops.sum(weights * nll)},
            metrics | {"next_sentence_accuracy": correct},
        )

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
        name = "next_sentence_loss"
        mean = losses[name] / weights[name]
        return super().normalise(losses, weights) | {name: mean}


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokenDetection(MaskedLanguageModeling):
    """Which tokens a generator has replaced (Clark et al. 2020, section 2).

    The generator learns the masked LM, the discriminator the rest, and the loss
    of the latter weighs 50 times as much. Of the chosen tokens 85 % are masked
    and the others stay, as google-research/electra does it.
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
        """The number of masked tokens, and that of all tokens.

        Args:
          batch: masked_lm_weights float32 [B, P], input_mask int32 [B, S].
        """
        tokens = ops.sum(ops.cast(batch["input_mask"], "float32"))
        return super().loss_weights(batch) | {"replaced_token_loss": tokens}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the generator's losses and the discriminator's.

        Args:
          outputs: masked_lm_logits [B, P, V], replaced_token_logits [B, S] and
            replaced_tokens [B, S], 1 where a token is not the text's own.
          batch: as of the masked LM, and input_mask int32 [B, S].

        Returns:
          losses: name to a scalar float32, the weighted sum.
          metrics: name to (weighted sum, weight), scalars float32; of the
            replaced tokens precision and recall at a probability of a half.
        """
        losses, metrics = super().__call__(outputs, batch)
        real = ops.cast(ops.not_equal(batch["input_mask"], 0), "float32")
        logits = ops.cast(outputs["replaced_token_logits"], "float32")
        replaced = real * ops.cast(outputs["replaced_tokens"], "float32")
        # -log sigmoid, in the form that no large logit overflows.
        loss = ops.relu(logits) - logits * replaced
        loss = loss + ops.log1p(ops.exp(-ops.abs(logits)))
        guessed = real * ops.cast(logits > 0, "float32")
        right = ops.sum(guessed * replaced)
        return losses | {"replaced_token_loss": ops.sum(real * loss)}, {
            **metrics,
            "replaced_token_precision": (right, ops.sum(guessed)),
            "replaced_token_recall": (right, ops.sum(replaced)),
        }

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The mean losses, the discriminator's times its weight of 50."""
        means = {n: losses[n] / (weights[n] + _ELECTRA_EPSILON) for n in losses}
        means["replaced_token_loss"] *= _REPLACED_TOKENS_WEIGHT
        return means


OBJECTIVES: Mapping[str, LanguageModeling] = {
    "masked_lm_next_sentence": PretrainingObjective(),
    "masked_lm": MaskedLanguageModeling(),
    "left_to_right": LeftToRightLanguageModeling(),
    "replaced_tokens": ReplacedTokenDetection(),
}


def load_objective(name: str) -> "Objective":
    """The objective that a recipe names.

    Args:
      name: one of `OBJECTIVES`, or the path of a Python file that defines
        OBJECTIVE, an object with the methods of `Objective`; most are of a
        subclass of one here. What else it may say of itself is in
        `ObjectiveTraits`.

    Raises:
      UserError: there is no such objective, or the file is broken.
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
    """1 for each sequence with a label, 0 for the others, as the labels."""
    return ops.cast(batch["next_sentence_labels"] >= 0, "float32")


def _score(logits: Any, labels: Any) -> tuple[Any, Any]:
    logits = ops.cast(logits, "float32")
    nll = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    guesses = ops.argmax(logits, axis=-1)
    right = ops.equal(guesses, ops.cast(labels, guesses.dtype))
    return nll, ops.cast(right, "float32")
