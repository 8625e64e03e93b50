"""The training step and the evaluation step, equal on every strategy.

A step computes the gradient of one large batch: each loss term is divided by
the sum of its weights over all replicas and accumulated slices; gradients are
summed over replicas and slices, then clipped and applied.

Dropout is stateless: every seed generator of the model is set from (seed, step,
slice, replica), so that replicas differ and a resumed run draws the same masks
as an uninterrupted one.
"""

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import keras
import tensorflow as tf

from bert_tf.compat import Optimizer, has_accelerator, sum_over_replicas
from bert_tf.errors import UserError
from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.strategies import needs_static_shapes

Batch = Mapping[str, tf.Tensor]
# At most this often a forward pass draws from one seed generator.
_DRAWS_PER_PASS = 4096
# Compiling the update takes a second, which the steps of a smaller model on a
# CPU do not save.
XLA_MIN_PARAMETERS = 1_000_000


class Objective(Protocol):
    """The losses and metrics of a batch.

    Sums and weights are separate, since a batch is split over replicas and
    slices: both are summed over the parts before the division. Objectives of
    pre-training have further attributes, `ObjectiveTraits` in
    bert_tf/pretraining/objective.py.
    """

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the denominator of each loss term, from the batch only."""

    def __call__(
        self, outputs: Mapping[str, tf.Tensor], batch: Batch
    ) -> tuple[dict[str, tf.Tensor], dict[str, tuple[tf.Tensor, tf.Tensor]]]:
        """Returns the sum of each loss term and (sum, weight) of metrics."""

    def normalise(
        self, losses: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns the mean of each loss term from its sum and denominator."""


@runtime_checkable
class BatchObjective(Objective, Protocol):
    """An objective whose loss of a row depends on the other rows of the batch.

    It is computed of the outputs of the whole batch, over replicas and slices.
    """

    @property
    def batch_labels(self) -> tuple[str, ...]:
        """The names of what it reads of the batch, tensors [B, ...]."""


class StepResult(NamedTuple):
    """The results of an optimizer step, over all replicas and slices.

    Attributes:
      losses: mean of each loss term, scalar float32.
      metrics: sum and weight of each metric, scalar float32.
      gradient_norm: global norm before clipping, scalar float32.
      gradient_norms: norm of each variable's gradient, float32.
      finite: whether all ids were within their limits and loss and gradients
        finite; otherwise no update was applied, scalar bool.
      tokens: number of tokens without padding, scalar float32.
      stop: number of devices of workers that were told to stop, scalar float32.
      halted: whether this or an earlier step failed and no further update is
        applied until the host has handled it, scalar bool.
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
    """Returns the results of steps as NumPy scalars, read together.

    A read synchronises with the device, at the same cost for one step or many.
    """
    columns = tf.nest.map_structure(lambda *values: tf.stack(values), *results)
    return _read_rows(columns, len(results))


def _read_rows(columns: StepResult, count: int) -> list[StepResult]:
    """Splits tensors [steps, ...] into the results of each step."""
    columns = tf.nest.map_structure(lambda column: column.numpy(), columns)
    return [
        tf.nest.map_structure(lambda column, i=index: column[i], columns)
        for index in range(count)
    ]


def _only_if(
    condition: tf.Tensor,
    variables: Sequence[tf.Variable],
    update: Callable[[], None],
) -> None:
    """Updates variables, and restores them if a condition is false."""
    before = [tf.identity(variable) for variable in variables]
    update()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(tf.where(condition, variable, value))


def _untrained_states(
    model: keras.Model,
    frozen: Sequence[keras.Variable],
    seed: int,
    counter: tf.Tensor,
) -> list[tf.Tensor]:
    """Returns the non-trainable variables' values for one forward pass."""
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
    """Computes gradients over replicas and slices, clips and applies them.

    Args:
      model: maps a batch to a dict of outputs; built under `strategy`.
      objective: the losses and metrics.
      optimizer: a Keras optimizer without clipping.
      strategy: the distribution strategy.
      max_grad_norm: global norm to clip to, 0 for no clipping.
      accumulation: number of slices of each replica's batch.
      seed: seed of dropout.
      loss_scale: loss scaling of float16, or None.
      backoff: lowers the learning rate after non-finite steps; None if a
        non-finite step ends the run.
      per_replica_means: whether to average the means of the replicas' losses,
        as google-research/bert does on several devices, instead of dividing by
        the weights of the whole batch.
      frozen: weights that training leaves unchanged.
      lr_multipliers: factor of the learning rate for each trainable variable
        of the model; None for 1.
      limits: feature name to the exclusive upper bound of its ids; a step with
        ids outside is not applied.
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
        parameters = sum(math.prod(v.shape) for v in self.variables)
        compiled = strategy.num_replicas_in_sync == 1 and (
            has_accelerator() or parameters >= XLA_MIN_PARAMETERS
        )
        # With a branch the host would wait for the accelerator's condition. On
        # a CPU a select costs a tenth of the update, and more without XLA.
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
        """Whether to call `several`, since a TPU idles between two calls."""
        return self._static_shapes and all(
            spec.shape.is_fully_defined()
            for spec in tf.nest.flatten(self._expected, expand_composites=True)
        )

    def expect(self, specification: object) -> None:
        """Prepares one graph for all batches of a data set.

        Graphs of different shapes round differently. With one graph for batches
        of all lengths, a resumed run computes the same as an uninterrupted one.
        If shapes must be static, each shape has its own graph.

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
        # Traced here, where a signal may end it, and not in the first step.
        is_eager = tf.config.functions_run_eagerly()
        if self.strategy.num_replicas_in_sync == 1 and not is_eager:
            self._step_compiled.get_concrete_function()

    def __call__(
        self,
        batch: Batch,
        stop: bool = False,
        halted: bool | tf.Tensor = False,
    ) -> StepResult:
        """Runs one optimizer step.

        Args:
          batch: a batch, distributed over the devices.
          stop: whether this worker was told to stop, to inform the others.
          halted: `halted` of the step before if the host has not read it; if
            true, no update is applied.
        """
        return self._step_compiled(
            batch, tf.constant(float(stop)), tf.convert_to_tensor(halted)
        )

    def several(
        self, batches: Iterator[Batch], count: int, stop: bool = False
    ) -> list[StepResult]:
        """Runs several optimizer steps in one call and reads their results.

        Args:
          batches: iterator of a distributed data set.
          count: number of steps; those after a halted one change nothing.
          stop: see `__call__`.
        """
        columns = self._several_compiled(
            batches, tf.constant(count), tf.constant(float(stop))
        )
        return _read_rows(columns, count)

    def _several(
        self, batches: Iterator[Batch], count: tf.Tensor, stop: tf.Tensor
    ) -> StepResult:
        def body(
            number: tf.Tensor, halted: tf.Tensor, columns: StepResult
        ) -> tuple[tf.Tensor, tf.Tensor, StepResult]:
            result = self._step_compiled(next(batches), stop, halted)
            index = tf.reshape(number, [1, 1])
            columns = tf.nest.map_structure(
                lambda column, value: tf.tensor_scatter_nd_update(
                    column, index, value[None]
                ),
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
            body,
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
        failed = ~finite
        if self.loss_scale is not None:
            # An occasional overflow of float16 is expected.
            failed &= result.halted | self.loss_scale.exhausted()
        return result._replace(halted=halted | failed)

    @property
    def remedies(self) -> list[LossScale | Backoff]:
        """The factors that adapt to non-finite steps."""
        return [r for r in (self.loss_scale, self.backoff) if r is not None]

    def _first(self, value: object) -> tf.Tensor:
        """Returns the value of one replica, for a tensor equal on all."""
        return self.strategy.experimental_local_results(value)[0]

    def _outputs(self, batch: Batch, counter: tf.Tensor) -> dict:
        counter *= _DRAWS_PER_PASS
        outputs, _ = self.model.stateless_call(
            [v.value for v in self.variables],
            _untrained_states(self.model, self.frozen, self.seed, counter),
            batch,
            training=True,
        )
        return outputs

    def _total(
        self, outputs: dict, batch: Batch, weights: dict
    ) -> tuple[tf.Tensor, tuple[dict, dict]]:
        """Returns the loss to minimise, and the sums of losses and metrics."""
        losses, metrics = self.objective(outputs, batch)
        means = self.objective.normalise(losses, weights)
        total = tf.add_n(list(means.values()))
        if self.loss_scale is not None:
            total *= self.loss_scale.value
        return total, (losses, metrics)

    def _slice_gradients(
        self, batch: Batch, weights: dict, counter: tf.Tensor
    ) -> tuple[list[tf.Tensor], tuple[dict, dict]]:
        with tf.GradientTape() as tape:
            outputs = self._outputs(batch, counter)
            total, sums = self._total(outputs, batch, weights)
        return self._by_variables(tape, total), sums

    def _by_variables(
        self, tape: tf.GradientTape, target: Any, by_target: Any = None
    ) -> list[tf.Tensor]:
        """Returns the gradient by the variables, given that by `target`."""
        variables = [v.value for v in self.variables]
        gradients = tape.gradient(target, variables, output_gradients=by_target)
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
        return [tf.convert_to_tensor(g) for g in gradients]

    def _gradients(
        self, batch: Batch, step: tf.Tensor, stop: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, StepResult]:
        """Returns gradients, their factor and results, over all replicas."""
        batch, outside = self._within_limits(batch)
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        replicas = self.strategy.num_replicas_in_sync

        def counter(part: int | tf.Tensor) -> tf.Tensor:
            part = tf.cast(part, tf.int64)
            return (step * self.accumulation + part) * replicas + replica

        if isinstance(self.objective, BatchObjective):
            gradients, sums, weights = self._batch_gradients(batch, counter)
        else:
            weights = self.objective.loss_weights(batch)
            if self.per_replica_means:
                weights = {k: v * replicas for k, v in weights.items()}
            else:
                weights = sum_over_replicas(weights)
            gradients, sums = self._accumulate(
                batch,
                lambda rows, part: self._slice_gradients(
                    rows, weights, counter(part)
                ),
            )
        gradients = sum_over_replicas(gradients)
        losses, metrics = sums
        means = self.objective.normalise(losses, weights)
        tokens = tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))
        # Only a copy on each device can be summed over replicas.
        stop = tf.identity(stop)
        totals = sum_over_replicas((means, metrics, tokens, stop, outside))
        factor, result = self._clip(gradients, *totals)
        return gradients, factor, result

    def _within_limits(self, batch: Batch) -> tuple[Batch, tf.Tensor]:
        """Replaces ids outside their limits by 0; returns their number too.

        An embedding lookup of them is an obscure error on a CPU and a row of
        zeros on a GPU.
        """
        outside, limited = tf.zeros([]), dict(batch)
        for name, limit in self.limits.items():
            if name in batch:
                ids = batch[name]
                inside = (ids >= 0) & (ids < limit)
                limited[name] = tf.where(inside, ids, tf.zeros_like(ids))
                outside += tf.reduce_sum(tf.cast(~inside, tf.float32))
        return limited, outside

    def _batch_gradients(
        self, batch: Batch, counter: Callable[[int | tf.Tensor], tf.Tensor]
    ) -> tuple[list[tf.Tensor], tuple[dict, dict], dict]:
        """Computes the gradient of a `BatchObjective`.

        With slices, their outputs are computed first, then the gradient of the
        loss by these, and from there on the gradient of each slice, which is
        computed again with the same dropout (Gao et al. 2021, "Scaling Deep
        Contrastive Learning Batch Size under Memory Limited Setup").

        Returns:
          The gradient, this replica's share of losses and metrics, and their
          denominators.
        """
        if self.accumulation == 1:
            with tf.GradientTape() as tape:
                outputs = self._outputs(batch, counter(0))
            by_outputs, sums, weights = self._by_outputs(outputs, batch)
            gradients = self._by_variables(tape, outputs, by_outputs)
            return gradients, sums, weights
        slices = self._slices(batch)

        def outputs_of(part: int | tf.Tensor) -> dict:
            rows = {name: tensor[part] for name, tensor in slices.items()}
            return self._outputs(rows, counter(part))

        first = outputs_of(0)
        others = tf.map_fn(
            outputs_of,
            tf.range(1, self.accumulation),
            fn_output_signature=tf.nest.map_structure(
                lambda value: tf.TensorSpec(value.shape, value.dtype), first
            ),
            parallel_iterations=1,
        )
        outputs = tf.nest.map_structure(
            lambda one, rest: tf.concat(
                [one, tf.reshape(rest, [-1, *one.shape[1:]])], 0
            ),
            first,
            others,
        )
        by_outputs, sums, weights = self._by_outputs(outputs, batch)

        def slice_gradients(rows: dict, part: int | tf.Tensor) -> list:
            own = {name: rows.pop(f"by_{name}") for name in by_outputs}
            with tf.GradientTape() as tape:
                outputs = self._outputs(rows, counter(part))
            return self._by_variables(tape, outputs, own)

        named = {f"by_{name}": value for name, value in by_outputs.items()}
        gradients = self._accumulate({**batch, **named}, slice_gradients)
        return gradients, sums, weights

    def _by_outputs(
        self, outputs: dict, batch: Batch
    ) -> tuple[dict, tuple[dict, dict], dict]:
        """Computes the gradient of a `BatchObjective` by a replica's outputs.

        Returns:
          The gradient, this replica's share of losses and metrics, and their
          denominators.
        """
        assert isinstance(self.objective, BatchObjective)
        context = tf.distribute.get_replica_context()
        replicas = self.strategy.num_replicas_in_sync
        labels = {name: batch[name] for name in self.objective.batch_labels}
        own = slice(None)
        if replicas > 1 and not self.per_replica_means:
            # The gradient of what other replicas have computed is theirs.
            size = next(iter(outputs.values())).shape[0]
            begin = context.replica_id_in_sync_group * size
            own = slice(begin, begin + size)
            outputs, labels = tf.nest.map_structure(
                lambda value: context.all_gather(tf.identity(value), axis=0),
                (outputs, labels),
            )
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            weights = self.objective.loss_weights(labels)
            total, sums = self._total(outputs, labels, weights)
        by_outputs = tape.gradient(total, outputs)
        if self.per_replica_means:
            by_outputs = {k: v / replicas for k, v in by_outputs.items()}
        # Every replica has the sums of all.
        sums = tf.nest.map_structure(lambda value: value / replicas, sums)
        return {k: v[own] for k, v in by_outputs.items()}, sums, weights

    def _slices(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Splits the first axis of a replica's batch into equal slices."""
        slices = {}
        for name, tensor in batch.items():
            size = tensor.shape[0]
            if size is None or size % self.accumulation:
                raise ValueError(
                    f"a replica's batch of {size} rows cannot be split into "
                    f"gradient_accumulation_steps={self.accumulation} slices."
                )
            # The other axes may be unknown, since lengths differ.
            rows = [self.accumulation, size // self.accumulation]
            shape = tf.concat([rows, tf.shape(tensor)[1:]], axis=0)
            slices[name] = tf.ensure_shape(
                tf.reshape(tensor, shape), [*rows, *tensor.shape[1:]]
            )
        return slices

    def _accumulate(
        self, batch: Batch, of_slice: Callable[[dict, int | tf.Tensor], Any]
    ) -> Any:
        """Sums what a function returns for each slice of the replica's batch.

        Args:
          batch: the batch.
          of_slice: takes the rows of a slice and its number.
        """
        if self.accumulation == 1:
            return of_slice(dict(batch), 0)
        slices = self._slices(batch)

        def computed(part: int | tf.Tensor) -> Any:
            rows = {name: tensor[part] for name, tensor in slices.items()}
            return of_slice(rows, part)

        _, total = tf.while_loop(
            lambda part, _: part < self.accumulation,
            lambda part, total: (
                part + 1,
                tf.nest.map_structure(tf.add, total, computed(part)),
            ),
            (tf.constant(1), computed(0)),
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
        """Returns the factor that clips and unscales gradients, and results.

        The update multiplies by the factor, which saves a pass over gradients.
        """
        # l2_loss is half the sum of squares, and allocates no array of them.
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
        """Applies gradients if a condition holds."""
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
        """Applies summed gradients times `factor` on every replica."""
        rate = self.optimizer.learning_rate
        if self.backoff is not None:
            rate *= self.backoff.value
        rates = {f: rate * f for f in dict.fromkeys(self.lr_multipliers)}
        with self._sharing():
            for gradient, variable, rate_factor in zip(
                gradients, self.variables, self.lr_multipliers, strict=True
            ):
                self.strategy.extended.update(
                    variable.value,
                    lambda v, g, f, lr: self.optimizer.update_step(
                        g * f, v, lr
                    ),
                    args=(gradient, factor, rates[rate_factor]),
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
        """Returns the mean of losses and metrics, and the total as "loss"."""
        losses, weights, metrics = functools.reduce(
            functools.partial(tf.nest.map_structure, operator.add),
            (tf.nest.map_structure(float, self(batch)) for batch in batches),
        )
        means = self.objective.normalise(losses, weights)
        row = {name: float(value) for name, value in means.items()}
        row["loss"] = sum(row.values())
        for name, (value, weight) in metrics.items():
            row[name] = value / max(weight, 1e-9)
        return row
