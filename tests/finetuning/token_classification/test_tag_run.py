"""Whole trainings of tiny taggers: files, scores, resume, context, windows."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.errors import UserError
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.model_folder import load_model
from bert_tf.finetuning.recipe import UserTagRecipe
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import prepare_training
from bert_tf.finetuning.task import Split
from bert_tf.finetuning.token_classification.conll_files import (
    ConllLayout,
    read_conll,
    score_tag_file,
)
from bert_tf.finetuning.token_classification.task import (
    UserTokenClassificationTask,
)
from bert_tf.training.strategies import make_strategy
from tests.finetuning.sentence_runs import BAD, FILLER, GOOD, tokenizer
from tests.finetuning.token_classification.tag_runs import (
    DEV_SENTENCES,
    TASK,
    TEST_SENTENCES,
    conll,
    small_settings,
    tag_recipe,
    word_model,
    write_files,
)
from tests.run_folders import (
    answer_lines,
    history,
    weights,
)

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
PREDICTED = ConllLayout()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return word_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files") / "names")


@pytest.fixture(scope="module")
def recipe(start, files):
    return tag_recipe(start, files)


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    modes = ["train", "eval", "predict"]
    return folder, run_finetuning(TASK, recipe, folder, modes)


def error_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_folder_of_a_finished_run(finished, files):
    folder, done = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "bert_model.safetensors",
        "dev_predictions.jsonl",
        "eval_dev.json",
        "eval_test.json",
        "labels.json",
        "last",
        "predictions_dev.txt",
        "predictions_test.txt",
        "report.html",
        "results.json",
        "task.json",
    }
    assert load_checkpoint(folder).labels == LABELS
    assert json.loads((folder / "task.json").read_text()) == {
        "task": "names",
        "labels": list(LABELS),
        "max_seq_length": 32,
        "context": "document",
        "doc_stride": 0,
    }
    results = done["train"]
    assert results["labels"] == list(LABELS)
    assert results["examples"] == {
        "train": 60,
        "dev": DEV_SENTENCES,
        "test": TEST_SENTENCES,
    }
    assert results["doctor"]["splits"]["train"]["sentences"] == 60
    assert results["majority"]["dev"]["f1"] == 0.0
    assert 0.2 < results["majority"]["dev"]["accuracy"] < 0.9
    for split in ("dev", "test"):
        assert done["eval"][split] == pytest.approx(results["dev"][split])
        path = str(folder / f"predictions_{split}.txt")
        gold = str(files / f"eng.test{'ab'[split == 'test']}")
        scored = score_tag_file(gold, path).scores()
        assert scored == pytest.approx(done["eval"][split])
        assert (
            TASK.score_file(UserTagRecipe(), gold, path)["f1"] == scored["f1"]
        )


def test_it_learns(finished):
    folder, done = finished
    assert done["train"]["dev"]["dev"]["f1"] > 0.95
    assert done["train"]["dev"]["test"]["f1"] > 0.95
    losses = [row["loss"] for row in history(folder) if "loss" in row]
    assert losses[-1] < losses[0] * 0.5
    evaluated = [row for row in history(folder) if "eval_f1" in row]
    assert evaluated[-1]["eval_loss"] < losses[0]


def test_dev_predictions_hold_every_sentence(finished, files):
    folder, _ = finished
    dev = read_conll(str(files / "eng.testa"))
    found = answer_lines(folder)
    assert [list(line) for line in found] == [
        ["row", "words", "tags", "predictions"]
    ] * DEV_SENTENCES
    for line, part in zip(found, dev.sentences(), strict=True):
        assert line["row"] == dev.rows[part.start]
        assert line["words"] == dev.words[part]
        assert line["tags"] == dev.tags[part]
        assert len(line["predictions"]) == len(line["words"])
    words = read_conll(str(folder / "predictions_dev.txt"))
    assert words.tags == [tag for x in found for tag in x["predictions"]]


def test_a_loaded_model_answers_as_it_did(finished, recipe, files):
    folder, _ = finished
    model, tokenizer, facts = load_model(folder, TASK)
    predictor = Predictor([model], make_strategy("one_device"), 4)
    dev = TASK.load("dev", recipe)
    task = TASK.resolve(recipe)
    split = Split(dev, task.encode(dev, tokenizer, facts))
    outputs = predictor.outputs(split.rows)
    answers = task.decode(outputs, split, tokenizer, facts)
    assert answers.tags == [
        tag for line in answer_lines(folder) for tag in line["predictions"]
    ]


def test_what_is_read_nowhere_is_not_trained(finished, start):
    """The pooler, which no tag depends on, stays as it was."""
    before = load_checkpoint(start).arrays
    for name, array in weights(finished[0] / "last").items():
        if name in before:
            stays = "pooler" in name
            assert np.array_equal(array, before[name]) == stays, name


def test_a_pooler_is_not_missed(start, recipe, tmp_path):
    """No line tells of a head that nothing reads."""
    whole = load_checkpoint(start)
    without = {n: a for n, a in whole.arrays.items() if "pooler" not in n}
    assert len(without) < len(whole.arrays)
    task = TASK.resolve(recipe)
    for arrays, fresh in ((whole.arrays, ()), (without, ("pooler",))):
        initial = dataclasses.replace(whole, arrays=arrays)
        found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
        assert found.fresh == fresh


@pytest.mark.slow
def test_test_is_left_alone_unless_it_is_to_be_scored(
    start, files, tmp_path, capsys
):
    copy = write_files(tmp_path / "names", train=9)
    (copy / "eng.testb").write_text("no tags\n\nhere either\n")
    recipe = tag_recipe(start, tmp_path, score_test=False, num_train_epochs=1.0)
    modes = ["train", "eval", "predict"]
    done = run_finetuning(TASK, recipe, tmp_path / "run", modes)
    assert list(done["train"]["dev"]) == list(done["eval"]) == ["dev"]
    assert list(done["predict"]) == ["test"]
    text = (tmp_path / "run" / "predictions_test.txt").read_text()
    assert [line.split()[0] for line in text.split("\n") if line] == [
        "no",
        "here",
    ]
    (copy / "eng.testb").unlink()
    recipe = recipe.override(["score_test=yes"])
    assert TASK.splits(TASK.dev_splits, recipe) == ("dev",)
    assert "has no eng.testb nor test.txt; continuing with dev alone." in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("length", [1, 500])
def test_no_word_of_a_long_sentence_goes_unpredicted(
    length, finished, recipe, tmp_path
):
    random = np.random.default_rng(4)
    words = random.choice([*GOOD, *BAD, *FILLER], length)
    kinds = {w: "B-PER" for w in GOOD} | {w: "B-LOC" for w in BAD}
    (tmp_path / "valid.txt").write_text(
        "".join(f"{word} {kinds.get(word, 'O')}\n" for word in words)
    )
    other = recipe.override(
        [f"data_dir={tmp_path}", f"init_from={finished[0]}", "score_test=no"]
    )
    run_finetuning(TASK, other, tmp_path / "out", ["eval"])
    found = read_conll(str(tmp_path / "out" / "predictions_dev.txt"))
    assert found.words == list(words)
    wanted = [kinds.get(word, "O")[2:] for word in words]
    right = sum(
        tag[2:] == kind for tag, kind in zip(found.tags, wanted, strict=True)
    )
    # Windows would leave words of the middle without an answer else.
    assert right > 0.9 * length


@pytest.mark.slow
def test_a_head_serves_where_the_tags_are_the_same(
    finished, recipe, tmp_path, capsys
):
    again = recipe.override(
        [f"init_from={finished[0]}", "num_train_epochs=0.3"]
    )
    done = run_finetuning(TASK, again, tmp_path / "again", ["train"])
    assert done["train"]["dev"]["dev"]["f1"] > 0.9
    assert "starts fresh" not in capsys.readouterr().err
    folder = write_files(tmp_path / "names", train=10)
    for name in ("eng.train", "eng.testa"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("PER", "MAN"))
    other = again.override([f"data_dir={folder}", "num_train_epochs=1"])
    run_finetuning(TASK, other, tmp_path / "other", ["train"])
    captured = capsys.readouterr()
    assert "its token_classifier is of another task (names); starts fresh" in (
        captured.err
    )
    # The test file has the old types.
    assert "of types that the model does not learn (PER)" in captured.err
    assert "(not in train)" in captured.out


@pytest.mark.slow
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_own_files_by_settings_alone(separator, start, tmp_path, capsys):
    text = conll(40, 1).replace("-DOCSTART- -X- O O\n\n", "")
    columns = [line.split(" ") for line in text.splitlines()]
    text = "".join(
        separator.join(["7", cells[-1], cells[0]]) + "\n" if cells[0] else "\n"
        for cells in columns
    )
    (tmp_path / "all.conll").write_text(f"# made up\n{text}")
    (tmp_path / "new.conll").write_text(
        separator.join(["7", "?", "good"]) + "\n"
    )
    recipe = UserTagRecipe(
        **small_settings(
            start,
            task="tagging",
            data_dir=str(tmp_path),
            train_file="all.conll",
            test_file="new.conll",
            token_column=2,
            tag_column=-2,
            comment="#",
            num_train_epochs=1.0,
        )
    )
    task = UserTokenClassificationTask(name="tagging")
    modes = ["train", "eval", "predict"]
    done = run_finetuning(task, recipe, tmp_path / "out", modes)
    assert done["train"]["examples"] == {"train": 36, "dev": 4}
    errors = capsys.readouterr().err
    assert "no dev_file, so 4 of 40 sentences are kept for dev" in errors
    # The file is read once for both of its parts.
    assert errors.count("1 comment lines") == 1
    predicted = (tmp_path / "out" / "predictions_test.txt").read_text()
    assert predicted.split(separator)[0] == "good"


def test_bad_input_gets_a_line(start, files, recipe, tmp_path):
    def told(task=TASK, modes=("train",), **settings):
        changed = recipe.override([f"{k}={v}" for k, v in settings.items()])
        return error_of(run_finetuning, task, changed, tmp_path / "o", modes)

    assert told(data_dir="").startswith(
        "`data_dir`: name the folder of eng.train, eng.testa, eng.testb"
    )
    assert told(data_dir=tmp_path / "no").endswith("no such folder.")
    assert "has no eng.testa nor valid.txt" in told(data_dir=tmp_path)
    assert "tag_column=7 is not there" in told(tag_column=7)
    assert "token_column and tag_column are the same" in told(tag_column=0)
    assert "'N' is no tag" in told(tag_column=1)
    folder = write_files(tmp_path / "names", train=3)
    good = (folder / "eng.train").read_text()
    for text, line in (
        (good.replace("I-NP I-PER", "I-PER", 1), "has 3 columns and row 3"),
        (good.replace("I-PER", "PER"), "'PER' is no tag"),
        (good.replace("I-PER", "O").replace("I-LOC", "O"), "every word has"),
        ("-DOCSTART- -X- O O\n\n", "has no words"),
    ):
        (folder / "eng.train").write_text(text)
        assert line in told(data_dir=folder)
    assert "holds no fine-tuned model" in told(modes=("eval",))
    assert not (tmp_path / "o").exists()


def test_settings_that_cannot_be(start, files):
    for name, value in (
        ("context", "paragraph"),
        ("doc_stride", -1),
        ("unmarked", "pages"),
    ):
        settings = {name: value}
        line = error_of(functools.partial(tag_recipe, start, files, **settings))
        assert line.startswith(f"{name} is {value!r}; it takes ")
    line = error_of(lambda: UserTagRecipe(score_test=True))
    assert line.startswith("score_test=True: there is nothing to score")
    line = error_of(lambda: UserTagRecipe(dev_share=1.0))
    assert line == "dev_share is 1.0; it takes above 0, below 1."
    own = UserTokenClassificationTask(name="tagging").resolve(UserTagRecipe())
    for split in ("train", "test"):
        line = error_of(own.load, split, UserTagRecipe())
        assert line.startswith(f"`{split}_file`=...: name the file")
    with pytest.raises(UserError, match="`dev_file`=...: name the file"):
        own.splits(("dev",), UserTagRecipe())


def test_a_model_of_another_kind(finished, recipe, start, tmp_path):
    other = UserTokenClassificationTask(name="tagging")
    line = error_of(load_model, finished[0], other)
    assert line.endswith(
        "was fine-tuned for names, not tagging; give that task as `task`."
    )
    facts = json.loads((finished[0] / "task.json").read_text())
    facts["threshold"] = 0.5
    (tmp_path / "task.json").write_text(json.dumps(facts))
    assert "the keys threshold are missing or too many" in error_of(
        load_model, tmp_path, TASK
    )
