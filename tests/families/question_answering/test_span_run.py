"""What trainings on questions promise beside the contract of all tasks."""

import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint
from bert_tf.errors import UserError
from bert_tf.families.model_folder import load_model, save_model
from bert_tf.families.question_answering.prediction_files import (
    read_null_odds,
    read_predictions,
)
from bert_tf.families.question_answering.squad_files import (
    read_questions,
)
from bert_tf.families.question_answering.windows import (
    answer_positions,
    make_windows,
)
from bert_tf.families.task import Split
from bert_tf.families.task_model import SpanObjective
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import prepare_training
from tests.as_numpy import as_numpy
from tests.contracts.task_cases import CASES, NUM_DEV
from tests.finetuning.sentence_runs import tokenizer
from tests.run_folders import answer_lines

NULL = CASES["questions_without_answer"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """The files of both versions."""
    folder = tmp_path_factory.mktemp("squad")
    for case in (CASES["questions"], NULL):
        case.make(folder, "")
    return folder


@pytest.fixture(scope="module")
def trained(finish_case) -> types.SimpleNamespace:
    """A run on questions that may have no answer."""
    run = finish_case("questions_without_answer")
    dev = read_questions(str(run.files / NULL.files[1]))
    return types.SimpleNamespace(**vars(run), dev=dev)


def test_the_threshold_is_tuned_and_used(trained, files):
    task, folder, done = trained.task, trained.folder, trained.done
    config = load_model(folder, task)[2]
    assert done["train"]["threshold"] == config.null_threshold != 0.0
    scores = done["eval"]["dev"]
    # At the tuned threshold the scores are the best there are.
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert scores["f1"] > done["train"]["majority"]["dev"]["f1"]
    assert {"HasAns_f1", "NoAns_exact"} <= set(scores)
    # What is predicted where no test file is named is the dev file.
    found = read_predictions(str(folder / "predictions.json"))
    assert found == read_predictions(str(folder / "dev_predictions.json"))
    assert done["predict"]["test"] == folder / "predictions.json"
    odds = read_null_odds(str(folder / "null_odds.json"))
    assert len(found) == len(odds) == NUM_DEV
    assert {k for k, text in found.items() if not text} >= {
        k for k, value in odds.items() if value > config.null_threshold
    }
    best = json.loads((folder / "nbest_predictions.json").read_text())
    assert all(best.values())
    gold, answers = files / NULL.files[1], folder / "predictions.json"
    null_odds = str(folder / "null_odds.json")
    official = task.score_file(
        trained.recipe, str(gold), str(answers), null_odds
    )
    assert official["NoAns_f1"] == pytest.approx(100 * scores["NoAns_f1"])
    assert official["best_f1"] >= official["f1"]


def test_the_lines_for_the_report(trained):
    rows = answer_lines(trained.folder)
    for row in rows:
        shown = row["context"][max(row["start"], 0) : max(row["end"], 0)]
        assert shown == row["prediction"]
        assert shown in [text for text, _ in row["n_best"]] or not shown
        gold = [answer["text"] for answer in row["answers"]] or [""]
        assert row["exact"] == (shown == gold[0])
    assert {bool(row["prediction"]) for row in rows} == {True, False}
    exact = trained.done["eval"]["dev"]["exact"]
    assert np.mean([row["exact"] for row in rows]) == pytest.approx(exact)


def test_a_head_serves_other_questions(trained, files, tmp_path):
    """SQuAD 2.0's model is where SQuAD 1.1 starts from, head and all."""
    task, recipe = CASES["questions"].make(files, trained.folder)
    initial = load_checkpoint(trained.folder)
    found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
    assert found.fresh == ()


@pytest.mark.slow
def test_ensembles_average_logits(trained, tmp_path):
    task, recipe = trained.task, trained.recipe
    models = [load_model(trained.folder, task)[0] for _ in range(2)]
    _, tokens, config = load_model(trained.folder, task)
    models[1].set_weights([0.7 * w for w in models[1].get_weights()])
    save_model(tmp_path / "other", models[1], tokens, config)
    split = Split(trained.dev, task.encode(trained.dev, tokens, config))
    strategy = tf.distribute.get_strategy()
    every = np.arange(len(split.rows))
    alone = []
    for model in models:
        outputs = model(split.rows.batch(every))
        outputs = {name: np.array(v) for name, v in outputs.items()}
        alone.append(split.rows.gather([(every, outputs)]))
    both = Predictor(models, strategy, 8).outputs(split.rows)
    for name, logits in both.items():
        mean = (alone[0][name] + alone[1][name]) / 2
        np.testing.assert_allclose(logits, mean, atol=1e-5)
        assert np.abs(alone[0][name] - alone[1][name]).max() > 0.1
    together = recipe.override(
        [f"init_from={trained.folder}", f"ensemble={tmp_path / 'other'}"]
    )
    run_finetuning(task, together, tmp_path / "both", ["predict"])
    found = read_predictions(str(tmp_path / "both" / "predictions.json"))
    expected = task.decode(both, split, tokens, config)
    assert [*found.values()] == [*expected.texts(config.null_threshold)]
    wrong = together.override([f"ensemble={recipe.init_from}"])
    with pytest.raises(UserError, match="has no task.json"):
        run_finetuning(task, wrong, tmp_path / "both", ["predict"])


def test_logits_are_those_of_each_window_alone(trained):
    model, tokens, config = load_model(trained.folder, trained.task)
    rows = trained.task.encode(trained.dev, tokens, config)
    assert len(rows) > len(trained.dev)
    predictor = Predictor([model], tf.distribute.get_strategy(), 8)
    found = predictor.outputs(rows)
    for number in range(0, len(rows), 4):
        alone = model(rows.batch([number]))
        begin, end = rows.rows.arrays[1][number : number + 2]
        for name, logits in found.items():
            np.testing.assert_allclose(
                logits[begin:end], alone[name][0], atol=1e-5
            )


def test_the_loss_by_hand_and_without_padding():
    random = np.random.default_rng(0)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    starts, ends = random.normal(size=(2, 2, 4)).astype("float32")
    positions = np.array([[0, 2], [2, 3]], np.int32)
    batch = {
        "input_mask": mask,
        "start_positions": positions[0],
        "end_positions": positions[1],
        "example_weights": np.ones(2, np.float32),
    }
    objective = SpanObjective()
    outputs = {"start_logits": starts, "end_logits": ends}
    losses, metrics = objective(outputs, batch)
    expected, right = 0.0, np.ones(2, bool)
    for logits, places in ((starts, positions[0]), (ends, positions[1])):
        for row in range(2):
            real = logits[row][mask[row] == 1]
            shares = np.exp(real) / np.exp(real).sum()
            expected -= 0.5 * np.log(shares[places[row]])
            right[row] &= real.argmax() == places[row]
    assert float(losses["loss"]) == pytest.approx(expected, rel=1e-5)
    means = objective.normalise(losses, objective.loss_weights(batch))
    assert float(means["loss"]) == pytest.approx(expected / 2, rel=1e-5)
    total, weight = metrics["exact_span"]
    assert (float(total), float(weight)) == (sum(right), 2)
    starts[0, 3] = 50
    again, _ = objective(outputs, batch)
    assert float(again["loss"]) == pytest.approx(expected, rel=1e-5)


def test_what_is_learned_lies_in_the_window(files):
    task, recipe = CASES["questions"].make(files, "")
    read = task.load("train", recipe)
    config = task.configure(recipe, read)
    rows = task.encode(read, tokenizer(), config, labelled=True)
    windows = make_windows(read, tokenizer(), 16, 5, 3)
    found = answer_positions(windows, read, tokenizer())
    assert (found[:, 0] > 0).any()
    batch = as_numpy(rows.batch(np.arange(len(rows))))
    np.testing.assert_array_equal(batch["start_positions"], found[:, 0])
    np.testing.assert_array_equal(batch["end_positions"], found[:, 1])
    assert (batch["example_weights"] == 1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("data_dir=nowhere", "nowhere/dev-v1.1.json: no such file; name"),
        ("dev_file=other.json", "other.json: no such file; name"),
        ("train_file=train-v2.0.json", "has no answer; train on such"),
        ("dev_file=dev-v2.0.json", "has no right answer; such questions"),
        ("max_seq_length=6", "max_query_length is 3; it takes 1 to 2 .a con"),
        ("doc_stride=0", "doc_stride is 0; it takes 1 or more"),
    ],
)
def test_files_and_lengths_that_do_not_fit(settings, message, trained, files):
    task, recipe = CASES["questions"].make(files, trained.recipe.init_from)
    folder = files / "new"
    with pytest.raises(UserError, match=message) as caught:
        run_finetuning(task, recipe.override([settings]), folder, ["train"])
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def test_null_odds_are_of_questions_without_answer(files):
    task, recipe = CASES["questions"].make(files, "")
    dev, answers = (str(files / f) for f in ("dev-v1.1.json", "answers.json"))
    names = [q.identifier for q in read_questions(dev)]
    pathlib.Path(answers).write_text(json.dumps(dict.fromkeys(names, "x")))
    with pytest.raises(UserError, match="`null_odds`=x: is for questions"):
        task.score_file(recipe, dev, answers, "x")
