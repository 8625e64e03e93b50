"""Schedule and optimizers against NumPy, over many random steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import numpy, small_config

from bert_tf.architectures.modernbert import ModernBertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.encoders.modernbert import ModernBertEncoder
from bert_tf.errors import UserError
from bert_tf.models import bert_classifier
from bert_tf.optimization import (
    AdamW,
    Lamb,
    LinearWarmupDecay,
    StableAdamW,
    adamw,
    global_norm,
    is_excluded,
    lamb,
    stable_adamw,
    trust_ratio,
    warmup_steps,
)

# Path and shape of the variables; those with True are not decayed.
VARIABLES = {
    "bert/layer_0/attention/qkv_kernel": ((4, 6), False),
    "bert/layer_0/attention/qkv_bias": ((6,), True),
    "bert/layer_0/output_layer_norm/gamma": ((4,), True),
    "bert/embeddings/word_embeddings": ((5, 4), False),
    "logits/kernel": ((4, 2), False),
    "logits/bias": ((2,), True),
}


def make_variables(seed: int = 0) -> list[keras.Variable]:
    random = np.random.default_rng(seed)
    variables = []
    for path, (shape, _) in VARIABLES.items():
        weight = path.split("/")[-1]
        variable = keras.Variable(
            random.normal(size=shape).astype("float32"), name=weight
        )
        variable._path = path
        variables.append(variable)
    return variables


class NumpyOptimizer:
    """Adam's moments, decoupled decay and LAMB's trust ratio, float64.

    Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2;
    You et al. 2020, algorithm 2; google-research/bert, optimization.py;
    Wortsman et al. 2023, algorithm 2, with corrected decay rates in place of
    corrected moments, and the weight decay lr / peak * decay of ModernBERT.
    """

    def __init__(self, values, rule, decay=0.01, epsilon=1e-6):
        self.values = [v.astype(np.float64) for v in values]
        self.first = [np.zeros_like(v) for v in self.values]
        self.second = [np.zeros_like(v) for v in self.values]
        self.rule, self.decay, self.epsilon = rule, decay, epsilon
        self.steps = 0

    def step(self, gradients, rate, clip=None):
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        if clip is not None and norm > clip:
            gradients = [g * clip / norm for g in gradients]
        self.steps += 1
        for i, (gradient, (path, (_, excluded))) in enumerate(
            zip(gradients, VARIABLES.items(), strict=True)
        ):
            if self.rule == "stable":
                self._stable_step(i, gradient, rate, excluded)
                continue
            self.first[i] = 0.9 * self.first[i] + 0.1 * gradient
            self.second[i] = 0.999 * self.second[i] + 0.001 * gradient**2
            m, v = self.first[i], self.second[i]
            if self.rule != "original":
                m = m / (1 - 0.9**self.steps)
                v = v / (1 - 0.999**self.steps)
            update = m / (np.sqrt(v) + self.epsilon)
            if not excluded:
                update = update + self.decay * self.values[i]
            if self.rule == "lamb" and not excluded:
                parts = 3 if "qkv" in path else 1
                update = np.concatenate(
                    [
                        u * np.linalg.norm(w) / np.linalg.norm(u)
                        for w, u in zip(
                            np.split(self.values[i], parts, -1),
                            np.split(update, parts, -1),
                            strict=True,
                        )
                    ],
                    -1,
                )
            self.values[i] = self.values[i] - rate * update

    def _stable_step(self, i, gradient, rate, excluded, peak=2e-2):
        t, moments = self.steps, (self.first, self.second)
        for beta, moment, power in zip(
            (0.9, 0.98), moments, (1, 2), strict=True
        ):
            beta = beta * (1 - beta ** (t - 1)) / (1 - beta**t)
            moment[i] = beta * moment[i] + (1 - beta) * gradient**power
        v = np.maximum(self.second[i], self.epsilon**2)
        rate = rate / max(1, np.sqrt(np.mean(gradient**2 / v)))
        if not excluded:
            decoupled = self.decay * peak
            self.values[i] = self.values[i] * (1 - rate / peak * decoupled)
        root = np.sqrt(self.second[i]) + self.epsilon
        self.values[i] = self.values[i] - rate * self.first[i] / root


RULES = {
    "adamw": lambda **how: adamw(2e-2, 100, 10, **how),
    "original": lambda **how: adamw(
        2e-2, 100, 10, bias_correction=False, **how
    ),
    "lamb": lambda **how: lamb(2e-2, 100, 10, **how),
    "stable": lambda **how: stable_adamw(2e-2, 100, 10, **how),
}


def rate_of(step: int, peak: float = 2e-2) -> float:
    return peak * (step / 10 if step < 10 else 1 - step / 100)


def random_gradients(random) -> list[np.ndarray]:
    scale = 10.0 ** random.uniform(-3, 1)
    return [
        (scale * random.normal(size=shape)).astype("float32")
        for shape, _ in VARIABLES.values()
    ]


def after_steps(rule, gradients, compiled=None, **how) -> list:
    """The variables after a tf.function has applied each list of gradients."""
    variables = make_variables()
    optimizer = RULES[rule](**how)
    optimizer.build(variables)

    @tf.function(jit_compile=compiled)
    def step(gradients):
        optimizer.apply(gradients, variables)

    for some in gradients:
        step(some)
    return [numpy(v) for v in variables]


@pytest.mark.parametrize(
    ("rule", "clip"),
    [
        ("adamw", 1.0),
        ("adamw", None),
        ("original", 1.0),
        ("lamb", 1.0),
        ("stable", None),
    ],
)
def test_a_hundred_steps_are_those_of_numpy(rule, clip) -> None:
    reference = NumpyOptimizer([numpy(v) for v in make_variables()], rule)
    random = np.random.default_rng(7)
    gradients = [random_gradients(random) for _ in range(100)]
    for step, some in enumerate(gradients):
        some = [g.astype(np.float64) for g in some]
        reference.step(some, rate_of(step), clip)
    tensors = [[tf.constant(g) for g in some] for some in gradients]
    found = after_steps(rule, tensors, clip_norm=clip)
    for path, ours, expected in zip(
        VARIABLES, found, reference.values, strict=True
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-5, err_msg=path)


def test_schedule_by_hand() -> None:
    schedule = LinearWarmupDecay(1.0, total_steps=100, warmup_steps=10)
    steps = [0, 1, 9, 10, 11, 50, 99, 100, 120]
    rates = [0.0, 0.1, 0.9, 0.9, 0.89, 0.5, 0.01, 0.0, 0.0]
    found = [float(schedule(step)) for step in steps]
    np.testing.assert_allclose(found, rates, atol=1e-6)
    plain = LinearWarmupDecay(0.5, total_steps=4, warmup_steps=0)
    found = [float(plain(step)) for step in range(5)]
    np.testing.assert_allclose(found, [0.5, 0.375, 0.25, 0.125, 0.0])
    # Exact late in a long run.
    late = float(LinearWarmupDecay(1e-4, 1_000_000, 10_000)(999_999))
    np.testing.assert_allclose(late, 1e-10, rtol=1e-6)


@pytest.mark.parametrize(
    ("decay_steps", "shape", "rates"),
    [
        (20, "linear", [0.0, 0.9, 1.0, 1.0, 1.0, 0.5, 0.05, 0.0, 0.0]),
        (
            *(20, "one_minus_sqrt"),
            [0.0, 0.9, 1.0, 1.0, 1.0, 1 - 0.5**0.5, 1 - 0.95**0.5, 0.0, 0.0],
        ),
        (0, "linear", [0.0, 0.9, *[1.0] * 7]),
        (100, "one_minus_sqrt", [0.0, 0.9, 1 - 0.1**0.5, 1 - 0.5**0.5]),
    ],
)
def test_a_trapezoid_by_hand(decay_steps, shape, rates) -> None:
    schedule = LinearWarmupDecay(
        2.0, 100, 10, decay_steps=decay_steps, decay_shape=shape
    )
    for revived in (schedule, LinearWarmupDecay(**schedule.get_config())):
        found = [
            float(revived(step))
            for step in (0, 9, 10, 50, 80, 90, 99, 100, 120)[: len(rates)]
        ]
        np.testing.assert_allclose(found, 2.0 * np.array(rates), atol=1e-6)


@pytest.mark.parametrize("make", [adamw, lamb, stable_adamw])
def test_every_optimizer_takes_a_trapezoid(make) -> None:
    optimizer = make(
        1.0, 50, decay_proportion=0.2, decay_shape="one_minus_sqrt"
    )
    assert optimizer.get_config()["learning_rate"]["config"] == {
        **{"learning_rate": 1.0, "total_steps": 50, "warmup_steps": 5},
        **{"decay_steps": 10, "decay_shape": "one_minus_sqrt"},
    }
    whole = make(1.0, 50).get_config()["learning_rate"]["config"]
    assert whole.keys() == {"learning_rate", "total_steps", "warmup_steps"}


@pytest.mark.parametrize("warmup", [0, 10])
def test_the_schedule_of_electra_is_a_product(warmup) -> None:
    """google-research/electra, model/optimization.py, create_optimizer."""
    schedule = adamw(2.0, 100, warmup, warmup_times_decay=True).get_config()
    schedule = keras.optimizers.schedules.deserialize(
        schedule["learning_rate"],
        {"bert_tf>LinearWarmupDecay": LinearWarmupDecay},
    )
    for step in (0, 1, 5, 9, 10, 11, 50, 99, 100):
        rising = min(1.0, step / warmup) if warmup else 1.0
        expected = 2.0 * (1 - step / 100) * rising
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("warmup", "steps"), [(0.1, 12), (0.0, 0), (0, 0), (1, 1), (30, 30)]
)
def test_warmup_is_a_share_or_a_number(warmup, steps) -> None:
    assert warmup_steps(warmup, 125) == steps
    assert adamw(1e-3, 125, warmup)._learning_rate.warmup_steps == steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1e-3, 10, 1), "learning_rate is -0.001"),
        ((1e-3, 0, 0), "total_steps is 0"),
        ((1e-3, 10, 11), "warmup_steps is 11"),
        ((1e-3, 10, -0.1), "warmup is -0.1"),
        ((1e-3, 10, 1.5), "warmup is 1.5"),
    ],
)
def test_bad_arguments_are_named(arguments, message) -> None:
    with pytest.raises(UserError, match=message):
        adamw(*arguments)


@pytest.mark.parametrize(
    ("argument", "value"), [("decay_proportion", 1.5), ("decay_shape", "cos")]
)
def test_a_bad_decay_is_named(argument, value) -> None:
    with pytest.raises(UserError, match=f"{argument} is {value!r}"):
        stable_adamw(1e-3, 10, **{argument: value})


@pytest.mark.parametrize(
    ("path", "excluded"),
    [
        ("bert/embeddings/LayerNorm/gamma", True),
        ("bert/layer_0/attention_layer_norm/beta", True),
        ("model/layer_normalization_3/gamma", True),
        ("bert/layer_0/attention/qkv_bias", True),
        ("dense_1/bias", True),
        ("bert_pretrainer/masked_lm/output_bias", True),
        ("bias", True),
        ("dense_1/kernel", False),
        ("unbiased_layer_norm_model/dense/kernel", False),
        ("bert/embeddings/word_embeddings", False),
    ],
)
def test_excluded_by_the_variable_or_its_layer(path, excluded) -> None:
    assert is_excluded(path) == excluded


def test_decay_alone_shrinks_only_what_is_not_excluded() -> None:
    variables = make_variables()
    before = [numpy(v).copy() for v in variables]
    optimizer = AdamW(0.5, weight_decay=0.1)
    zeros = [np.zeros(v.shape, "float32") for v in variables]
    optimizer.apply(zeros, variables)
    for variable, old in zip(variables, before, strict=True):
        factor = 1.0 if VARIABLES[variable.path][1] else 0.95
        np.testing.assert_allclose(numpy(variable), factor * old, rtol=1e-6)


def test_steady_gradients_are_adamw_and_a_growing_one_is_divided() -> None:
    def last_update(kind, gradients):
        variable = keras.Variable(np.ones((2, 3), "float32"), name="kernel")
        optimizer = kind(0.1, beta_2=0.98, clip_norm=None)
        for size in gradients:
            before = numpy(variable).copy()
            optimizer.apply([tf.fill((2, 3), size)], [variable])
        return numpy(variable) - before

    for gradients in ([1.0, 1.0], [1.0, 1.0, 1e4]):
        updates = [
            last_update(kind, gradients) for kind in (AdamW, StableAdamW)
        ]
        # The corrected second moment is a mean with weights 0.98^t.
        weights = 0.98 ** np.arange(len(gradients) - 1, -1, -1)
        v = np.average(np.square(gradients), weights=weights)
        expected = gradients[-1] / np.sqrt(v)
        np.testing.assert_allclose(updates[0] / updates[1], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "encoder",
    [
        lambda: BertEncoder(small_config()),
        lambda: ModernBertEncoder(
            ModernBertConfig(
                vocab_size=11,
                hidden_size=8,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=12,
            )
        ),
    ],
)
def test_a_stock_head_and_our_layers_are_excluded_alike(encoder) -> None:
    model = bert_classifier(encoder(), 2)
    optimizer = AdamW(0.1)
    optimizer.build(model.trainable_variables)
    excluded = {
        v.path
        for v, out in zip(
            model.trainable_variables, optimizer._excluded, strict=True
        )
        if out
    }
    vectors = {v.path for v in model.trainable_variables if len(v.shape) == 1}
    assert excluded == vectors
    assert sum(optimizer._blocks) == len(optimizer._blocks) + 2 * 2


def test_trust_ratio_is_one_where_a_norm_is_zero() -> None:
    weight = np.float32([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]])
    update = np.float32([[0.5, 2.0, 0.0], [0.0, 0.0, 0.0]])
    ratio = numpy(trust_ratio(weight, update, 3))
    np.testing.assert_allclose(ratio, [10.0, 1.0, 1.0])
    assert float(trust_ratio(weight * 0, update, 1)) == 1.0
    assert float(trust_ratio(weight, update * 0, 1)) == 1.0


@pytest.mark.parametrize("kind", [AdamW, Lamb, StableAdamW])
def test_configuration_round_trip(kind) -> None:
    optimizer = kind(
        LinearWarmupDecay(3e-4, 50, 5),
        weight_decay=0.02,
        beta_1=0.8,
        beta_2=0.99,
        epsilon=1e-7,
        clip_norm=None,
        bias_correction=False,
        name="mine",
    )
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizer)
    )
    assert type(revived) is kind
    assert revived.get_config() == optimizer.get_config()
    assert float(revived._learning_rate(7)) == float(
        optimizer._learning_rate(7)
    )


def test_a_plain_learning_rate_can_be_set() -> None:
    variables = make_variables()
    before = numpy(variables[0]).copy()
    optimizer = AdamW(0.1)
    optimizer.learning_rate = 0.0
    optimizer.apply(random_gradients(np.random.default_rng(0)), variables)
    np.testing.assert_array_equal(numpy(variables[0]), before)


def test_global_norm() -> None:
    gradients = [np.float32([[3.0]]), np.float32([0.0, 4.0])]
    assert float(global_norm(gradients)) == 5.0


def slices(size: int) -> tf.IndexedSlices:
    """A gradient of (5, 4) whose row 1 occurs twice."""
    rows = np.arange(1.0, 13.0, dtype="float32").reshape(3, 4)
    return tf.IndexedSlices(
        tf.constant(rows), tf.constant([1, 3, 1]), tf.constant([size, 4])
    )


@pytest.mark.parametrize(("rule", "clip"), [("lamb", 0.5), ("stable", None)])
def test_repeated_rows_of_a_sparse_gradient_are_added_first(rule, clip) -> None:
    sparse = [tf.ones(shape) for shape, _ in VARIABLES.values()]
    sparse[3] = slices(5)
    dense = [tf.convert_to_tensor(g) for g in sparse]
    left = after_steps(rule, [sparse] * 3, clip_norm=clip)
    right = after_steps(rule, [dense] * 3, clip_norm=clip)
    for ours, expected in zip(left, right, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_global_norm_adds_repeated_rows_first() -> None:
    rows = (10, 12, 14, 16, 5, 6, 7, 8)
    assert float(global_norm([slices(5)])) == pytest.approx(
        np.sqrt(sum(x**2 for x in rows))
    )


@pytest.mark.parametrize("rule", ["lamb", "stable"])
def test_compiled_by_xla_it_does_the_same(rule) -> None:
    random = np.random.default_rng(3)
    gradients = [
        [tf.constant(g) for g in random_gradients(random)] for _ in range(5)
    ]
    left = after_steps(rule, gradients, compiled=True)
    right = after_steps(rule, gradients)
    for ours, expected in zip(left, right, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)


@pytest.mark.parametrize("rule", ["lamb", "stable"])
def test_two_replicas_are_one_that_sees_all(rule) -> None:
    """Clipping included: it must come after the sum over replicas."""
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        variables = make_variables()
        optimizer = RULES[rule](clip_norm=0.5)
        optimizer.build(variables)
    alone, reference = make_variables(), RULES[rule](clip_norm=0.5)

    def replica(gradients):
        optimizer.apply(gradients, variables)

    random = np.random.default_rng(2)
    for _ in range(4):
        halves = [random_gradients(random) for _ in range(2)]
        spread = [
            strategy.experimental_distribute_values_from_function(
                lambda c, pair=pair: tf.constant(
                    pair[c.replica_id_in_sync_group]
                )
            )
            for pair in zip(*halves, strict=True)
        ]
        strategy.run(replica, (spread,))
        whole = [a + b for a, b in zip(*halves, strict=True)]
        reference.apply([tf.constant(g) for g in whole], alone)
    for variable, expected in zip(
        variables + optimizer.variables,
        alone + reference.variables,
        strict=True,
    ):
        copies = strategy.experimental_local_results(variable.value)
        assert len(copies) == 2
        np.testing.assert_array_equal(copies[0].numpy(), copies[1].numpy())
        np.testing.assert_allclose(
            copies[0].numpy(), numpy(expected), rtol=1e-5, atol=1e-6
        )
