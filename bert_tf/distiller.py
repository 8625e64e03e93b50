"""Knowledge distillation: a student is trained to imitate a larger teacher.

The losses compare softened distributions over tokens or labels (Hinton et al.
2015, section 2), the directions of the last hidden states (Sanh et al. 2019,
section 3), and hidden states and attention scores layer by layer (Jiao et al.
2020, section 3.1).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops, tree

from bert_tf.compat import custom_gradient
from bert_tf.errors import UserError
from bert_tf.partly_trained import PartlyTrained
from bert_tf.teacher_settings import (
    LAYER_TERMS,
    SOFT_TARGET,
    TeacherSettings,
)

TEACHER = "teacher"
# Keeps the cosine of zero vectors finite.
_EPSILON = 1e-8


def soft_target_loss(logits: Any, targets: Any, temperature: float) -> Any:
    """Computes T^2 KL(softmax(targets / T) || softmax(logits / T)).

    The factor T^2 makes the gradient's magnitude independent of T (Hinton et
    al. 2015, section 2).

    Args:
      logits: [..., C], of the student.
      targets: [..., C], of the teacher; no gradient flows into them.
      temperature: T.

    Returns:
      float32 [...].
    """

    # A custom gradient keeps one array of the size of the logits.
    @custom_gradient
    def divergence(logits: Any) -> Any:
        student = ops.log_softmax(ops.cast(logits, "float32") / temperature)
        teacher = ops.log_softmax(ops.cast(targets, "float32") / temperature)
        probabilities = ops.exp(teacher)
        local = temperature * (ops.exp(student) - probabilities)

        def gradient(upstream: Any) -> Any:
            return ops.cast(upstream[..., None] * local, logits.dtype)

        # At masked classes the difference is large but finite, times 0.
        loss = ops.sum(probabilities * (teacher - student), axis=-1)
        return temperature**2 * loss, gradient

    return divergence(logits)


class Distiller(PartlyTrained):
    """A student and its frozen teacher, called on the same batches.

    Args:
      student: the model to train; has an `encoder` and accepts the call
        argument return_all_layers.
      teacher: a model of the same kind with the same vocabulary.
      settings: the weights of the losses.
      return_all_layers: whether to call both with return_all_layers, which
        comparisons of layers and soft targets of every token need.

    Call arguments:
      batch: the batch of both models.
      training: whether the student's dropout is active; the teacher has none.

    Returns:
      The student's outputs, the teacher's outputs as "teacher", and for each
      comparison of layers with a weight its sum over tokens, scalar float32.

    Raises:
      UserError: the two have sizes that cannot be compared, or a layer to
        compare does not exist.
    """

    def __init__(
        self,
        student: keras.Model,
        teacher: keras.Model,
        settings: TeacherSettings,
        return_all_layers: bool,
    ) -> None:
        super().__init__(name="distiller", dtype=student.dtype_policy)
        teacher.trainable = False
        self.student, self.teacher = student, teacher
        self.settings = settings
        self.return_all_layers = return_all_layers
        config, teacher_config = self.encoder.config, teacher.encoder.config
        self._compared = settings.compared_layers(
            config.num_blocks, teacher_config.num_blocks
        )
        for term, name in (
            ("cosine", "hidden_size"),
            ("attention_score", "num_attention_heads"),
        ):
            size, other = getattr(config, name), getattr(teacher_config, name)
            if settings.weight(term) and size != other:
                raise UserError(
                    f"`teacher`={settings.teacher}: its {name} is {other} "
                    f"and the student's {size}, so {term}_weight="
                    f"{settings.weight(term)} has nothing to compare; give "
                    f"{term}_weight=0."
                )
        self.widen = None
        if settings.hidden_state_weight:
            self.widen = keras.layers.Dense(
                teacher_config.hidden_size,
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=config.initializer_range
                ),
                dtype=self.dtype_policy,
                name="widen",
            )
            self.widen.build((None, None, config.hidden_size))
        self.built = True

    @property
    def encoder(self) -> Any:
        """The student's encoder."""
        return self.student.encoder

    def untrained(self) -> Sequence[keras.Variable]:
        """Returns the variables that the student does not train."""
        return self.student.non_trainable_variables

    def call(
        self, batch: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Calls both models on a batch and compares them; see the class."""
        layers = self.return_all_layers
        outputs = self.student(
            batch, training=training, return_all_layers=layers
        )
        targets = tree.map_structure(
            ops.stop_gradient,
            self.teacher(batch, training=False, return_all_layers=layers),
        )
        if not self.settings.compares_layers:
            return {**outputs, TEACHER: targets}
        sums = self._compare(batch, outputs, targets)
        return {**outputs, TEACHER: targets, **sums}

    def _compare(
        self,
        batch: Mapping[str, Any],
        outputs: Mapping[str, Any],
        targets: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Computes the comparisons of layers, each summed over the tokens."""
        mask = batch["input_mask"]
        # The choices of a row are rows of the encoder's outputs.
        mask = ops.reshape(mask, (-1, mask.shape[-1] or ops.shape(mask)[-1]))
        is_token = ops.cast(ops.not_equal(mask, 0), "float32")
        states, teacher_states = (
            [each["embedding_output"], *each["all_encoder_layers"]]
            for each in (outputs, targets)
        )
        pairs = list(enumerate(self._compared))
        sums = {}
        if self.settings.cosine_weight:
            cosine = _cosine(states[-1], teacher_states[-1])
            sums["cosine_loss"] = ops.sum(is_token * (1.0 - cosine))
        if self.widen is not None:
            sums["hidden_state_loss"] = sum(
                ops.sum(
                    is_token
                    * _mean_square(
                        self.widen(states[a]), teacher_states[b], axis=-1
                    )
                )
                for a, b in [(0, 0), *((a + 1, b + 1) for a, b in pairs)]
            )
        if self.settings.attention_score_weight:
            encoders = self.encoder, self.teacher.encoder
            biases, teacher_biases = (
                encoder.attention_biases(mask, batch.get("sequence_ids"))
                for encoder in encoders
            )
            total = 0.0
            for a, b in pairs:
                blocks = encoders[0].blocks[a], encoders[1].blocks[b]
                visible = ops.logical_and(
                    ops.equal(blocks[0].full_bias(biases[a]), 0.0),
                    ops.equal(blocks[1].full_bias(teacher_biases[b]), 0.0),
                )
                visible = ops.cast(visible, "float32")
                # The mean over heads and the keys that a query attends to.
                counts = ops.sum(visible, axis=-1, keepdims=True)
                shares = is_token[:, None, :, None] * visible
                shares = shares / ops.maximum(counts, 1.0)
                error = _mean_square(
                    blocks[0].scores(states[a]),
                    blocks[1].scores(teacher_states[b]),
                    axis=1,
                    keepdims=True,
                )
                total = total + ops.sum(shares * error)
            sums["attention_score_loss"] = total
        return sums


def _cosine(x: Any, y: Any) -> Any:
    """Returns the cosine similarity of vectors, float32 [...] of [..., H]."""
    x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
    squares = ops.sum(ops.square(x), -1) * ops.sum(ops.square(y), -1)
    return ops.sum(x * y, -1) / ops.sqrt(ops.maximum(squares, _EPSILON))


def _mean_square(x: Any, y: Any, axis: int, keepdims: bool = False) -> Any:
    """Returns the mean of squared differences along an axis, float32."""
    difference = ops.cast(x, "float32") - ops.cast(y, "float32")
    return ops.mean(ops.square(difference), axis=axis, keepdims=keepdims)


class DistillationObjective:
    """The `Objective` of a `Distiller`: labels, and terms of the teacher.

    `normalise` multiplies each mean loss by its weight, so that their sum is
    the loss to minimise.

    Args:
      objective: the student's objective on labels. For soft targets it has
        `soft_target_weight` and `soft_target_loss`, as `LanguageModeling` in
        bert_tf/pretraining/objective.py.
      settings: the weights.

    Raises:
      UserError: soft targets have a weight, but the objective has no
        `soft_target_loss`.
    """

    def __init__(self, objective: Any, settings: TeacherSettings) -> None:
        self.objective = objective
        self.settings = settings
        self._terms = [t for t in LAYER_TERMS if settings.weight(t)]
        if settings.soft_target_weight and not hasattr(
            objective, "soft_target_loss"
        ):
            raise UserError(
                f"{type(objective).__name__}: has no soft_target_loss, so "
                "there are no soft targets; give soft_target_weight=0, or "
                "derive it from PretrainingObjective of "
                "bert_tf.pretraining.objective."
            )

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the objective's, and for comparisons the number of tokens."""
        weights = dict(self.objective.loss_weights(batch))
        if self.settings.soft_target_weight:
            weights[f"{SOFT_TARGET}_loss"] = self.objective.soft_target_weight(
                batch
            )
        tokens = ops.sum(ops.cast(batch["input_mask"], "float32"))
        return weights | {f"{term}_loss": tokens for term in self._terms}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
        """Returns the sum of each loss, and the objective's metrics."""
        losses, metrics = self.objective(outputs, batch)
        losses = dict(losses)
        if self.settings.soft_target_weight:
            losses[f"{SOFT_TARGET}_loss"] = self.objective.soft_target_loss(
                outputs, outputs[TEACHER], batch, self.settings.temperature
            )
        for term in self._terms:
            losses[f"{term}_loss"] = outputs[f"{term}_loss"]
        return losses, metrics

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the mean of each loss times its weight."""
        means = {
            # "loss" is the total in the history of a run.
            "label_loss" if name == "loss" else name: (
                self.settings.label_weight * mean
            )
            for name, mean in self.objective.normalise(losses, weights).items()
        }
        for term in filter(self.settings.weight, (*LAYER_TERMS, SOFT_TARGET)):
            name = f"{term}_loss"
            mean = losses[name] / weights[name]
            means[name] = self.settings.weight(term) * mean
        return means
