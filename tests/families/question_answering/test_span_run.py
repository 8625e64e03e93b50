"""What trainings on questions promise besides the contract of all tasks."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint
from bert_tf.families.model_folder import load_model, save_model
from bert_tf.families.question_answering.prediction_files import (
    read_null_odds,
    read_predictions,
)
from bert_tf.families.question_answering.squad_files import read_questions
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
from tests.user_errors import error_of

# tf.data's functions stay graphs where the rest runs eagerly.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .tf.config")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """The files of both versions of SQuAD."""
    folder = tmp_path_factory.mktemp("squad")
    for name in ("questions", "questions_without_answer"):
        CASES[name].make(folder, "")
    return folder


def test_a_run_with_questions_that_have_no_answer(finish_case):
    """Its threshold, its files and its lines for the report."""
    run = finish_case("questions_without_answer")
    task, folder, done = run.task, run.folder, run.done
    config = load_model(folder, task)[2]
    assert done["train"]["threshold"] == config.null_threshold != 0.0
    scores = done["eval"]["dev"]
    # At the tuned threshold the scores are the best there are.
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert {"HasAns_f1", "NoAns_exact"} <= set(scores)
    # Without a test file, the dev file is predicted.
    found = read_predictions(str(folder / "predictions.json"))
    assert found == read_predictions(str(folder / "dev_predictions.json"))
    odds = read_null_odds(str(folder / "null_odds.json"))
    assert len(found) == len(odds) == NUM_DEV
    assert {k for k, text in found.items() if not text} >= {
        k for k, value in odds.items() if value > config.null_threshold
    }
    best = json.loads((folder / "nbest_predictions.json").read_text())
    assert all(best.values())
    gold = str(run.files / run.case.files[1])
    answers, null_odds = (
        str(folder / name) for name in ("predictions.json", "null_odds.json")
    )
    official = task.score_file(run.recipe, gold, answers, null_odds)
    assert official["NoAns_f1"] == pytest.approx(100 * scores["NoAns_f1"])
    assert official["best_f1"] >= official["f1"]
    rows = answer_lines(folder)
    for row in rows:
        shown = row["context"][max(row["start"], 0) : max(row["end"], 0)]
        assert shown == row["prediction"]
        assert shown in [text for text, _ in row["n_best"]] or not shown
        gold_texts = [answer["text"] for answer in row["answers"]] or [""]
        assert row["exact"] == (shown == gold_texts[0])
    assert {bool(row["prediction"]) for row in rows} == {True, False}
    exact = np.mean([row["exact"] for row in rows])
    assert exact == pytest.approx(scores["exact"])


def test_a_head_and_an_ensemble(finish_case, files, tmp_path):
    """SQuAD 2.0's model starts SQuAD 1.1; ensembles average logits."""
    run = finish_case("questions_without_answer")
    task, recipe = CASES["questions"].make(files, run.folder)
    initial = load_checkpoint(run.folder)
    found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
    assert found.fresh == ()
    task, recipe = run.task, run.recipe
    dev = read_questions(str(run.files / run.case.files[1]))
    first, tokens, config = load_model(run.folder, task)
    second, *_ = load_model(run.folder, task)
    second.set_weights([0.7 * w for w in second.get_weights()])
    save_model(tmp_path / "other", second, tokens, config)
    split = Split(dev, task.encode(dev, tokens, config))
    every = np.arange(len(split.rows))
    alone = []
    for model in (first, second):
        outputs = as_numpy(model(split.rows.batch(every)))
        alone.append(split.rows.gather([(every, outputs)]))
    strategy = tf.distribute.get_strategy()
    both = Predictor([first, second], strategy, 8).outputs(split.rows)
    for name, logits in both.items():
        mean = (alone[0][name] + alone[1][name]) / 2
        np.testing.assert_allclose(logits, mean, atol=1e-5)
        assert np.abs(alone[0][name] - alone[1][name]).max() > 0.1
    together = recipe.override(
        [f"init_from={run.folder}", f"ensemble={tmp_path / 'other'}"]
    )
    run_finetuning(task, together, tmp_path / "both", ["predict"])
    found = read_predictions(str(tmp_path / "both" / "predictions.json"))
    expected = task.decode(both, split, config)
    assert [*found.values()] == [*expected.texts(config.null_threshold)]
    wrong = together.override([f"ensemble={recipe.init_from}"])
    line = error_of(run_finetuning, task, wrong, tmp_path / "both", ["predict"])
    assert "has no task.json" in line


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
    for logits, gold in ((starts, positions[0]), (ends, positions[1])):
        for row in range(2):
            real = logits[row][mask[row] == 1]
            shares = np.exp(real) / np.exp(real).sum()
            expected -= 0.5 * np.log(shares[gold[row]])
            right[row] &= real.argmax() == gold[row]
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
    windows = make_windows(read, tokenizer(), config)
    found = answer_positions(windows, read)
    assert (found[:, 0] > 0).any()
    batch = as_numpy(rows.batch(np.arange(len(rows))))
    np.testing.assert_array_equal(batch["start_positions"], found[:, 0])
    np.testing.assert_array_equal(batch["end_positions"], found[:, 1])
    assert (batch["example_weights"] == 1).all()


def test_files_and_lengths_that_do_not_fit(files):
    task, recipe = CASES["questions"].make(files, "")
    for split, setting, message in (
        ("dev", "data_dir=nowhere", "nowhere/dev-v1.1.json: no such file"),
        ("dev", "dev_file=other.json", "other.json: no such file"),
        ("train", "train_file=train-v2.0.json", "has no answer; train on such"),
        ("dev", "dev_file=dev-v2.0.json", "has no right answer; use"),
    ):
        other = recipe.override([setting])
        assert message in error_of(task.load, split, other)
    for setting, message in (
        ("max_seq_length=6", "max_query_length is 3; it takes 1 to 2"),
        ("doc_stride=0", "doc_stride is 0; it takes 1 or more"),
    ):
        assert message in error_of(recipe.override, [setting])
    dev, answers = (str(files / f) for f in ("dev-v1.1.json", "answers.json"))
    names = [q.identifier for q in read_questions(dev)]
    pathlib.Path(answers).write_text(json.dumps(dict.fromkeys(names, "x")))
    line = error_of(task.score_file, recipe, dev, answers, "x")
    assert line.startswith("`null_odds`=x: is for questions")
