"""One training step and one evaluation step, the same on every strategy.

The mathematics is that of one large batch: each loss term is divided by the
sum of its weights over all replicas and all accumulated slices, gradients are
summed over replicas and slices, and only then clipped and applied.

Dropout needs no state: every seed generator of the model is set from (seed,
step, slice, replica), so that replicas differ and a resumed run draws what the
uninterrupted one would have drawn.
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import keras
import tensorflow as tf

from bert_tf.compat import Optimizer, has_accelerator, sum_over_replicas
from bert_tf.errors import UserError
from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.strategies import needs_static_shapes

Batch = Mapping[str, tf.Tensor]
# Seed generators may be drawn from more than once in a forward pass.
_DRAWS_PER_PASS = 4096


class Objective(Protocol):
    """What a model is trained for: losses of a batch, and metrics.

    It gives sums and their weights apart, since a batch is cut over replicas
    and slices: those of the pieces are added up before the division. What a
    kind of training asks of its objectives besides stands there (of
    pre-training `ObjectiveTraits` in bert_tf/pretraining/objective.py).
    """

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The denominator of each loss term, from the batch alone."""

    def __call__(
        self, outputs: Mapping[str, tf.Tensor], batch: Batch
    ) -> tuple[dict[str, tf.Tensor], dict[str, tuple[tf.Tensor, tf.Tensor]]]:
        """Sums of each loss term, and (sum, weight) of each metric."""

    def normalise(
        self, losses: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """The mean of each loss term from its sum and its denominator."""


class StepResult(NamedTuple):
    """What one optimizer step gave, over all replicas and slices.

    Attributes:
      losses: mean of each loss term, scalar float32.
      metrics: sum and weight of each metric, scalar float32.
      gradient_norm: global norm before clipping, scalar float32.
      gradient_norms: norm of each variable's gradient, float32.
      finite: whether all ids were within their limits, and loss and gradients
        finite; if not, nothing was applied, scalar bool.
      tokens: tokens that are not padding, scalar float32.
      stop: how many devices belong to a worker that was asked to stop, scalar
        float32.
      halted: whether this step or one before was bad in a way that is to be
        looked at before another one is applied, scalar bool.
    """

    losses: dict[str, tf.Tensor]
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]
    gradient_norm: tf.Tensor
    gradient_norms: tf.Tensor
    finite: tf.Tensor
    tokens: tf.Tensor
    stop: tf.Tensor
    halted: tf.Tensor


def read_results(results: Sequence[StepResult]) -> list[StepResult]:
    """The results of steps as NumPy scalars, each number read for all at once.

    A read waits for the device, and costs as much for a step as for many.
    """
    columns = tf.nest.map_structure(lambda *values: tf.stack(values), *results)
    return _read_rows(columns, len(results))


def _read_rows(columns: StepResult, count: int) -> list[StepResult]:
    """The results of steps, as NumPy scalars, of tensors [steps, ...]."""
    columns = tf.nest.map_structure(lambda column: column.numpy(), columns)
    return [
        tf.nest.map_structure(lambda column, i=index: column[i], columns)
        for index in range(count)
    ]


def _only_if(
    condition: tf.Tensor,
    variables: Sequence[tf.Variable],
    change: Callable[[], None],
) -> None:
    """Changes variables, and takes it back where a condition does not hold."""
    before = [tf.identity(variable) for variable in variables]
    change()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(tf.where(condition, variable, value))


def _untrained_states(
    model: keras.Model,
    frozen: Sequence[keras.Variable],
    seed: int,
    counter: tf.Tensor,
) -> list[tf.Tensor]:
    """Values for a model's non-trainable variables in one forward pass."""
    constant = {id(v) for metric in model.metrics for v in metric.variables}
    constant |= {id(variable) for variable in frozen}
    states = []
    for index, variable in enumerate(model.non_trainable_variables):
        if variable.name == "seed_generator_state":
            base = (seed * 1_000_003 + index) % (2**31)
            state = tf.stack([tf.constant(base, tf.int64), counter])
            states.append(tf.cast(state, variable.dtype))
        elif id(variable) in constant:
            states.append(variable.value)
        else:
            raise ValueError(
                f"{variable.path}: the training loop carries no state but "
                "trainable weights and dropout seeds."
            )
    return states


class TrainingStep:
    """Computes gradients over replicas and slices, clips, applies them.

    Args:
      model: takes a batch, returns a dict of outputs; built under `strategy`.
      objective: see `Objective`.
      optimizer: a Keras optimizer that clips nothing itself.
      strategy: the distribution strategy.
      max_grad_norm: global norm to clip to, 0 for none.
      accumulation: slices that each replica's batch is cut into.
      seed: seed of dropout.
      loss_scale: for float16, else None.
      backoff: lowers the learning rate after steps that were not finite; None
        for runs that such a step ends.
      per_replica_means: average the means of the replicas' losses, as
        google-research/bert does on several devices, instead of dividing by
        the weights of the whole batch.
      frozen: weights that are not trained and stay as they are.
      lr_multipliers: for each trainable variable of the model, what its
        learning rate is multiplied by; None for 1 everywhere.
      limits: feature name to the number that its ids must stay below; a step
        with others is not applied.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Objective,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        max_grad_norm: float = 1.0,
        accumulation: int = 1,
        seed: int = 0,
        loss_scale: LossScale | None = None,
        backoff: Backoff | None = None,
        per_replica_means: bool = False,
        frozen: Sequence[keras.Variable] = (),
        lr_multipliers: Sequence[float] | None = None,
        limits: Mapping[str, int] | None = None,
    ):
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.strategy = strategy
        self.max_grad_norm = max_grad_norm
        self.accumulation = accumulation
        self.seed = seed
        self.loss_scale = loss_scale
        self.backoff = backoff
        self.per_replica_means = per_replica_means
        self.frozen = list(frozen)
        self.variables = list(model.trainable_variables)
        self.lr_multipliers = lr_multipliers or [1.0] * len(self.variables)
        self._sharing = (
            optimizer.sharing
            if isinstance(optimizer, Optimizer)
            else contextlib.nullcontext
        )
        self.limits = dict(limits or {})
        self._expected: object = None
        with strategy.scope():
            optimizer.build(self.variables)
        # XLA halves the time of the update; under several replicas it is
        # known to hang (keras-team/keras#20763).
        compiled = strategy.num_replicas_in_sync == 1
        # A branch has the host read its condition, which an accelerator would
        # wait for. On a CPU the select costs a tenth of the update, and
        # without XLA it would be passes of its own.
        self._selects = compiled and has_accelerator()
        self._update_compiled = tf.function(
            self._update_or_restore if self._selects else self._update,
            jit_compile=compiled or None,
            autograph=False,
        )
        self._static_shapes = needs_static_shapes(strategy)
        self._step_compiled = tf.function(
            self._step,
            reduce_retracing=not self._static_shapes,
            autograph=False,
        )
        self._several_compiled = tf.function(self._several, autograph=False)

    @property
    def takes_several(self) -> bool:
        """Whether `several` is called, as a TPU is idle between two calls."""
        return self._static_shapes and all(
            spec.shape.is_fully_defined()
            for spec in tf.nest.flatten(self._expected, expand_composites=True)
        )

    def expect(self, specification: object) -> None:
        """Prepares for batches of one kind, such as those of a data set.

        Graphs of other shapes round differently. Where batches differ in
        length, one graph for all of them makes a resumed run, which sees them
        from another one on, the same as an uninterrupted one. Where shapes have
        to be static, each has its own.

        Args:
          specification: element_spec of the (distributed) data set.
        """
        if specification == self._expected:
            return
        self._expected = specification
        if self._static_shapes:
            return
        flag = tf.TensorSpec([], tf.bool)
        self._step_compiled = tf.function(
            self._step,
            input_signature=[
                specification,
                tf.TensorSpec([], tf.float32),
                flag,
            ],
            autograph=False,
        )

    def __call__(
        self,
        batch: Batch,
        stop: bool = False,
        halted: bool | tf.Tensor = False,
    ) -> StepResult:
        """Runs one optimizer step.

        Args:
          batch: a batch, distributed over the devices.
          stop: whether this worker was asked to stop, for the others to know.
          halted: that of the step before, where nobody has looked at it yet;
            if so, nothing is changed.
        """
        return self._step_compiled(
            batch, tf.constant(float(stop)), tf.convert_to_tensor(halted)
        )

    def several(
        self, batches: Iterator[Batch], count: int, stop: bool = False
    ) -> list[StepResult]:
        """Runs optimizer steps one after another in one call, and reads them.

        Args:
          batches: distributed batches, an iterator of a data set.
          count: how many steps. After one that is halted nothing is changed.
          stop: as above.
        """
        columns = self._several_compiled(
            batches, tf.constant(count), tf.constant(float(stop))
        )
        return _read_rows(columns, count)

    def _several(
        self, batches: Iterator[Batch], count: tf.Tensor, stop: tf.Tensor
    ) -> StepResult:
        def put(
            column: tf.Tensor, number: tf.Tensor, value: tf.Tensor
        ) -> tf.Tensor:
            place = tf.reshape(number, [1, 1])
            return tf.tensor_scatter_nd_update(column, place, value[None])

        def one(
            number: tf.Tensor, halted: tf.Tensor, columns: StepResult
        ) -> tuple[tf.Tensor, tf.Tensor, StepResult]:
            result = self._step_compiled(next(batches), stop, halted)
            columns = tf.nest.map_structure(
                lambda column, value: put(column, number, value),
                columns,
                result,
            )
            return number + 1, result.halted, columns

        first = self._step_compiled(next(batches), stop, tf.constant(False))
        columns = tf.nest.map_structure(
            lambda value: tf.repeat(value[None], count, axis=0), first
        )
        _, _, columns = tf.while_loop(
            lambda number, halted, columns: number < count,
            one,
            (tf.constant(1), first.halted, columns),
        )
        return columns

    def _step(
        self, batch: Batch, stop: tf.Tensor, halted: tf.Tensor
    ) -> StepResult:
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        gradients, factor, result = self.strategy.run(
            self._gradients, (batch, step, stop)
        )
        result, factor = tf.nest.map_structure(self._first, (result, factor))
        finite, active = result.finite, ~halted
        self._update_if(finite & active, gradients, factor)
        for remedy in self.remedies:
            update = functools.partial(remedy.update, finite)
            _only_if(active, remedy.variables, update)
        # An overflow of float16 is expected now and then.
        bad = ~finite
        if self.loss_scale is not None:
            bad &= result.halted | self.loss_scale.exhausted()
        return result._replace(halted=halted | bad)

    @property
    def remedies(self) -> list[LossScale | Backoff]:
        """What may help where a step is not finite."""
        return [r for r in (self.loss_scale, self.backoff) if r is not None]

    def _first(self, value: object) -> tf.Tensor:
        """One replica's value of a tensor that is equal on all."""
        return self.strategy.experimental_local_results(value)[0]

    def _forward(self, batch: Batch, counter: tf.Tensor) -> tuple[dict, dict]:
        outputs, _ = self.model.stateless_call(
            [v.value for v in self.variables],
            _untrained_states(self.model, self.frozen, self.seed, counter),
            batch,
            training=True,
        )
        return self.objective(outputs, batch)

    def _slice_gradients(
        self, batch: Batch, weights: dict, counter: tf.Tensor
    ) -> tuple[list[tf.Tensor], tuple[dict, dict]]:
        with tf.GradientTape() as tape:
            losses, metrics = self._forward(batch, counter * _DRAWS_PER_PASS)
            means = self.objective.normalise(losses, weights)
            total = tf.add_n(list(means.values()))
            if self.loss_scale is not None:
                total *= self.loss_scale.value
        gradients = tape.gradient(total, [v.value for v in self.variables])
        missing = [
            v.path
            for v, g in zip(self.variables, gradients, strict=True)
            if g is None
        ]
        if missing:
            raise UserError(
                f"{type(self.objective).__name__}: no gradient reaches "
                f"{', '.join(missing)}, on which no loss depends; an objective "
                "of pre-training names in heads what it trains."
            )
        # The word table's gradient is dense already where it is tied.
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        return gradients, (losses, metrics)

    def _gradients(
        self, batch: Batch, step: tf.Tensor, stop: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, StepResult]:
        """Gradients, their factor and results, reduced over all replicas."""
        batch, outside = self._within_limits(batch)
        replica = tf.distribute.get_replica_context()
        place = tf.cast(replica.replica_id_in_sync_group, tf.int64)
        replicas = self.strategy.num_replicas_in_sync
        weights = self.objective.loss_weights(batch)
        if self.per_replica_means:
            weights = {k: v * replicas for k, v in weights.items()}
        else:
            weights = sum_over_replicas(weights)

        def counter(part: int | tf.Tensor) -> tf.Tensor:
            part = tf.cast(part, tf.int64)
            return (step * self.accumulation + part) * replicas + place

        if self.accumulation == 1:
            gradients, sums = self._slice_gradients(batch, weights, counter(0))
        else:
            gradients, sums = self._accumulate(batch, weights, counter)
        gradients = sum_over_replicas(gradients)
        losses, metrics = sums
        means = self.objective.normalise(losses, weights)
        tokens = tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))
        # A copy on each device, as only such can be added up.
        stop = tf.identity(stop)
        totals = sum_over_replicas((means, metrics, tokens, stop, outside))
        factor, result = self._clip(gradients, *totals)
        return gradients, factor, result

    def _within_limits(self, batch: Batch) -> tuple[Batch, tf.Tensor]:
        """A batch with 0 for the ids outside their limits, and how many.

        Such an id is an obscure error on a CPU and a row of zeros on a GPU.
        """
        outside, kept = tf.zeros([]), dict(batch)
        for name, limit in self.limits.items():
            if name in batch:
                ids = batch[name]
                inside = (ids >= 0) & (ids < limit)
                kept[name] = tf.where(inside, ids, tf.zeros_like(ids))
                outside += tf.reduce_sum(tf.cast(~inside, tf.float32))
        return kept, outside

    def _accumulate(
        self,
        batch: Batch,
        weights: dict,
        counter: Callable[[int | tf.Tensor], tf.Tensor],
    ) -> tuple[list[tf.Tensor], tuple[dict, dict]]:
        """Sums gradients and results over slices of the replica's batch."""
        slices = {}
        for name, tensor in batch.items():
            size = tensor.shape[0]
            if size is None or size % self.accumulation:
                raise ValueError(
                    f"a replica's batch of {size} rows cannot be cut into "
                    f"gradient_accumulation_steps={self.accumulation} slices."
                )
            # Batches may differ in length, so the other axes may be unknown.
            rows = [self.accumulation, size // self.accumulation]
            shape = tf.concat([rows, tf.shape(tensor)[1:]], axis=0)
            slices[name] = tf.reshape(tensor, shape)

        def one(part: tf.Tensor) -> tuple:
            cut = {name: tensor[part] for name, tensor in slices.items()}
            return self._slice_gradients(cut, weights, counter(part))

        def body(part: tf.Tensor, total: tuple) -> tuple:
            more = tf.nest.map_structure(tf.add, total, one(part))
            return part + 1, more

        _, total = tf.while_loop(
            lambda part, _: part < self.accumulation,
            body,
            (tf.constant(1), one(tf.constant(0))),
        )
        return total

    def _clip(
        self,
        gradients: list[tf.Tensor],
        means: dict,
        metrics: dict,
        tokens: tf.Tensor,
        stop: tf.Tensor,
        outside: tf.Tensor,
    ) -> tuple[tf.Tensor, StepResult]:
        """What the gradients are still to be multiplied by, and the results.

        The update multiplies on its way through them, which saves a pass.
        """
        # Half the sum of squares, without an array of the squares.
        squares = tf.stack([2.0 * tf.nn.l2_loss(g) for g in gradients])
        factor = tf.constant(1.0)
        if self.loss_scale is not None:
            factor /= self.loss_scale.value
        norms = tf.sqrt(squares) * factor
        norm = tf.norm(norms)
        refused = outside > 0
        finite = ~refused & tf.reduce_all(
            tf.math.is_finite(tf.stack([norm, *means.values()]))
        )
        if self.max_grad_norm:
            limit = tf.constant(self.max_grad_norm, tf.float32)
            factor *= limit / tf.maximum(norm, limit)
        return factor, StepResult(
            means, metrics, norm, norms, finite, tokens, stop, refused
        )

    def _update_if(
        self,
        condition: tf.Tensor,
        gradients: list[tf.Tensor],
        factor: tf.Tensor,
    ) -> None:
        """Applies gradients where a condition holds."""
        if self._selects:
            self._update_compiled(gradients, factor, condition)
            return

        def update() -> tf.Tensor:
            self._update_compiled(gradients, factor)
            return tf.constant(True)

        tf.cond(condition, update, lambda: tf.constant(False))

    def _update_or_restore(
        self,
        gradients: list[tf.Tensor],
        factor: tf.Tensor,
        condition: tf.Tensor,
    ) -> None:
        changed = [*self.variables, *self.optimizer.variables]
        _only_if(
            condition,
            [variable.value for variable in changed],
            lambda: self._update(gradients, factor),
        )

    def _update(self, gradients: list[tf.Tensor], factor: tf.Tensor) -> None:
        """Applies reduced gradients times `factor`, across replicas."""
        rate = self.optimizer.learning_rate
        if self.backoff is not None:
            rate *= self.backoff.value
        with self._sharing():
            for gradient, variable, rate_factor in zip(
                gradients, self.variables, self.lr_multipliers, strict=True
            ):
                self.strategy.extended.update(
                    variable.value,
                    lambda v, g, f, lr: self.optimizer.update_step(
                        g * f, v, lr
                    ),
                    args=(gradient, factor, rate * rate_factor),
                    group=False,
                )
        self.optimizer.iterations.assign_add(1)


class EvaluationStep:
    """Sums losses and metrics of a batch over all replicas."""

    def __init__(
        self,
        model: keras.Model,
        objective: Objective,
        strategy: tf.distribute.Strategy,
    ):
        self.model = model
        self.objective = objective
        self.strategy = strategy

    @tf.function(reduce_retracing=True, autograph=False)
    def __call__(self, batch: Batch) -> tuple[dict, dict, dict]:
        """Returns loss sums, their weights, and (sum, weight) of metrics."""

        def replica_sums(batch: Batch) -> tuple[dict, dict, dict]:
            outputs = self.model(batch, training=False)
            losses, metrics = self.objective(outputs, batch)
            return losses, self.objective.loss_weights(batch), metrics

        sums = self.strategy.run(replica_sums, (batch,))
        return tf.nest.map_structure(
            lambda value: self.strategy.reduce("SUM", value, axis=None), sums
        )

    def means(self, batches: Iterable[Batch]) -> dict[str, float]:
        """The mean of each loss, their sum as "loss", and of each metric."""
        losses, weights, metrics = functools.reduce(
            functools.partial(tf.nest.map_structure, operator.add),
            (tf.nest.map_structure(float, self(batch)) for batch in batches),
        )
        found = self.objective.normalise(losses, weights)
        row = {name: float(value) for name, value in found.items()}
        row["loss"] = sum(row.values())
        for name, (value, weight) in metrics.items():
            row[name] = value / max(weight, 1e-9)
        return row
