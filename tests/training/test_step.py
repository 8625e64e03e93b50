"""The step's mathematics: one batch, however it is cut or spread."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.step import EvaluationStep, TrainingStep
from bert_tf.training.strategies import make_strategy
from tests.training.tiny_run import Regressor, WeightedSquares, make_step, rows


def once(test):
    """Takes few steps, faster than a graph is traced; TensorFlow warns."""
    ignored = pytest.mark.filterwarnings("ignore:Even though the `tf.config")
    return pytest.mark.usefixtures("eagerly")(ignored(test))


def batches(strategy, data, size=8):
    """A data set's batches, shared out over the devices."""
    dataset = tf.data.Dataset.from_tensor_slices(data)
    dataset = dataset.batch(size, drop_remainder=True)
    if strategy.num_replicas_in_sync > 1:
        dataset = strategy.experimental_distribute_dataset(dataset)
    return dataset


def train(strategy="one_device", accumulation=1, data=None, **more):
    step = make_step(strategy, accumulation=accumulation, **more)
    return step, [
        step(batch) for batch in batches(step.strategy, data or rows())
    ]


def initial_weights():
    return weights_of(make_step())


def weights_of(step):
    """All weights as one vector."""
    return np.concatenate([v.numpy().ravel() for v in step.variables])


@pytest.fixture(scope="module")
def single():
    return train()


@pytest.mark.parametrize(
    ("strategy", "accumulation"),
    [("one_device", 4), ("mirrored", 1), ("mirrored", 2)],
)
def test_spread_or_cut_the_batch_counts_as_one(single, strategy, accumulation):
    step, results = train(strategy, accumulation)
    assert len(results) == 20
    assert_allclose(weights_of(step), weights_of(single[0]), atol=1e-5)
    for actual, reference in zip(results, single[1], strict=True):
        assert_allclose(
            actual.losses["squares"], reference.losses["squares"], rtol=1e-5
        )
        assert_allclose(
            actual.metrics["near"], reference.metrics["near"], rtol=1e-5
        )
        assert float(actual.tokens) == float(reference.tokens)


def test_gradients_equal_a_plain_tape(single):
    keras.utils.set_random_seed(7)
    model = Regressor(0.0)
    batch = {k: v[:8] for k, v in rows().items()}
    with tf.GradientTape() as tape:
        losses, _ = WeightedSquares()(model(batch), batch)
        mean = losses["squares"] / batch["weights"].sum()
    gradients = tape.gradient(mean, [v.value for v in model.variables[:4]])
    norm = tf.linalg.global_norm(gradients)
    assert_allclose(single[1][0].gradient_norm, norm.numpy(), rtol=1e-5)
    assert_allclose(
        single[1][0].gradient_norms,
        [np.linalg.norm(g) for g in gradients],
        rtol=1e-5,
    )


@once
def test_clipping_bounds_the_step():
    """With plain SGD at rate 1 the change of the weights is the gradient."""
    changes = {}
    for limit in (0.0, 0.01):
        step, (result,) = train(
            "mirrored",
            data=rows(8),
            optimizer=lambda: keras.optimizers.SGD(1.0),
            max_grad_norm=limit,
        )
        changes[limit] = np.linalg.norm(weights_of(step) - initial_weights())
    assert_allclose(changes[0.0], float(result.gradient_norm), rtol=1e-4)
    assert_allclose(changes[0.01], 0.01, rtol=1e-4)


def test_dropout_is_seeded_and_differs_between_steps_and_replicas():
    same = {k: np.repeat(v[:1], 16, axis=0) for k, v in rows().items()}
    losses = []
    for seed in (1, 1, 2):
        _, results = train(rate=0.5, data=same, seed=seed, max_grad_norm=1e-9)
        losses.append([float(r.losses["squares"]) for r in results])
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert losses[0][0] != losses[0][1]


@pytest.mark.parametrize(("rate", "same"), [(0.0, True), (0.5, False)])
@once
def test_replicas_draw_different_masks(rate, same):
    """The mean of two equal rows, one a replica, and of the first alone."""
    both = {k: np.repeat(v[:1], 2, axis=0) for k, v in rows().items()}
    first = both | {"weights": both["weights"] * np.float32([[1], [0]])}
    losses = []
    for data in (both, first):
        step = make_step("mirrored", rate=rate)
        (batch,) = batches(step.strategy, data, 2)
        losses.append(float(step(batch).losses["squares"]))
    assert np.isclose(*losses, rtol=1e-5) == same


@once
def test_a_step_that_is_not_finite_changes_nothing():
    data = rows(8)
    data["x"][3, 2] = np.nan
    for strategy in ("one_device", "mirrored"):
        step, results = train(strategy, data=data)
        assert not bool(results[0].finite)
        assert not np.isfinite(results[0].gradient_norms.numpy()).all()
        assert_array_equal(weights_of(step), initial_weights())
        assert int(step.optimizer.iterations.numpy()) == 0


@once
def test_means_of_replicas_are_averaged_where_asked():
    """As the original does; rows count by the device that has them."""
    data = rows(8)
    step, results = train("mirrored", data=data, per_replica_means=True)
    keras.utils.set_random_seed(7)
    model = Regressor(0.0)
    halves = [
        {k: v[part] for k, v in data.items()}
        for part in (slice(0, 4), slice(4, 8))
    ]
    with tf.GradientTape() as tape:
        mean = tf.add_n(
            [
                WeightedSquares()(model(half), half)[0]["squares"]
                / half["weights"].sum()
                / 2
                for half in halves
            ]
        )
    gradients = tape.gradient(mean, [v.value for v in model.variables[:4]])
    assert_allclose(
        results[0].gradient_norms,
        [np.linalg.norm(g) for g in gradients],
        rtol=1e-5,
    )
    assert_allclose(results[0].losses["squares"], mean, rtol=1e-5)
    whole = train("mirrored", data=data)[1][0]
    assert float(whole.gradient_norm) != pytest.approx(
        float(results[0].gradient_norm), rel=1e-3
    )


def test_backing_off_halves_the_rate_and_recovers():
    backoff = Backoff()
    backoff.update(tf.constant(False))
    backoff.update(tf.constant(False))
    assert float(backoff.value) == 0.25
    for _ in range(200):
        assert float(backoff.value) < 1.0
        backoff.update(tf.constant(True))
    assert float(backoff.value) == 1.0
    for _ in range(10):
        assert not backoff.exhausted()
        backoff.update(tf.constant(False))
    assert backoff.exhausted()


@once
def test_a_rate_backed_off_from_scales_the_update():
    data, start, backoff = rows(8), initial_weights(), Backoff()
    backoff.value.assign(0.5)
    whole, half = (
        weights_of(train(data=data, **more)[0])
        for more in ({}, {"backoff": backoff})
    )
    assert_allclose(half - start, 0.5 * (whole - start), rtol=1e-3, atol=1e-7)


@once
def test_a_worker_asked_to_stop_is_heard_of():
    for strategy, count in (("one_device", 1.0), ("mirrored", 2.0)):
        step = make_step(strategy)
        (batch,) = batches(step.strategy, rows(8))
        for asked in (False, True):
            assert float(step(batch, asked).stop) == count * asked


def test_loss_scale_leaves_the_mathematics_alone(single):
    scale = LossScale()
    step, _ = train(loss_scale=scale)
    assert_allclose(weights_of(step), weights_of(single[0]), atol=1e-5)
    assert int(scale.good_steps) == 20


def test_loss_scale_halves_on_overflow_and_grows_back():
    scale = LossScale()
    scale.update(tf.constant(False))
    assert float(scale.value) == 2.0**14
    scale.good_steps.assign(1998)
    scale.update(tf.constant(True))
    assert float(scale.value) == 2.0**14
    scale.update(tf.constant(True))
    assert float(scale.value) == 2.0**15
    assert not scale.exhausted()
    scale.value.assign(0.5)
    assert scale.exhausted()


def test_batch_that_cannot_be_cut():
    with pytest.raises(ValueError, match="gradient_accumulation_steps=3"):
        train(accumulation=3)


@once
def test_evaluation_sums_over_replicas():
    sums = {}
    for strategy in ("one_device", "mirrored"):
        step = make_step(strategy, rate=0.5)
        evaluation = EvaluationStep(step.model, step.objective, step.strategy)
        (batch,) = batches(step.strategy, rows(11), 11)
        sums[strategy] = tf.nest.flatten(
            tf.nest.map_structure(float, evaluation(batch))
        )
    assert_allclose(sums["mirrored"], sums["one_device"], rtol=1e-5)


def step_of(model, optimizer=None, **more):
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    strategy = make_strategy("one_device")
    return TrainingStep(model, WeightedSquares(), optimizer, strategy, **more)


def first_changes(frozen_first=False, lr_multipliers=None):
    """What one step of Adam changes in each weight of the model."""
    keras.utils.set_random_seed(7)
    model = Regressor(0.5)
    before = [v.numpy() for v in model.variables if "seed" not in v.name]
    frozen = []
    if frozen_first:
        model.first.trainable = False
        frozen = model.first.variables
    optimizer = keras.optimizers.Adam(0.01)
    step = step_of(
        model, optimizer, frozen=frozen, lr_multipliers=lr_multipliers
    )
    step({k: tf.constant(v[:8]) for k, v in rows().items()})
    after = [v.numpy() for v in model.variables if "seed" not in v.name]
    return [np.abs(a - b).max() for a, b in zip(after, before, strict=True)]


@once
def test_frozen_weights_stay():
    changes = first_changes(frozen_first=True)
    assert changes[:2] == [0, 0]
    assert all(change > 0 for change in changes[2:])


def test_weights_that_nobody_declared_frozen_are_an_error():
    model = Regressor(0.0)
    model.first.trainable = False
    with pytest.raises(ValueError, match="carries no state but"):
        step_of(model)({k: tf.constant(v[:8]) for k, v in rows().items()})


@once
def test_rate_factors():
    """Adam's first step is as long as the rate, whatever the gradient."""
    changes = first_changes(lr_multipliers=[1.0, 0.5, 0.25, 0.0])
    assert_allclose(changes, [0.01, 0.005, 0.0025, 0], rtol=1e-3, atol=1e-9)


def test_one_graph_for_the_lengths_that_are_expected():
    keras.utils.set_random_seed(7)
    traced = []

    class Watched(Regressor):
        def call(self, inputs, training=None):
            traced.append(tuple(inputs["input_mask"].shape))
            return super().call(inputs, training=training)

    model = Watched(0.0)
    step = step_of(model, accumulation=2)
    data = {k: tf.constant(v[:8]) for k, v in rows().items()}
    specification = {
        k: tf.TensorSpec(v.shape, v.dtype) for k, v in data.items()
    }
    specification["input_mask"] = tf.TensorSpec([8, None], tf.int32)
    step.expect(specification)
    for width in (4, 3, 2):
        step({**data, "input_mask": data["input_mask"][:, :width]})
    assert set(traced) == {(4, None)}
