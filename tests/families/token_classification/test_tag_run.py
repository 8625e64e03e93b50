"""What trainings of taggers promise beside the contract of all tasks."""

import dataclasses
import json
import types

import numpy as np
import pytest

from bert_tf.checkpoints import TOKEN_CLASSIFIER, load_checkpoint
from bert_tf.errors import UserError
from bert_tf.families.recipe import TagRecipe, UserTagRecipe
from bert_tf.families.token_classification.conll_files import read_conll
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import prepare_training
from tests.contracts.task_cases import (
    BAD,
    CASES,
    FILLER,
    GOOD,
    NUM_DEV,
    NUM_TEST,
    NUM_TRAIN,
    model_folder,
    write_tags,
)
from tests.finetuning.sentence_runs import tokenizer
from tests.run_folders import answer_lines, weights
from tools.task_files import load_task

CONLL = dataclasses.replace(
    CASES["features"],
    task="conll2003",
    settings={
        "learning_rate": 2e-2,
        "num_train_epochs": 4.0,
        "save_checkpoints_steps": 1000,
    },
)
LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> types.SimpleNamespace:
    """A run on files of CoNLL-2003's names, whose test file has tags."""
    place = tmp_path_factory.mktemp("tags")
    start = model_folder(place / "model")
    task, recipe = CONLL.make(place / "files", start)
    folder = place / "run"
    done = run_finetuning(task, recipe, folder, ["train", "eval", "predict"])
    return types.SimpleNamespace(
        task=task,
        recipe=recipe,
        files=place / "files",
        start=start,
        folder=folder,
        done=done,
    )


def error_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_folder_of_a_finished_run(trained):
    assert load_checkpoint(trained.folder).labels == LABELS
    assert json.loads((trained.folder / "task.json").read_text()) == {
        "task": "conll2003",
        "labels": list(LABELS),
        "max_seq_length": 32,
        "context": "document",
        "doc_stride": 0,
    }
    results = trained.done["train"]
    counts = {"train": NUM_TRAIN, "dev": NUM_DEV, "test": NUM_TEST}
    assert results["examples"] == counts
    assert results["doctor"]["splits"]["train"]["sentences"] == NUM_TRAIN
    assert results["majority"]["dev"]["f1"] == 0.0
    assert 0.2 < results["majority"]["dev"]["accuracy"] < 0.9
    for split, name in (("dev", "eng.testa"), ("test", "eng.testb")):
        assert results["dev"][split]["f1"] > 0.95
        scores = trained.done["eval"][split]
        assert scores == pytest.approx(results["dev"][split])
        path = str(trained.folder / f"predictions_{split}.txt")
        gold = str(trained.files / name)
        scored = trained.task.score_file(TagRecipe(), gold, path)
        assert {k: scored[k] for k in scores} == pytest.approx(scores)


def test_dev_predictions_hold_every_sentence(trained):
    dev = read_conll(str(trained.files / "eng.testa"))
    words = read_conll(str(trained.folder / "predictions_dev.txt"))
    assert answer_lines(trained.folder) == [
        {
            "row": dev.rows[part.start],
            "words": dev.words[part],
            "tags": dev.tags[part],
            "predictions": words.tags[part],
        }
        for part in dev.sentences()
    ]


def test_what_no_tag_depends_on_is_neither_trained_nor_missed(
    trained, tmp_path
):
    """The pooler: it stays as it was, and no line tells that it is fresh."""
    whole = load_checkpoint(trained.start)
    for name, array in weights(trained.folder / "last").items():
        if name in whole.arrays:
            stays = "pooler" in name
            assert np.array_equal(array, whole.arrays[name]) == stays, name
    without = {n: a for n, a in whole.arrays.items() if "pooler" not in n}
    assert len(without) < len(whole.arrays)
    task, recipe = trained.task, trained.recipe
    for arrays, fresh in ((whole.arrays, ()), (without, ("pooler",))):
        initial = dataclasses.replace(whole, arrays=arrays)
        found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
        assert found.fresh == fresh


def test_test_is_left_alone_unless_it_is_to_be_scored(
    trained, tmp_path, capsys
):
    CONLL.make(tmp_path / "files", "")
    path = tmp_path / "files" / "eng.testb"
    path.write_text("no tags\n\nhere either\n")
    task, recipe = trained.task, trained.recipe
    settings = [f"init_from={trained.folder}", f"data_dir={path.parent}"]
    recipe = recipe.override([*settings, "score_test=no"])
    resolved = task.resolve(recipe)
    assert resolved.splits(resolved.dev_splits, recipe) == ("dev",)
    done = run_finetuning(task, recipe, tmp_path / "run", ["eval", "predict"])
    assert list(done["eval"]) == ["dev"]
    assert list(done["predict"]) == ["test"]
    text = (tmp_path / "run" / "predictions_test.txt").read_text()
    words = [line.split()[0] for line in text.split("\n") if line]
    assert words == ["no", "here"]
    path.unlink()
    recipe = recipe.override(["score_test=yes"])
    resolved = task.resolve(recipe)
    assert resolved.splits(resolved.dev_splits, recipe) == ("dev",)
    assert "eng.testb nor conll2003/test.txt; continuing with dev alone." in (
        capsys.readouterr().err
    )


def test_no_word_of_a_long_sentence_goes_unpredicted(trained, tmp_path):
    random = np.random.default_rng(4)
    words = random.choice([*GOOD, *BAD, *FILLER], 500)
    kinds = {w: "B-PER" for w in GOOD} | {w: "B-LOC" for w in BAD}
    (tmp_path / "valid.txt").write_text(
        "".join(f"{word} {kinds.get(word, 'O')}\n" for word in words)
    )
    settings = [f"data_dir={tmp_path}", f"init_from={trained.folder}"]
    recipe = trained.recipe.override([*settings, "score_test=no"])
    run_finetuning(trained.task, recipe, tmp_path / "out", ["eval"])
    found = read_conll(str(tmp_path / "out" / "predictions_dev.txt"))
    assert found.words == list(words)
    num_correct = sum(
        tag[2:] == kinds.get(word, "O")[2:]
        for tag, word in zip(found.tags, words, strict=True)
    )
    # Windows would leave words of the middle without an answer else.
    assert num_correct > 0.9 * 500


def test_a_head_serves_where_the_tags_are_the_same(trained, tmp_path, capsys):
    CONLL.make(tmp_path, "")
    settings = [f"init_from={trained.folder}", f"data_dir={tmp_path}"]
    recipe = trained.recipe.override(settings)

    initial = load_checkpoint(trained.folder)

    def prepared(initial, recipe=recipe):
        task = trained.task.resolve(recipe)
        return prepare_training(task, recipe, initial, tokenizer(), tmp_path)

    # The names decide, not their order.
    arrays = dict(initial.arrays)
    for name in (n for n in arrays if "token_classification" in n):
        arrays[name] = arrays[name][::-1]
    other_order = dataclasses.replace(
        initial, arrays=arrays, labels=initial.labels[::-1]
    )
    for each in (initial, other_order):
        found = prepared(each)
        assert found.fresh == ()
        assert found.initial.labels == found.config.labels == initial.labels
        for name, array in initial.arrays.items():
            np.testing.assert_array_equal(found.initial.arrays[name], array)
    reset = dataclasses.replace(recipe, reset_head=True)
    assert prepared(initial, reset).fresh == (TOKEN_CLASSIFIER,)
    capsys.readouterr()
    for name in ("eng.train", "eng.testa"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("PER", "MAN"))
    assert prepared(initial).fresh == (TOKEN_CLASSIFIER,)
    captured = capsys.readouterr()
    line = "only in the model: 'B-PER', 'I-PER'; only in the data: 'B-MAN', "
    assert line in captured.err
    # The test file has the old types.
    assert "of types that the model does not learn (PER)" in captured.err
    assert "(not in train)" in captured.out


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_user_files_by_settings_alone(separator, tmp_path, capsys):
    write_tags(tmp_path / "marked", 40, 1, False)
    text = (tmp_path / "marked").read_text()
    lines = text.replace("-DOCSTART- -X- O O\n\n", "").splitlines()
    columns = [line.split(" ") for line in lines]
    text = "".join(
        separator.join(["7", cells[-1], cells[0]]) + "\n" if cells[0] else "\n"
        for cells in columns
    )
    (tmp_path / "all.conll").write_text(f"# made up\n{text}")
    recipe = UserTagRecipe(
        data_dir=str(tmp_path),
        train_file="all.conll",
        token_column=2,
        tag_column=-2,
        comment="#",
    )
    task = load_task("tagging").resolve(recipe)
    train, dev = task.load("train", recipe), task.load("dev", recipe)
    assert (len(train), len(dev)) == (36, 4)
    assert task.configure(recipe, train).labels == LABELS
    assert train.separator == separator
    assert capsys.readouterr().err.count("1 comment lines") == 1


def test_bad_input_gets_a_line(trained, tmp_path):
    def line_of(modes=("train",), **settings):
        pairs = [f"{k}={v}" for k, v in settings.items()]
        recipe = trained.recipe.override(pairs)
        folder = tmp_path / "o"
        return error_of(run_finetuning, trained.task, recipe, folder, modes)

    assert line_of(data_dir="").startswith(
        "`data_dir`=...: name the folder with eng.testa or valid.txt"
    )
    assert line_of(data_dir=tmp_path / "no").endswith("no such folder.")
    assert "has neither eng.testa nor valid.txt" in line_of(data_dir=tmp_path)
    assert "tag_column=7 is not there" in line_of(tag_column=7)
    CONLL.make(tmp_path / "files", "")
    path = tmp_path / "files" / "eng.train"
    good = path.read_text()
    for text, line in (
        (good.replace("I-NP I-PER", "I-PER", 1), "has 3 columns and row 3"),
        (good.replace("I-PER", "O").replace("I-LOC", "O"), "every word has"),
        ("-DOCSTART- -X- O O\n\n", "has no words"),
    ):
        path.write_text(text)
        assert line in line_of(data_dir=path.parent)
    assert "holds no fine-tuned model" in line_of(modes=("eval",))
    assert not (tmp_path / "o").exists()
