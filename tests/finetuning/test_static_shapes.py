"""Where shapes have to be static, as on TPUs, every step compiles with XLA."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import HEADS_ON_POOLER
from bert_tf.encoders import BertEncoder
from bert_tf.families.rows import few_widths
from bert_tf.finetuning import evaluation
from bert_tf.finetuning.batches import training_batches
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.setup import freeze, open_initial, prepare_training
from bert_tf.training import step as steps
from bert_tf.training.setup import make_step
from tests.contracts.task_cases import CASES, model_folder
from tests.model_helpers import fill

COMPILES = pytest.mark.witness("training compiles with static shapes")


@pytest.fixture(
    scope="module",
    # Their batches differ in kind.
    params=[
        pytest.param("classes", marks=COMPILES),
        *("choices", "tags", "features", "questions"),
    ],
)
def prepared(request, tmp_path_factory):
    """A case's training data and its recipe, without dropout."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    place = tmp_path_factory.mktemp(request.param)
    start = model_folder(place / "start", **off)
    task, recipe = CASES[request.param].make(place / "files", start)
    if request.param == "tags":
        recipe = recipe.override(["bilstm=True"])
    initial, tokenizer = open_initial(recipe)
    data = prepare_training(
        task.resolve(recipe), recipe, initial, tokenizer, place / "run"
    )
    return data, recipe


def filled(data, recipe, unpadded):
    """The task's model with drawn weights, which dropout leaves alone."""
    model = data.task.build(
        BertEncoder(data.initial.config), data.config, unpadded
    )
    fill(model, seed=5, scale=0.3)
    freeze(
        model.encoder, recipe.freeze_layers, data.config.head in HEADS_ON_POOLER
    )
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return model


def shape_of(batch):
    return tuple(tuple(batch[name].shape) for name in sorted(batch))


def test_gradients_are_those_of_the_tokens_alone(prepared, monkeypatch) -> None:
    data, recipe = prepared
    rows, size = data.train.rows, recipe.train_batch_size
    batches = {
        static: list(
            training_batches(rows, size, 3, static_shapes=static).take(
                2 * len(rows) // size
            )
        )
        for static in (False, True)
    }
    shapes = {shape_of(batch) for batch in batches[True]}
    assert len(shapes) <= len(set(few_widths(rows.lengths)))
    results = []
    for static in (False, True):
        monkeypatch.setattr(
            steps, "needs_static_shapes", lambda _, static=static: static
        )
        model = filled(data, recipe, unpadded=not static)
        step = make_step(
            recipe,
            model,
            data.objective,
            tf.distribute.get_strategy(),
            10,
            model.non_trainable_weights,
        )

        def gradients(batch, step=step):
            found = step._gradients(
                batch, tf.constant(0, tf.int64), tf.constant(0.0)
            )
            return found[0]

        function = gradients
        if static:
            function = tf.function(gradients, jit_compile=True, autograph=False)
        results.append(function(batches[static][0]))
    for plain, xla in zip(*results, strict=True):
        largest = np.abs(plain).max()
        np.testing.assert_allclose(xla, plain, atol=1e-5 * (1 + largest))


def test_predictions_are_those_of_the_tokens_alone(
    prepared, monkeypatch
) -> None:
    data, recipe = prepared
    rows = data.dev[data.main_split].rows
    outputs, shapes = [], set()
    for static in (False, True):
        monkeypatch.setattr(
            evaluation, "needs_static_shapes", lambda _, static=static: static
        )
        predictor = Predictor(
            [filled(data, recipe, unpadded=not static)],
            tf.distribute.get_strategy(),
            recipe.eval_batch_size,
        )
        if static:
            run = tf.function(predictor._run, jit_compile=True, autograph=False)

            def compiled(batch, run=run):
                shapes.add(tuple(t.shape for t in batch.values()))
                return run(batch)

            predictor._compiled = compiled
        outputs.append(predictor.outputs(rows))
    assert 0 < len(shapes) <= len(set(few_widths(rows.lengths)))
    for name, expected in outputs[0].items():
        np.testing.assert_allclose(outputs[1][name], expected, atol=1e-5)


def test_widths_are_few_and_no_longer_than_the_longest_row() -> None:
    lengths = np.array([3, 32, 33, 64, 65, 200, 300])
    assert few_widths(lengths).tolist() == [32, 32, 64, 64, 128, 256, 300]
    assert few_widths(np.array([5, 9])).tolist() == [9, 9]
