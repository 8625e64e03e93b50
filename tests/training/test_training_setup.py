"""What a recipe makes of a training: every setting arrives."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.models import bert_classifier
from bert_tf.optimization import AdamW, Lamb, StableAdamW
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.sentinel import forward_tensors
from bert_tf.training.setup import check_batch_size, make_step
from tests.model_helpers import encoder_inputs, small_config

RECIPE = TrainingRecipe(
    learning_rate=0.3,
    warmup_proportion=0.25,
    decay_proportion=0.5,
    decay_shape="one_minus_sqrt",
    weight_decay_rate=0.04,
    adam_beta_1=0.7,
    adam_beta_2=0.95,
    adam_epsilon=2e-5,
    max_grad_norm=0.6,
    gradient_accumulation_steps=5,
    seed=77,
)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.dense.build((None, 3))
        self.built = True


def step_of(**changes):
    recipe = TrainingRecipe(**{**RECIPE.to_dict(), **changes})
    strategy = tf.distribute.get_strategy()
    return make_step(recipe, Model(), "objective", strategy, 40)


def test_every_setting_arrives():
    step = step_of()
    optimizer = step.optimizer
    assert type(optimizer) is AdamW
    config = optimizer.get_config()
    assert config["bias_correction"] is True
    assert (config["beta_1"], config["beta_2"]) == (0.7, 0.95)
    assert config["epsilon"] == 2e-5
    assert config["weight_decay"] == 0.04
    # The step clips, after the reduction over devices.
    assert config["clip_norm"] is None
    assert step.max_grad_norm == 0.6
    assert (step.accumulation, step.seed) == (5, 77)
    assert step.objective == "objective"
    schedule = optimizer._learning_rate
    assert schedule.learning_rate == 0.3
    # A quarter of 40 steps.
    assert (schedule.warmup_steps, schedule.total_steps) == (10, 40)
    assert schedule.decay_steps == 20
    assert schedule.decay_shape == "one_minus_sqrt"


def test_optimizers():
    plain = step_of(optimizer="adamw_no_bias_correction").optimizer
    assert type(plain) is AdamW
    assert plain.get_config()["bias_correction"] is False
    for name, kind in (("lamb", Lamb), ("stable_adamw", StableAdamW)):
        optimizer = step_of(optimizer=name).optimizer
        assert type(optimizer) is kind
        assert optimizer._learning_rate.decay_steps == 20


@pytest.mark.parametrize(
    ("precision", "scaled"),
    [("float32", False), ("mixed_bfloat16", False), ("mixed_float16", True)],
)
def test_float16_alone_is_scaled(precision, scaled):
    step = step_of(precision=precision)
    assert (step.loss_scale is not None) == scaled


def test_frozen_weights_and_rate_factors_are_handed_on():
    model = Model()
    frozen = [keras.Variable(np.zeros(3), name="frozen")]
    step = make_step(
        RECIPE,
        model,
        "objective",
        tf.distribute.get_strategy(),
        40,
        frozen,
        [0.5, 0.25],
    )
    assert step.frozen == frozen
    assert step.lr_multipliers == [0.5, 0.25]


class Devices:
    num_replicas_in_sync = 2


def test_a_batch_divides_over_devices_and_slices():
    check_batch_size("train_batch_size", 12, Devices(), 3)
    check_batch_size("eval_batch_size", 2, Devices())
    with pytest.raises(UserError) as caught:
        check_batch_size("final_phase_batch_size", 10, Devices(), 3)
    line = str(caught.value)
    assert line.startswith("final_phase_batch_size 10 is ")
    assert "of 6: 2 devices x gradient_accumulation_steps 3" in line
    with pytest.raises(UserError, match="eval_batch_size 9 is .* of 2: 2 dev"):
        check_batch_size("eval_batch_size", 9, Devices())


def test_forward_tensors_are_named_in_order():
    config = small_config()
    encoder = BertEncoder(config)
    classifier = bert_classifier(encoder, 3)

    class Wrapped:
        def __init__(self):
            self.encoder = encoder

        def __call__(self, batch, training):
            return {"logits": classifier(batch, training=training)}

    def objective(outputs, batch):
        return {"cross_entropy": tf.reduce_sum(outputs["logits"])}, {}

    batch = encoder_inputs(config, rows=2)
    found = forward_tensors(Wrapped(), objective, batch)
    assert [name for name, _ in found] == [
        "embedding_output",
        "the output of layer 0",
        "the output of layer 1",
        "pooled_output",
        "logits",
        "cross_entropy",
    ]
    assert found[4][1].shape == (2, 3)
