"""Distillation: a student that is trained to do as a larger teacher does.

What is compared are the distributions over tokens or labels, softened (Hinton
et al. 2015, section 2), the directions of the last hidden states (Sanh et al.
2019, section 3), and layer by layer hidden states and attention scores (Jiao
et al. 2020, section 3.1).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops, tree

from bert_tf.compat import custom_gradient
from bert_tf.errors import UserError
from bert_tf.layers import attention_adder
from bert_tf.partly_trained import PartlyTrained
from bert_tf.teacher_settings import (
    LAYER_TERMS,
    SOFT_TARGET,
    TeacherSettings,
)

TEACHER = "teacher"
# Of cosines; no hidden state behind layer normalisation is as short.
_EPSILON = 1e-8


def soft_target_loss(logits: Any, targets: Any, temperature: float) -> Any:
    """The divergence of a student's distribution from its teacher's.

    T^2 KL(softmax(targets / T) || softmax(logits / T)), so that the size of
    its gradient does not depend on T (Hinton et al. 2015, section 2).

    Args:
      logits: [..., C], the student's.
      targets: [..., C], the teacher's; they get no gradient.
      temperature: T.

    Returns:
      float32 [...].
    """

    # The gradient needs one array of the size of the logits.
    @custom_gradient
    def divergence(logits: Any) -> Any:
        own = ops.log_softmax(ops.cast(logits, "float32") / temperature)
        theirs = ops.log_softmax(ops.cast(targets, "float32") / temperature)
        likely = ops.exp(theirs)
        slope = temperature * (ops.exp(own) - likely)

        def gradient(upstream: Any) -> Any:
            return ops.cast(upstream[..., None] * slope, logits.dtype)

        # Where a mask hides, the difference is large but finite, times 0.
        loss = ops.sum(likely * (theirs - own), axis=-1)
        return temperature**2 * loss, gradient

    return divergence(logits)


class Distiller(PartlyTrained):
    """A student and its teacher, seeing the same batches; trains the student.

    Args:
      student: takes batches and, where layers are compared or tokens' logits
        are targets, return_all_layers; has an `encoder`.
      teacher: of the same kind and vocabulary.
      settings: what of the teacher is learnt.
      return_all_layers: whether both are called so.

    Call arguments:
      batch: that of student and teacher.
      training: whether the student's dropout is active; the teacher's never is.

    Returns:
      The student's outputs, the teacher's as "teacher", and of each comparison
      of layers that has a weight its sum over tokens, scalar float32.

    Raises:
      UserError: sizes of the two that cannot be compared, or layers that one of
        them does not have.
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
        own, theirs = self.encoder.config, teacher.encoder.config
        self._compared = settings.compared_layers(
            own.num_hidden_layers, theirs.num_hidden_layers
        )
        for term, size in (
            ("cosine", "hidden_size"),
            ("attention_score", "num_attention_heads"),
        ):
            sizes = getattr(own, size), getattr(theirs, size)
            if settings.weight(term) and sizes[0] != sizes[1]:
                raise UserError(
                    f"`teacher`={settings.teacher}: its {size} is {sizes[1]} "
                    f"and the student's {sizes[0]}, so {term}_weight="
                    f"{settings.weight(term)} has nothing to compare; give "
                    f"{term}_weight=0."
                )
        self.widen = None
        if settings.hidden_state_weight:
            stddev = own.initializer_range
            self.widen = keras.layers.Dense(
                theirs.hidden_size,
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=stddev
                ),
                dtype=self.dtype_policy,
                name="widen",
            )
            self.widen.build((None, None, own.hidden_size))
        self.built = True

    @property
    def encoder(self) -> Any:
        """The student's."""
        return self.student.encoder

    def untrained(self) -> Sequence[keras.Variable]:
        """What the student does not train either."""
        return self.student.non_trainable_variables

    def call(
        self, batch: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Has both compute a batch; see the class."""
        layers = self.return_all_layers
        own = self.student(batch, training=training, return_all_layers=layers)
        theirs = tree.map_structure(
            ops.stop_gradient,
            self.teacher(batch, training=False, return_all_layers=layers),
        )
        if not self.settings.compares_layers:
            return {**own, TEACHER: theirs}
        return {**own, TEACHER: theirs, **self._compare(batch, own, theirs)}

    def _compare(
        self,
        batch: Mapping[str, Any],
        own: Mapping[str, Any],
        theirs: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The comparisons of layers, each summed over the tokens."""
        length = (
            batch["input_mask"].shape[-1] or ops.shape(batch["input_mask"])[-1]
        )
        # Several texts of a row are rows here.
        mask = ops.reshape(batch["input_mask"], (-1, length))
        real = ops.cast(ops.not_equal(mask, 0), "float32")
        own_states, their_states = (
            [outputs["embedding_output"], *outputs["all_encoder_layers"]]
            for outputs in (own, theirs)
        )
        pairs = list(enumerate(self._compared))
        sums = {}
        if self.settings.cosine_weight:
            cosine = _cosine(own_states[-1], their_states[-1])
            sums["cosine_loss"] = ops.sum(real * (1.0 - cosine))
        if self.widen is not None:
            states = [(0, 0), *((a + 1, b + 1) for a, b in pairs)]
            sums["hidden_state_loss"] = sum(
                ops.sum(
                    real
                    * _mean_square(
                        self.widen(own_states[a]), their_states[b], axis=-1
                    )
                )
                for a, b in states
            )
        if self.settings.attention_score_weight:
            adder = attention_adder(
                mask, batch.get("sequence_ids"), self.encoder.config.causal
            )
            seen = ops.cast(ops.equal(adder, 0.0), "float32")
            # Of each query the mean over heads and the keys that it sees.
            shares = real[:, None, :, None] * seen
            counts = ops.sum(seen, axis=-1, keepdims=True)
            shares = shares / ops.maximum(counts, 1.0)
            blocks = self.encoder.blocks, self.teacher.encoder.blocks
            sums["attention_score_loss"] = sum(
                ops.sum(
                    shares
                    * _mean_square(
                        blocks[0][a].scores(own_states[a]),
                        blocks[1][b].scores(their_states[b]),
                        axis=1,
                        keepdims=True,
                    )
                )
                for a, b in pairs
            )
        return sums


def _cosine(one: Any, other: Any) -> Any:
    """The cosine of the angle of vectors, float32 [...] of [..., H]."""
    one, other = (ops.cast(each, "float32") for each in (one, other))
    squares = ops.sum(ops.square(one), -1) * ops.sum(ops.square(other), -1)
    return ops.sum(one * other, -1) / ops.sqrt(ops.maximum(squares, _EPSILON))


def _mean_square(
    one: Any, other: Any, axis: int, keepdims: bool = False
) -> Any:
    """The mean of squared differences along an axis, float32."""
    difference = ops.cast(one, "float32") - ops.cast(other, "float32")
    return ops.mean(ops.square(difference), axis=axis, keepdims=keepdims)


class DistillationObjective:
    """The objective of a training, and what is learnt from a teacher besides.

    As `Objective` in bert_tf/training/step.py, of a `Distiller`'s outputs. Each
    mean loss is times its weight, so that their sum is what is minimised.

    Args:
      objective: what the student is trained for without a teacher; for soft
        targets it has `soft_target_weight` and `soft_target_loss`, as those in
        bert_tf/pretraining/objective.py do.
      settings: the weights.

    Raises:
      UserError: soft targets have a weight, and the objective has none.
    """

    def __init__(self, objective: Any, settings: TeacherSettings) -> None:
        self.objective = objective
        self.settings = settings
        self._terms = [t for t in LAYER_TERMS if settings.weight(t)]
        soft = bool(settings.soft_target_weight)
        if soft and not hasattr(objective, "soft_target_loss"):
            raise UserError(
                f"{type(objective).__name__}: has no soft_target_loss, so "
                "there are no soft targets; give soft_target_weight=0, or "
                "derive it from PretrainingObjective of "
                "bert_tf.pretraining.objective."
            )
        self._soft = soft

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The objective's, and the number of tokens for each comparison."""
        weights = dict(self.objective.loss_weights(batch))
        if self._soft:
            weights[f"{SOFT_TARGET}_loss"] = self.objective.soft_target_weight(
                batch
            )
        tokens = ops.sum(ops.cast(batch["input_mask"], "float32"))
        return weights | {f"{term}_loss": tokens for term in self._terms}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
        """Sums of each loss, and the objective's metrics."""
        losses, metrics = self.objective(outputs, batch)
        losses = dict(losses)
        if self._soft:
            losses[f"{SOFT_TARGET}_loss"] = self.objective.soft_target_loss(
                outputs, outputs[TEACHER], batch, self.settings.temperature
            )
        for term in self._terms:
            losses[f"{term}_loss"] = outputs[f"{term}_loss"]
        return losses, metrics

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The mean of each loss, times its weight."""
        of_labels = self.objective.normalise(losses, weights)
        means = {
            # "loss" is the sum of all in the numbers of a run.
            "label_loss" if name == "loss" else name: (
                self.settings.label_weight * mean
            )
            for name, mean in of_labels.items()
        }
        for term in (*self._terms, *[SOFT_TARGET] * self._soft):
            name = f"{term}_loss"
            mean = losses[name] / weights[name]
            means[name] = self.settings.weight(term) * mean
        return means
