"""Trainings of sentence embeddings, on every form of rows."""

import csv
import dataclasses
import json
import pathlib

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import load_checkpoint
from bert_tf.families.data.scores import spearman
from bert_tf.families.data.similarity import normalized
from bert_tf.families.model_folder import build_model
from bert_tf.families.sentence_embedding.rows import encode_texts, vectors_of
from bert_tf.families.sentence_embedding.task import ranks_of_positives
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import open_initial, prepare_training
from tests.contracts.task_cases import model_folder, write_similar
from tests.families.pretrained.sentence_folders import (
    TEXTS,
    write_folder,
)
from tests.families.pretrained.sentence_folders import (
    vectors_of as recorded_vectors,
)
from tests.families.sentence_embedding.small_tasks import embedding_task
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import BAD, FILLER, GOOD
from tests.run_folders import assert_same_run, history, stop_at
from tests.user_errors import error_of
from tools.shared_flags import load_task, recipe_of

TASK = load_task("embedding")
WORDS = [*FILLER, *GOOD, *BAD][:12]
PAIRS = [
    {
        "anchor": f"{word} {GOOD[n % len(GOOD)]}",
        "positive": f"{BAD[n % len(BAD)]} {word}",
    }
    for n, word in enumerate(WORDS)
]


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> pathlib.Path:
    return model_folder(tmp_path_factory.mktemp("start") / "model")


def write_rows(path: pathlib.Path, rows: list[dict]) -> str:
    """Writes rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def recipe_for(start: object, **settings: object):
    """A recipe of small batches."""
    values = {
        "init_from": start,
        "train_batch_size": 4,
        "max_seq_length": 16,
        "num_train_epochs": 1.0,
        "learning_rate": 1e-2,
        **settings,
    }
    pairs = [f"{name}={value}" for name, value in values.items()]
    return recipe_of(TASK, "embedding", ["task=embedding", *pairs])


def prepared(recipe, folder: pathlib.Path):
    """The data of a training."""
    return prepare_training(
        TASK.resolve(recipe), recipe, *open_initial(recipe), folder
    )


def with_all(rows: list[dict], **others: list) -> list[dict]:
    """Rows with further columns."""
    return [
        {**row, **{name: values[n] for name, values in others.items()}}
        for n, row in enumerate(rows)
    ]


SCORED = with_all(PAIRS, score=[n / 12 for n in range(12)])
ALONE = [{"anchor": row["anchor"]} for row in PAIRS]
FORMS = {
    "pairs": (PAIRS, None, "multiple_negatives", "mrr@10", 2, None),
    "triplets": (
        with_all(PAIRS, negative=[r["positive"] for r in PAIRS[::-1]]),
        *(None, "multiple_negatives", "mrr@10", 3, None),
    ),
    "several_negatives": (
        with_all(
            PAIRS,
            negative_1=[r["positive"] for r in PAIRS[::-1]],
            negative_2=[r["anchor"] for r in PAIRS[::-1]],
        ),
        *(SCORED, "multiple_negatives", "spearman", 4, None),
    ),
    "lists_of_negatives": (
        with_all(PAIRS, negative=[[f"{a} film", a] for a in WORDS]),
        *(None, "multiple_negatives", "mrr@10", 4, None),
    ),
    "scores": (SCORED, None, "cosent", "spearman", 2, ()),
    "labels": (
        with_all(PAIRS, label=[n % 2 for n in range(12)]),
        *(None, "contrastive", "average_precision", 2, ()),
    ),
    "texts_alone": (ALONE, SCORED, "simcse", "spearman", 2, None),
    "vectors": (
        with_all(ALONE, teacher=[[n / 9] * 16 for n in range(12)]),
        *(None, "teacher_cosine", "teacher_similarity", 1, (16,)),
    ),
    "teacher_scores": (
        with_all(
            PAIRS,
            negative=[r["positive"] for r in PAIRS[::-1]],
            teacher=[[2.0, n / 9] for n in range(12)],
        ),
        *(PAIRS, "margin_mse", "mrr@10", 3, (2,)),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_columns_decide_loss_and_scores(form, start, tmp_path, eagerly):
    rows, dev, loss, metric, count, target = FORMS[form]
    files = {"train_file": write_rows(tmp_path / "train.jsonl", rows)}
    if dev:
        files["dev_file"] = write_rows(tmp_path / "dev.jsonl", dev)
    data = prepared(recipe_for(start, dev_share=0.4, **files), tmp_path)
    assert data.recipe.loss == data.config.loss == loss
    assert data.task.main_metric == metric
    batch = data.train.rows.batch(np.arange(4))
    assert batch["input_ids"].shape[:2] == (4, count)
    assert ("targets" in batch) == (target is not None)
    if target is not None:
        assert batch["targets"].shape[1:] == target
    if form == "texts_alone":
        ids = batch["input_ids"].numpy()
        np.testing.assert_array_equal(ids[:, 0], ids[:, 1])


@pytest.mark.parametrize(
    ("settings", "rows", "line"),
    [
        ({}, [{"anchor": "a", "score": 1}], "a score is of two texts"),
        ({}, with_all(PAIRS, teacher=[[1.0]] * 12), "fit no loss"),
        ({"loss": "triplet"}, PAIRS, "`loss`=triplet: does not fit"),
        ({}, ALONE, "alone have no similarity to score"),
        ({"train_batch_size": 1}, PAIRS, "`train_batch_size`=1: "),
        ({"train_batch_size": 1}, SCORED, "`train_batch_size`=1: "),
        ({}, with_all(PAIRS, score=[0.5, 4.2] * 6), "a number from 0 to 1"),
        ({}, with_all(PAIRS, score=["much"] * 12), "is 'much'"),
        ({}, with_all(PAIRS, label=[0, 2] * 6), "it takes 0 or 1"),
        ({}, with_all(SCORED, label=[0, 1] * 6), "one of them is learned"),
        (
            {},
            with_all(PAIRS, negative=[["a"], ["a", "b"]] * 6),
            "has 4 texts, and the rows before it 3",
        ),
        ({}, with_all(PAIRS, negative=[[]] * 12), "one text or more"),
        (
            {"loss": "teacher_mse"},
            with_all(ALONE, teacher=[[1.0], ["x"]] * 6),
            "a list of finite numbers",
        ),
        ({"anchor_column": "query"}, PAIRS, "has no column 'query'"),
        ({"matryoshka_dims": "32,8"}, PAIRS, "vectors have 16 numbers"),
        ({"pooling": "average"}, PAIRS, "`pooling`='average'"),
        (
            {"num_hard_negatives": 3, "loss": "cosent"},
            SCORED,
            "`num_hard_negatives`=3: is for rows of an anchor and a positive",
        ),
        ({"num_hard_negatives": 20}, PAIRS, "no row has as many"),
    ],
)
def test_bad_input_gets_one_line(
    settings, rows, line, start, tmp_path, eagerly
):
    path = write_rows(tmp_path / "train.jsonl", rows)
    recipe = recipe_for(start, train_file=path, **settings)
    assert line in error_of(prepared, recipe, tmp_path)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("matryoshka_dims=8,x", "takes different numbers above 0"),
        ("matryoshka_dims=8,8", "takes different numbers above 0"),
        ("score_range=5", "the smallest and the largest score"),
        ("score_range=5,1", "the smallest and the largest score"),
        ("mini_batch_size=3", "does not divide `train_batch_size`=64"),
    ],
)
def test_settings_that_do_not_fit(setting, line):
    assert line in error_of(recipe_of, TASK, "embedding", [setting])


@pytest.mark.witness("a contrastive training that was killed")
def test_killed_it_is_resumed(start, tmp_path, monkeypatch):
    """With hard negatives, which are mined once, cached gradients, dropout."""
    write_similar(tmp_path / "train.jsonl", 20, 1, False)
    write_similar(tmp_path / "dev.jsonl", 6, 2, False)
    recipe = recipe_for(
        start,
        train_file=tmp_path / "train.jsonl",
        dev_file=tmp_path / "dev.jsonl",
        num_hard_negatives=1,
        mini_batch_size=2,
        dense_size=8,
        save_checkpoints_steps=1,
        log_steps=1,
        num_train_epochs=0.8,
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with quickly():
        run_finetuning(TASK, recipe, whole, ["train"])
        with monkeypatch.context() as patch:
            stop_at(patch, 2)
            with pytest.raises(KeyboardInterrupt):
                run_finetuning(TASK, recipe, killed, ["train"])
        (mined,) = killed.glob("hard_negatives-*.npy")
        before = mined.stat().st_mtime_ns
        run_finetuning(TASK, recipe, killed, ["train"])
        assert mined.stat().st_mtime_ns == before
    assert_same_run(killed, whole)
    assert len(history(whole)) >= 4


def test_two_replicas_train_as_one(start, tmp_path):
    plain = model_folder(
        tmp_path / "start",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    write_similar(tmp_path / "train.jsonl", 16, 1, False)
    found = []
    for strategy in ("one_device", "mirrored"):
        recipe = recipe_for(
            plain,
            train_file=tmp_path / "train.jsonl",
            strategy=strategy,
            num_train_epochs=0.7,
            dev_share=0.4,
        )
        with quickly():
            run_finetuning(TASK, recipe, tmp_path / strategy, ["train"])
        vectors = bert_tf.load(tmp_path / strategy).encode([*GOOD, *FILLER])
        found.append(vectors)
    assert np.abs(found[0]).max() > 0.1
    np.testing.assert_allclose(*found, atol=1e-5)
    before = bert_tf.load(plain).encode([*GOOD, *FILLER])
    assert np.abs(before - found[0]).max() > 1e-3


def test_a_table_in_memory(start, tmp_path):
    """Scores of pairs, whose similarities are those of the loaded model."""
    columns = {name: [row[name] for row in SCORED] for name in SCORED[0]}
    columns = {"sentence1": columns["anchor"], **columns}
    del columns["anchor"]
    with quickly():
        run = bert_tf.finetune(
            start,
            columns,
            columns,
            task="embedding",
            output_dir=tmp_path / "run",
            anchor_column="sentence1",
            train_batch_size=6,
            max_seq_length=16,
            matryoshka_dims="16,8",
            normalize=True,
        )
    model = run.model
    vectors = [
        model.encode(columns[name]) for name in ("sentence1", "positive")
    ]
    for each in vectors:
        np.testing.assert_allclose(np.linalg.norm(each, axis=1), 1, rtol=1e-5)
    similar = (vectors[0] * vectors[1]).sum(1)
    scores = run.scores["dev"]
    assert scores["spearman"] == pytest.approx(
        spearman(np.array(columns["score"]), similar), abs=1e-6
    )
    assert run.evaluate(columns) == pytest.approx(scores, abs=1e-6)
    facts = json.loads((tmp_path / "run/task.json").read_text())
    assert facts["loss"] == run.results["loss"] == "cosent"


def test_any_model_is_scored(start, tmp_path):
    """Without training."""
    path = write_rows(tmp_path / "dev.jsonl", SCORED)
    gold = np.array([row["score"] for row in SCORED])
    for folder in (start, write_folder("prompt_left_out", tmp_path / "st")):
        recipe = recipe_for(folder, dev_file=path)
        with quickly():
            done = run_finetuning(TASK, recipe, tmp_path / "out", ["eval"])
        model = bert_tf.load(folder)
        queries = model.encode_query([row["anchor"] for row in SCORED])
        texts = model.encode_document([row["positive"] for row in SCORED])
        similar = (normalized(queries) * normalized(texts)).sum(1)
        expected = spearman(gold, similar)
        assert done["eval"]["dev"]["spearman"] == pytest.approx(expected)


def test_an_own_csv_of_labels(start, tmp_path):
    """Best accuracy and F1, and predictions of pairs without labels."""
    rows = with_all(PAIRS, duplicate=[n % 2 for n in range(12)])
    for name, count in (("train", 3), ("test", 2)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, [*rows[0]][:count])
            table.writeheader()
            keep = [*rows[0]][:count]
            table.writerows({key: row[key] for key in keep} for row in rows)
    recipe = recipe_for(
        start,
        train_file=tmp_path / "train.csv",
        dev_file=tmp_path / "train.csv",
        test_file=tmp_path / "test.csv",
        label_column="duplicate",
        loss="online_contrastive",
    )
    with quickly():
        modes = ["train", "predict"]
        done = run_finetuning(TASK, recipe, tmp_path / "run", modes)
    scores = done["train"]["dev"]["dev"]
    assert {*scores} == {"average_precision", "accuracy", "f1"}
    assert scores["accuracy"] >= 0.5
    lines = done["predict"]["test"].read_text().splitlines()
    assert len(lines) == 13
    model = bert_tf.load(tmp_path / "run")
    columns = [[row[name] for row in rows] for name in ("anchor", "positive")]
    one, other = (normalized(model.encode(column)) for column in columns)
    found = [float(line.split("\t")[1]) for line in lines[1:]]
    np.testing.assert_allclose(found, (one * other).sum(1), atol=1e-5)


@pytest.mark.parametrize(
    "name", ["joined", "dense_residual", "truncated", "prompt_left_out"]
)
def test_a_folder_is_trained_as_it_is_used(name, tmp_path, eagerly):
    """Vectors of training are those that sentence-transformers computes."""
    source = load_checkpoint(write_folder(name, tmp_path / "start"))
    task, recipe = embedding_task(loss="multiple_negatives", max_seq_length=24)
    config = task.configure(recipe, [])
    model = build_model(task, config, source, "float32")
    rows = encode_texts(
        [TEXTS, TEXTS], source.make_tokenizer(False), config.modules(source)
    )
    found = vectors_of(model, rows, 4)
    recorded = recorded_vectors(name)
    query = recorded.get("query", recorded[None])
    np.testing.assert_allclose(found[:, 0], query, atol=1e-5)
    np.testing.assert_allclose(found[:, 1], recorded[None], atol=1e-5)


def test_modules_are_changed_by_settings(tmp_path):
    folder = write_folder("dense_without_bias", tmp_path / "start")
    source = load_checkpoint(folder)
    task, recipe = embedding_task(loss="multiple_negatives")

    def modules(**changes):
        changed = dataclasses.replace(recipe, **changes)
        return task.configure(changed, []).modules(source)

    kept = modules()
    (dense,) = kept.steps
    same = modules(dense_size=dense.kernel.shape[1])
    assert len(same.steps) == 1
    np.testing.assert_array_equal(same.steps[0].kernel, dense.kernel)
    added = modules(dense_size=5, normalize=True, query_prompt="query: ")
    assert str(added) == "Pooling (mean), Dense, Dense, Normalize"
    assert added.steps[1].kernel.shape == (dense.kernel.shape[1], 5)
    assert added.prompts["query"] == "query: "
    other = modules(pooling="cls,max", dense_size=5)
    assert other.pooling == ("cls", "max")
    assert [step.kernel.shape for step in other.steps] == [(32, 5)]
    other_seed = modules(dense_size=5, seed=7).steps[1].kernel
    assert not np.array_equal(other_seed, added.steps[1].kernel)


def test_ranks_of_positives():
    random = np.random.default_rng(4)
    vectors = random.normal(size=(9, 2, 5)).astype(np.float32)
    numbers = np.arange(18).reshape(9, 2)
    # Rows 0 and 1 have one anchor, rows 2 and 3 one positive.
    vectors[1, 0], numbers[1, 0] = vectors[0, 0], numbers[0, 0]
    vectors[3, 1], numbers[3, 1] = vectors[2, 1], numbers[2, 1]
    found = ranks_of_positives(vectors, numbers)
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    for row in range(9):
        others = {}
        for other in range(9):
            if numbers[other, 0] != numbers[row, 0]:
                similar = float(unit[row, 0] @ unit[other, 1])
                others[numbers[other, 1]] = similar
        others.pop(numbers[row, 1], None)
        own = float(unit[row, 0] @ unit[row, 1])
        assert found[row] == 1 + sum(s >= own for s in others.values())
    # Equal vectors are no answer.
    assert ranks_of_positives(np.ones((9, 2, 5)), numbers).min() >= 7
