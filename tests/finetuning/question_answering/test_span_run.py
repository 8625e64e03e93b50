"""Whole trainings on questions: files, resume, threshold, ensembles."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.model_folder import load_model, read_config
from bert_tf.finetuning.question_answering.squad_files import (
    read_null_odds,
    read_predictions,
    read_questions,
)
from bert_tf.finetuning.question_answering.task import QuestionAnsweringTask
from bert_tf.finetuning.question_answering.windows import (
    SpanObjective,
    answer_positions,
)
from bert_tf.finetuning.recipe import SpanRecipe
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.task import Split
from tests.finetuning.sentence_runs import (
    BAD,
    FILLER,
    GOOD,
    model_folder,
    tokenizer,
)

V1 = QuestionAnsweringTask(
    name="squad_v1",
    train_name="train-v1.1.json",
    dev_name="dev-v1.1.json",
    with_null=False,
    main_metric="f1",
)
V2 = QuestionAnsweringTask(
    name="squad_v2",
    train_name="train-v2.0.json",
    dev_name="dev-v2.0.json",
    with_null=True,
    main_metric="best_f1",
)


def questions(count: int, seed: int, with_null: bool) -> list[dict]:
    """Contexts with one good word, which every question asks for."""
    random = np.random.default_rng(seed)
    entries = []
    for number in range(count):
        words = list(random.choice(FILLER + BAD, random.integers(4, 18)))
        impossible = with_null and random.random() < 0.4
        place = int(random.integers(len(words)))
        answers = []
        if not impossible:
            words[place] = str(random.choice(GOOD))
            start = len(" ".join(words[:place])) + (place > 0)
            answers = [{"text": words[place], "answer_start": start}]
        asked = {"id": f"{seed}-{number}", "question": "the good"}
        asked |= {"answers": answers, "is_impossible": impossible}
        entries.append({"context": " ".join(words), "qas": [asked]})
    return entries


def write(path: pathlib.Path, count: int, seed: int, with_null: bool) -> None:
    paragraphs = questions(count, seed, with_null)
    data = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("squad")
    for version, with_null in (("v1.1", False), ("v2.0", True)):
        write(folder / f"train-{version}.json", 90, 1, with_null)
        write(folder / f"dev-{version}.json", 21, 2, with_null)
    return folder


@pytest.fixture(scope="module")
def recipe(data_dir, tmp_path_factory) -> SpanRecipe:
    start = model_folder(tmp_path_factory.mktemp("start") / "model")
    return SpanRecipe(
        task="squad_v1",
        data_dir=str(data_dir),
        init_from=str(start),
        # Some contexts take two windows.
        max_seq_length=16,
        max_query_length=3,
        doc_stride=5,
        train_batch_size=8,
        eval_batch_size=4,
        learning_rate=1e-2,
        num_train_epochs=6.0,
        save_checkpoints_steps=30,
    )


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "v1"
    modes = ["train", "eval", "predict"]
    return folder, run_finetuning(V1, recipe, folder, modes)


def test_it_learns_and_writes_the_official_files(finished, data_dir):
    folder, done = finished
    scores = done["train"]["dev"]["dev"]
    assert scores["f1"] > 0.8
    assert done["eval"]["dev"] == pytest.approx(scores)
    assert list(scores) == ["f1", "exact_match"]
    found = read_predictions(str(folder / "predictions.json"))
    assert found == read_predictions(str(folder / "dev_predictions.json"))
    assert len(found) == 21
    best = json.loads((folder / "nbest_predictions.json").read_text())
    assert all(len(entries) >= 1 for entries in best.values())
    assert not (folder / "null_odds.json").exists()
    assert done["predict"]["test"] == folder / "predictions.json"


def test_scores_of_the_files_are_those_of_the_run(finished, data_dir, recipe):
    folder, done = finished
    scores = V1.score_file(
        recipe,
        str(data_dir / "dev-v1.1.json"),
        str(folder / "predictions.json"),
    )
    assert scores["f1"] == pytest.approx(100 * done["eval"]["dev"]["f1"])
    with pytest.raises(UserError, match="`null_odds`=x: is of use for quest"):
        V1.score_file(
            recipe,
            str(data_dir / "dev-v1.1.json"),
            str(folder / "predictions.json"),
            "x",
        )


def test_the_lines_for_the_report(finished):
    folder, done = finished
    lines = (folder / "dev_predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        shown = row["context"][row["start"] : row["end"]]
        assert shown == row["prediction"] == row["n_best"][0][0]
        assert row["exact"] == (shown == row["answers"][0]["text"])
        assert row["null_odds"] is None
    exact = done["eval"]["dev"]["exact_match"]
    assert np.mean([row["exact"] for row in rows]) == pytest.approx(exact)


@pytest.mark.slow
def test_no_answer_and_its_threshold(recipe, data_dir, tmp_path):
    given = [f"init_from={recipe.init_from}", "num_train_epochs=6"]
    recipe = SpanRecipe.from_dict(recipe.to_dict(), "x").override(given)
    modes = ["train", "eval", "predict"]
    done = run_finetuning(V2, recipe, tmp_path, modes)
    scores = done["train"]["dev"]["dev"]
    facts = read_config(tmp_path, V2)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["threshold"] == facts.null_threshold != 0.0
    # At the tuned threshold the scores are the best there are.
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert scores["f1"] > results["majority"]["dev"]["f1"]
    assert {"HasAns_f1", "NoAns_exact"} <= set(scores)
    assert done["eval"]["dev"] == pytest.approx(scores)
    odds = read_null_odds(str(tmp_path / "null_odds.json"))
    found = read_predictions(str(tmp_path / "predictions.json"))
    assert {k for k, text in found.items() if not text} >= {
        k for k, value in odds.items() if value > facts.null_threshold
    }
    official = V2.score_file(
        recipe,
        str(data_dir / "dev-v2.0.json"),
        str(tmp_path / "predictions.json"),
        str(tmp_path / "null_odds.json"),
    )
    assert official["NoAns_f1"] == pytest.approx(100 * scores["NoAns_f1"])
    assert official["best_f1"] >= official["f1"]


@pytest.mark.slow
def test_one_question_set_after_another(finished, recipe, tmp_path, capfd):
    """A model of SQuAD 1.1 is where SQuAD 2.0 starts from, head and all."""
    given = [f"init_from={finished[0]}", "learning_rate=1e-9"]
    recipe = recipe.override([*given, "num_train_epochs=0.2"])
    done = run_finetuning(V2, recipe, tmp_path, ["train"])
    assert "starts fresh" not in capfd.readouterr().err
    assert done["train"]["dev"]["dev"]["HasAns_f1"] > 0.5


@pytest.mark.slow
def test_ensembles_average_logits(finished, recipe, data_dir, tmp_path):
    other = tmp_path / "other"
    run_finetuning(V1, recipe.override(["seed=7"]), other, ["train"])
    read = read_questions(str(data_dir / "dev-v1.1.json"))
    models = [load_model(f, V1)[0] for f in (finished[0], other)]
    facts = read_config(other, V1)
    split = Split(read, V1.encode(read, tokenizer(), facts))
    strategy = tf.distribute.get_strategy()
    alone = [Predictor([m], strategy, 4).outputs(split.rows) for m in models]
    both = Predictor(models, strategy, 8).outputs(split.rows)
    for name, logits in both.items():
        mean = (alone[0][name] + alone[1][name]) / 2
        np.testing.assert_allclose(logits, mean, atol=1e-5)
        assert np.abs(alone[0][name] - alone[1][name]).max() > 0.1
    together = recipe.override(
        [f"init_from={finished[0]}", f"ensemble={other}"]
    )
    folder = tmp_path / "together"
    run_finetuning(V1, together, folder, ["predict"])
    found = read_predictions(str(folder / "predictions.json"))
    expected = V1.decode(both, split, tokenizer(), facts)
    assert list(found.values()) == list(expected.texts())
    wrong = together.override([f"ensemble={recipe.init_from}"])
    with pytest.raises(UserError, match="has no task.json"):
        run_finetuning(V1, wrong, folder, ["predict"])


def test_logits_are_those_of_each_window_alone(finished, data_dir):
    model, tokens, facts = load_model(finished[0], V1)
    read = read_questions(str(data_dir / "dev-v1.1.json"))
    rows = V1.encode(read, tokens, facts)
    assert len(rows) > len(read)
    predictor = Predictor([model], tf.distribute.get_strategy(), 8)
    found = predictor.outputs(rows)
    for number in range(len(rows)):
        alone = model(rows.batch(np.array([number])))
        begin, end = rows.rows.starts[number : number + 2]
        for name, logits in found.items():
            np.testing.assert_allclose(
                logits[begin:end], alone[name][0], atol=1e-5
            )


def test_the_loss_by_hand_and_without_padding():
    random = np.random.default_rng(0)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    starts, ends = random.normal(size=(2, 2, 4)).astype("float32")
    positions = np.array([[0, 2], [3, 1]], np.int32)
    weights = np.array([1.0, 1.0], np.float32)
    batch = {
        "input_mask": mask,
        "start_positions": positions[0],
        "end_positions": positions[1],
        "example_weights": weights,
    }
    positions[1] = [2, 3]
    objective = SpanObjective()
    outputs = {"start_logits": starts, "end_logits": ends}
    losses, metrics = objective(outputs, batch)
    wanted = 0.0
    for logits, places in ((starts, positions[0]), (ends, positions[1])):
        for row in range(2):
            real = logits[row][mask[row] == 1]
            shares = np.exp(real) / np.exp(real).sum()
            wanted -= 0.5 * np.log(shares[places[row]])
    assert float(losses["loss"]) == pytest.approx(wanted, rel=1e-5)
    means = objective.normalise(losses, objective.loss_weights(batch))
    assert float(means["loss"]) == pytest.approx(wanted / 2, rel=1e-5)
    starts[0, 3] = 50
    again, _ = objective(outputs, batch)
    assert float(again["loss"]) == pytest.approx(wanted, rel=1e-5)
    total, weight = metrics["exact_span"]
    assert float(weight) == 2
    right = [
        np.argmax(np.where(mask[row] == 1, starts[row], -99))
        == positions[0][row]
        and np.argmax(np.where(mask[row] == 1, ends[row], -99))
        == positions[1][row]
        for row in range(2)
    ]
    assert float(total) == sum(right)


def test_what_is_learned_lies_in_the_window(data_dir):
    read = read_questions(str(data_dir / "train-v1.1.json"))
    settings = {"max_seq_length": 16, "doc_stride": 5, "max_query_length": 3}
    config = V1.configure(SpanRecipe(**settings), read)
    rows = V1.encode(read, tokenizer(), config, labelled=True)
    found = answer_positions(rows, read, tokenizer())
    assert (found[:, 0] > 0).any()
    batch = rows.batch(np.arange(len(rows)))
    np.testing.assert_array_equal(batch["start_positions"], found[:, 0])
    np.testing.assert_array_equal(batch["end_positions"], found[:, 1])
    assert (batch["example_weights"] == 1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data_dir=nowhere"], "no such file nowhere/dev-v1.1.json; give"),
        (["dev_file=other.json"], "other.json; give the folder of"),
        (["train_file=train-v2.0.json"], "has no answer; train on such"),
        (["dev_file=dev-v2.0.json"], "has no right answer; such questions"),
    ],
)
def test_files_that_do_not_fit(settings, message, recipe, tmp_path):
    with pytest.raises(UserError, match=message) as caught:
        run_finetuning(
            V1, recipe.override(settings), tmp_path / "new", ["train"]
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_lengths_that_leave_no_room(recipe):
    with pytest.raises(UserError, match="max_seq_length.* 7 or more, so that"):
        recipe.override(["max_seq_length=6"])
