"""What a student learns from its teacher, against plain NumPy."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import (
    fill,
    numpy,
    predictions_of_tokens,
    pretraining_batch,
    small_config,
)
from packed_batches import packed as packed_rows
from user_errors import error_of

from bert_tf.distiller import (
    DistillationObjective,
    Distiller,
    soft_target_loss,
)
from bert_tf.encoders import encoder_class
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.rows import CHOICE_MASK, EXAMPLE_WEIGHTS
from bert_tf.families.task_model import (
    ChoicesObjective,
    ClassesObjective,
    MultiLabelObjective,
    RegressionObjective,
    TaskModel,
)
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
)
from bert_tf.pretraining.objective import MaskedLanguageModeling
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe

TEACHER = small_config(num_hidden_layers=4)
STUDENT = small_config()
TERMS = ("cosine", "hidden_state", "attention_score")


def settings(recipe=PretrainingRecipe, **changes):
    return recipe(**{"teacher": "T", **changes})


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def divergence(logits, targets, temperature):
    own, theirs = (
        log_softmax(each.astype("float64") / temperature)
        for each in (logits, targets)
    )
    return temperature**2 * (np.exp(theirs) * (theirs - own)).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 3.5])
def test_soft_targets_and_their_gradient(temperature):
    random = np.random.default_rng(0)
    own, theirs = random.normal(0, 4, (2, 3, 5, 7)).astype("float32")
    logits = tf.Variable(own)
    with tf.GradientTape() as tape:
        loss = soft_target_loss(logits, tf.constant(theirs), temperature)
        total = tf.reduce_sum(loss * tf.range(15.0, dtype="float32")[:5])
    expected = divergence(own, theirs, temperature)
    np.testing.assert_allclose(loss, expected, atol=1e-4, rtol=1e-5)
    # T^2 / T times the difference of the softened distributions.
    difference = np.exp(log_softmax(own / temperature)) - np.exp(
        log_softmax(theirs / temperature)
    )
    weights = np.arange(5.0)[:, None]
    np.testing.assert_allclose(
        tape.gradient(total, logits),
        temperature * difference * weights,
        atol=1e-5,
    )


def pretrainers(student=STUDENT, teacher=TEACHER, **arguments):
    arguments = {"objective": MaskedLanguageModeling(), **arguments}
    return [
        fill(BertPretrainer(config, **arguments), seed)
        for seed, config in enumerate((student, teacher))
    ]


def numpy_terms(student, teacher, batch, pairs, widen=None):
    """Every term of the published losses, token by token."""
    own, theirs = (
        model(batch, return_all_layers=True) for model in (student, teacher)
    )
    states = [
        [numpy(each["embedding_output"])]
        + [numpy(s) for s in each["all_encoder_layers"]]
        for each in (own, theirs)
    ]
    logits = [numpy(each["token_logits"]) for each in (own, theirs)]
    found = {"soft_target": 0.0, **dict.fromkeys(TERMS, 0.0)}
    tokens = 0
    for row, column in np.argwhere(batch["input_mask"] == 1):
        tokens += 1
        place = row, column
        found["soft_target"] += divergence(
            logits[0][place], logits[1][place], 2.0
        )
        a, b = states[0][-1][place], states[1][-1][place]
        found["cosine"] += 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        seen = np.flatnonzero(batch["input_mask"][row])
        for one, other in pairs:
            scores = []
            for model, layers, layer in zip(
                (student, teacher), states, (one, other), strict=True
            ):
                attention = model.encoder.blocks[layer].attention
                width = layers[layer].shape[-1]
                product = layers[layer][row] @ numpy(attention.kernel)
                product = product + numpy(attention.bias)
                heads = model.config.num_attention_heads
                query, key = (
                    product[:, part * width : (part + 1) * width].reshape(
                        -1, heads, width // heads
                    )
                    for part in (0, 1)
                )
                dot = np.einsum("nd,knd->nk", query[column], key[seen])
                scores.append(dot / np.sqrt(width // heads))
            found["attention_score"] += ((scores[0] - scores[1]) ** 2).mean()
        if widen is not None:
            for one, other in [(-1, -1), *pairs]:
                wide = widen(states[0][one + 1][place][None])[0]
                difference = wide - states[1][other + 1][place]
                found["hidden_state"] += (difference**2).mean()
    return {f"{name}_loss": value / tokens for name, value in found.items()}


def mean_losses(distiller, batch, recipe, objective=None):
    objective = objective or MaskedLanguageModeling()
    objective = DistillationObjective(objective, recipe)
    losses, _ = objective(distiller(batch, training=False), batch)
    means = objective.normalise(losses, objective.loss_weights(batch))
    return {name: float(mean) for name, mean in means.items()}


ALL = {
    "label_weight": 2.0,
    "soft_target_weight": 5.0,
    "cosine_weight": 1.0,
    "hidden_state_weight": 0.5,
    "attention_score_weight": 3.0,
}


@pytest.fixture(scope="module")
def of_all():
    """A recipe with all terms and its distiller, which no test changes."""
    recipe = settings(**ALL)
    return recipe, Distiller(*pretrainers(), recipe, return_all_layers=True)


def test_every_term_is_that_of_plain_numpy(of_all):
    batch = pretraining_batch(STUDENT, rows=4)
    recipe, distiller = of_all
    student, teacher = distiller.student, distiller.teacher
    found = mean_losses(distiller, batch, recipe)
    expected = numpy_terms(
        student,
        teacher,
        batch,
        [(0, 1), (1, 3)],
        lambda rows: numpy(distiller.widen(rows)),
    )
    alone = MaskedLanguageModeling()
    losses, _ = alone(student(batch), batch)
    means = alone.normalise(losses, alone.loss_weights(batch))
    expected["masked_lm_loss"] = float(means["masked_lm_loss"])
    weights = {
        name: ALL[name.replace("masked_lm", "label")[:-5] + "_weight"]
        for name in expected
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(weights[name] * value, rel=2e-5)
        assert value > 1e-3


def test_named_layers_are_compared():
    batch = pretraining_batch(STUDENT)
    student, teacher = pretrainers()
    recipe = settings(attention_score_weight=1.0, teacher_layers="0, 2")
    distiller = Distiller(student, teacher, recipe, return_all_layers=True)
    found = mean_losses(distiller, batch, recipe)["attention_score_loss"]
    for pairs, same in (([(0, 0), (1, 2)], True), ([(0, 1), (1, 3)], False)):
        expected = numpy_terms(student, teacher, batch, pairs)
        expected = expected["attention_score_loss"]
        assert bool(found == pytest.approx(expected, rel=2e-5)) is same


def test_padding_changes_nothing(of_all):
    batch = predictions_of_tokens(pretraining_batch(STUDENT, length=10))
    longer = dict(batch)
    for name in ("input_ids", "input_mask", "segment_ids"):
        longer[name] = np.pad(batch[name], ((0, 0), (0, 10)))
    # Other ids in the padding too.
    longer["input_ids"] = np.where(
        longer["input_mask"] == 1, longer["input_ids"], 7
    )
    recipe, distiller = of_all
    found = mean_losses(distiller, longer, recipe)
    expected = mean_losses(distiller, batch, recipe)
    assert found == pytest.approx(expected, rel=1e-5)


def test_packed_and_unpadded_rows_give_the_losses_of_their_sequences():
    alone = predictions_of_tokens(pretraining_batch(STUDENT, rows=5, length=8))
    packed = packed_rows(alone, [[0, 1], [2], [3, 4]], 20)
    recipe = settings(**ALL)
    student, teacher = pretrainers()
    found = []
    for batch, unpadded in ((alone, False), (packed, False), (packed, True)):
        for model in (student, teacher):
            model.unpadded = unpadded
        distiller = Distiller(student, teacher, recipe, return_all_layers=True)
        fill(distiller.widen)
        found.append(mean_losses(distiller, batch, recipe))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


def test_the_student_alone_is_trained(of_all):
    batch = pretraining_batch(STUDENT)
    recipe, distiller = of_all
    student, teacher = distiller.student, distiller.teacher
    trained = set(map(id, distiller.trainable_variables))
    own = set(map(id, student.trainable_variables))
    assert own < trained
    assert trained - own == set(map(id, distiller.widen.variables))
    everything = {id(v) for v in distiller.variables}
    rest = set(map(id, distiller.non_trainable_variables))
    assert rest | trained == everything
    assert rest >= {id(v) for v in teacher.variables}
    # The pooler, which masked LM alone does not train.
    assert rest >= {id(v) for v in student.encoder.pooler.variables}
    objective = DistillationObjective(MaskedLanguageModeling(), recipe)
    with tf.GradientTape() as tape:
        losses, _ = objective(distiller(batch, training=True), batch)
        means = objective.normalise(losses, objective.loss_weights(batch))
        total = tf.add_n(list(means.values()))
    assert None not in tape.gradient(
        total, [v.value for v in distiller.trainable_variables]
    )


def test_the_teacher_has_no_dropout():
    batch = pretraining_batch(STUDENT)
    student, teacher = (
        fill(BertPretrainer(config, objective=MaskedLanguageModeling()), 1)
        for config in [
            dataclasses.replace(each, hidden_dropout_prob=0.5)
            for each in (STUDENT, TEACHER)
        ]
    )
    distiller = Distiller(student, teacher, settings(), return_all_layers=True)
    one, other = (distiller(batch, training=True) for _ in range(2))
    np.testing.assert_array_equal(
        one["teacher"]["token_logits"], other["teacher"]["token_logits"]
    )
    assert not np.allclose(one["token_logits"], other["token_logits"])


def task_models(make):
    return [
        TaskModel(fill(make(encoder_class(config)(config)), seed))
        for seed, config in enumerate((STUDENT, TEACHER))
    ]


def task_batch(rows=5, **more):
    batch = pretraining_batch(STUDENT, rows=rows)
    weights = np.array([1, 1, 0, 1, 1], "float32")[:rows]
    return {**batch, EXAMPLE_WEIGHTS: weights, **more}


@pytest.mark.parametrize(
    ("objective", "classes", "labels"),
    [
        (ClassesObjective(), 3, {"label_ids": np.array([0, 1, 2, 0, 1])}),
        (RegressionObjective(), 1, {"label_values": np.ones(5, "float32")}),
        (
            MultiLabelObjective(),
            4,
            {"label_sets": np.eye(5, 4, dtype="float32")},
        ),
    ],
)
def test_soft_targets_of_rows(objective, classes, labels):
    batch = task_batch(**labels)
    models = task_models(lambda encoder: bert_classifier(encoder, classes))
    own, theirs = (numpy(model(batch)["logits"]) for model in models)
    if classes == 1:
        expected = ((own - theirs) ** 2)[:, 0]
    elif classes == 3:
        expected = divergence(own, theirs, 2.0)
    else:
        pairs = (
            np.stack([each, np.zeros_like(each)], -1) for each in (own, theirs)
        )
        expected = divergence(*pairs, 2.0).mean(-1)
    expected = (expected * batch[EXAMPLE_WEIGHTS]).sum() / 4
    recipe = settings(FinetuningRecipe, soft_target_weight=3.0)
    distiller = Distiller(*models, recipe, return_all_layers=False)
    found = mean_losses(distiller, batch, recipe, objective)
    assert found["soft_target_loss"] == pytest.approx(3 * expected, rel=1e-4)
    assert {*found} == {"label_loss", "soft_target_loss"}


def test_soft_targets_of_choices_leave_out_those_that_a_row_lacks():
    batch = {
        name: np.stack([task_batch()[name]] * 3, 1)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    batch["input_ids"] = (batch["input_ids"] + np.arange(3)[:, None]) % 41
    batch |= {
        "label_ids": np.array([0, 1, 1, 0, 0]),
        CHOICE_MASK: np.array([[1, 1, 0], *[[1, 1, 1]] * 4], "float32"),
        EXAMPLE_WEIGHTS: np.ones(5, "float32"),
    }
    models = task_models(bert_multiple_choice)
    own, theirs = (numpy(model(batch)["logits"]) for model in models)
    expected = divergence(own, theirs, 2.0)
    expected[0] = divergence(own[0, :2], theirs[0, :2], 2.0)
    recipe = settings(
        FinetuningRecipe, **{f"{term}_weight": 1.0 for term in TERMS}
    )
    distiller = Distiller(*models, recipe, return_all_layers=True)
    found = mean_losses(distiller, batch, recipe, ChoicesObjective())
    assert found["soft_target_loss"] == pytest.approx(expected.mean(), rel=1e-4)
    assert len(found) == 5


@pytest.mark.parametrize(
    ("make", "unpadded"),
    [
        (lambda each, _: bert_classifier(each, 2, unpadded=True), True),
        (lambda each, _: bert_token_classifier(each, 3, unpadded=True), True),
        (bert_span_labeler, False),
    ],
)
def test_layers_beside_the_outputs_of_a_task(make, unpadded):
    """They are the encoder's, and the outputs are the same."""
    batch = task_batch()
    (model, _) = task_models(lambda encoder: make(encoder, unpadded))
    plain = model(batch)
    found = model(batch, return_all_layers=True)
    layers = model.encoder(
        {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")},
        return_all_layers=True,
    )
    real = batch["input_mask"] == 1
    for name, value in plain.items():
        np.testing.assert_allclose(
            numpy(found[name])[real] if value.ndim > 2 else found[name],
            numpy(value)[real] if value.ndim > 2 else value,
            atol=1e-5,
        )
    for name in ("embedding_output", "all_encoder_layers"):
        pairs = zip(
            keras.tree.flatten(found[name]),
            keras.tree.flatten(layers[name]),
            strict=True,
        )
        for one, other in pairs:
            np.testing.assert_allclose(
                numpy(one)[real], numpy(other)[real], atol=1e-5
            )


def test_layers_are_spread_evenly():
    spread = settings().compared_layers
    assert spread(4, 12) == [2, 5, 8, 11]
    assert spread(6, 12) == [1, 3, 5, 7, 9, 11]
    assert spread(3, 4) == [0, 1, 3]
    assert spread(2, 2) == [0, 1]
    assert spread(4, 2) == [0, 0, 0, 1]


def test_layers_that_are_not_there():
    models = pretrainers()
    for layers, line in (
        ("0,4", "'4' is no layer of the teacher"),
        ("0,-1", "'-1' is no layer of the teacher"),
        ("0", "names 1 layers, and the student has 2"),
        ("0,1,2", "names 3 layers, and the student"),
    ):
        recipe = settings(teacher_layers=layers)
        assert line in error_of(Distiller, *models, recipe, True)


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ({"hidden_size": 12}, "hidden_size is 24 and the student's 12"),
        ({"num_attention_heads": 4}, "heads is 3 and the student's 4"),
    ],
)
def test_sizes_that_cannot_be_compared(sizes, line):
    models = pretrainers(student=small_config(**sizes))
    recipe = settings(attention_score_weight=1.0)
    assert line in error_of(lambda: Distiller(*models, recipe, True))


def test_a_narrow_student_learns_hidden_states():
    models = pretrainers(small_config(hidden_size=12))
    recipe = settings(cosine_weight=0.0, hidden_state_weight=1.0)
    distiller = Distiller(*models, recipe, return_all_layers=True)
    losses = mean_losses(distiller, pretraining_batch(STUDENT), recipe)
    assert losses["hidden_state_loss"] > 0


def test_an_objective_without_soft_targets():
    class Own:
        pass

    line = error_of(lambda: DistillationObjective(Own(), settings()))
    assert "has no soft_target_loss" in line
    DistillationObjective(Own(), settings(soft_target_weight=0.0))


def test_parts_add_up_to_the_batch(of_all):
    """Sums and weights of slices or replicas make the mean of all rows."""
    batch = pretraining_batch(STUDENT, rows=4)
    recipe, distiller = of_all
    objective = DistillationObjective(MaskedLanguageModeling(), recipe)
    sums = {}, {}
    for part in (np.s_[:1], np.s_[1:]):
        rows = {name: value[part] for name, value in batch.items()}
        losses, _ = objective(distiller(rows), rows)
        for total, more in zip(
            sums, (losses, objective.loss_weights(rows)), strict=True
        ):
            for name, value in more.items():
                total[name] = total.get(name, 0.0) + float(value)
    assert objective.normalise(*sums) == pytest.approx(
        mean_losses(distiller, batch, recipe), rel=1e-5
    )
