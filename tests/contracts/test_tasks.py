"""The contract of every fine-tuning task."""

import dataclasses
import functools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import (
    CLASSIFIER,
    TOKEN_CLASSIFIER,
    load_checkpoint,
)
from bert_tf.encoders import bert
from bert_tf.errors import UserError
from bert_tf.families.model_folder import load_model, read_config
from bert_tf.families.recipe import PruningSettings
from bert_tf.families.task import RunSplit
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.pruning import Pruning, prune
from bert_tf.finetuning.run import run_finetuning
from tests.contracts.task_cases import (
    CASES,
    NUM_DEV,
    NUM_TRAIN,
    Finished,
    model_folder,
)
from tests.model_helpers import fill
from tests.run_folders import answer_lines, history
from tests.sharing.cards import ask, read_card, scores_of, table
from tools.shared_flags import load_task, task_names

# Eagerly run, tf.data's functions stay graphs, of which TensorFlow warns.
pytestmark = pytest.mark.filterwarnings("ignore:Even though")


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> pathlib.Path:
    return model_folder(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module", params=CASES)
def finished(request, finish_case) -> Finished:
    return finish_case(request.param)


def some(*names: str) -> pytest.MarkDecorator:
    """Runs a test on cases that differ in the tested property."""
    return pytest.mark.parametrize("finished", names, indirect=True)


# A case of each family, and the task that trains no encoder.
each_family = some(
    *("classes", "choices", "rankings", "vectors", "tags", "questions"),
    "features",
)


def error_of(call, *arguments) -> str:
    """The message of the `UserError` that a call raises."""
    with pytest.raises(UserError) as caught:
        call(*arguments)
    line = str(caught.value)
    assert "\n" not in line
    return line


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """The files of a run that do not depend on time."""
    names = ("task.json", "dev_predictions.jsonl", "eval_dev.json")
    return {name: (folder / name).read_bytes() for name in names}


def test_every_family_is_here(start, tmp_path) -> None:
    # A table of questions is read in test_readers.py, and trained as SQuAD's.
    covered = {type(load_task("questions"))}
    for name, case in CASES.items():
        task, recipe = case.make(tmp_path / name, start)
        covered |= {type(task), type(task.resolve(recipe))}
    for name in task_names():
        kind = type(load_task(name))
        assert any(issubclass(case, kind) for case in covered), name


@some("classes", "vectors", "features", "questions_without_answer")
def test_it_is_pruned(finished: Finished, tmp_path, eagerly) -> None:
    """Evaluating the pruned model gives the scores of its table."""
    case, folder, half = finished.case, finished.folder, tmp_path / "half"

    def pruned(output_dir: pathlib.Path, **shares: float) -> Pruning:
        settings = PruningSettings(num_rows=9, **shares)
        return prune(
            finished.task, finished.recipe, folder, output_dir, settings
        )

    if case.task in ("conll2003_features", "embedding"):
        line = error_of(pruned, half)
        assert "are not defined" in line
        assert not half.exists()
        return
    line = error_of(functools.partial(pruned, keep_heads=0.2), half)
    assert line.startswith("`keep_heads`=0.2: ")
    assert "0.5" in line
    found = pruned(half, keep_heads=0.5, keep_columns=0.75)
    before, after = found.before, found.after
    whole, left = load_checkpoint(folder), load_checkpoint(half)
    assert left.config == dataclasses.replace(
        whole.config,
        num_attention_heads=1,
        attention_head_size=8,
        intermediate_size=24,
    )
    assert before.scores == pytest.approx(
        finished.done["train"]["dev"]["dev"], abs=1e-5, nan_ok=True
    )
    # 4 * 16 * 8 + 3 * 8 of a head, 2 * 16 + 1 of a column.
    assert before.parameters - after.parameters == 536 + 8 * 33
    assert before.bytes > after.bytes > 4 * after.parameters
    assert min(before.rows_per_second, after.rows_per_second) > 0
    facts = json.loads((half / "pruning.json").read_text())
    assert np.shape(facts["heads"]["importances"]) == (1, 2)
    assert np.shape(facts["columns"]["kept"]) == (1, 24)
    for number, name in enumerate(facts["heads"]["kept"]):
        importances = facts["heads"]["importances"][number]
        assert [int(np.argmax(importances))] == name
    names = [line.split()[0] for line in found.table().splitlines()[1:]]
    assert names[:-3] == [name.split()[0] for name in before.scores]
    done = run_finetuning(finished.task, finished.recipe, half, ["eval"])
    assert done["eval"]["dev"] == pytest.approx(
        dict(after.scores), abs=1e-5, nan_ok=True
    )
    assert "1 of 2 attention heads" in read_card(half).text
    bert_tf.load(half)


def test_it_learns(finished: Finished) -> None:
    case, results = finished.case, finished.done["train"]
    scores = results["dev"]["dev"]
    assert scores[case.score] >= case.reached
    assert not scores[case.score] <= results["majority"]["dev"][case.score]
    assert results["examples"]["train"] == NUM_TRAIN or case.task.startswith(
        "conll"
    )
    losses = [r["loss"] for r in history(finished.folder) if "loss" in r]
    assert losses[-1] < losses[0] * 0.8


def test_the_files_of_a_run_say_the_same(finished: Finished) -> None:
    folder, done = finished.folder, finished.done
    written = json.loads((folder / "results.json").read_text())
    # NaN is null in the file.
    assert written["dev"] == json.loads(json.dumps(done["train"]["dev"]))
    assert done["eval"]["dev"] == pytest.approx(
        done["train"]["dev"]["dev"], nan_ok=True
    )
    recipe = json.loads((folder / "recipe.json").read_text())
    # What the recipe leaves to the run is in the file.
    asked = finished.recipe.to_dict()
    chosen = {
        field.name: recipe[field.name]
        for field in dataclasses.fields(finished.recipe)
        if field.metadata["chosen_by_run"] and not asked[field.name]
    }
    assert all(chosen.values())
    assert recipe == asked | chosen
    config = json.loads((folder / "task.json").read_text())
    assert config["task"] == finished.task.name
    for name in config.keys() & recipe.keys():
        assert config[name] == recipe[name], name
    known = read_config(folder, finished.task.resolve(finished.recipe))
    assert known.summary().items() <= written.items()
    checkpoint = load_checkpoint(folder)
    if set(checkpoint.heads) & {CLASSIFIER, TOKEN_CLASSIFIER}:
        assert tuple(config["labels"]) == (checkpoint.labels or ())
    lines = answer_lines(folder)
    assert len(lines) == NUM_DEV
    report = json.loads((folder / "report.json").read_text())
    assert report["task"] == finished.task.name
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<h2") >= 3
    assert finished.task.name in page
    drawn = (folder / "learning_curve.png").stat().st_size > 1000
    assert drawn == (finished.case is CASES["classes"])
    (test,) = done["predict"].values()
    assert pathlib.Path(test).stat().st_size > 0
    assert not list(folder.rglob("*.partial"))


@some(
    *("classes", "pairs", "choices", "rankings", "vectors", "tags"),
    *("questions", "features"),
)
def test_its_card(finished: Finished, eagerly) -> None:
    folder, results = finished.folder, finished.done["train"]
    card = read_card(folder)
    scores = json.loads((folder / "results.json").read_text())["dev"]["dev"]
    values = sorted(v for v in scores.values() if v is not None)
    given = [v for (split, _), v in scores_of(card).items() if split == "dev"]
    assert sorted(given) == values
    rows = [row for row in table(card, "Scores") if row[0] == "dev"]
    assert len(rows) == len(scores)
    head, _, *rows = table(card, "Data")
    counts = {name: f"{n:,}" for name, n in results["examples"].items()}
    assert dict(rows) == counts
    for label in results["labels"]:
        assert label in card.text
    assert str(folder.parent) not in card.text
    assert str(finished.recipe.init_from) not in card.text
    if finished.task.resolve(finished.recipe).config_type.head:
        columns = tuple(ask(folder))
        assert sorted(columns) == sorted(bert_tf.load(folder).served.columns)


def assert_same_in_a_graph(model, objective, batch) -> None:
    """A loss is what it is eagerly, in a graph for all sizes of batches."""

    def loss(batch):
        losses, metrics = objective(model(batch), batch)
        means = objective.normalise(losses, objective.loss_weights(batch))
        return means | metrics

    batch = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
    spec = {
        name: tf.TensorSpec([None] * value.shape.rank, value.dtype)
        for name, value in batch.items()
    }
    # Also while functions run eagerly, a concrete one is a graph.
    graph = tf.function(loss, input_signature=[spec], autograph=False)
    found = graph.get_concrete_function()(batch)
    for name, value in loss(batch).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)


def test_answers_depend_neither_on_batches_nor_on_graphs(
    finished: Finished, tmp_path: pathlib.Path, eagerly
) -> None:
    """The outputs for a row do not depend on its batch."""
    recipe, folder = finished.recipe, finished.folder
    task = finished.task.resolve(recipe)
    model, tokens, config = load_model(folder, task)
    # After a short training outputs hardly differ.
    fill(model.network, seed=5, scale=0.5)
    run = RunSplit("dev", load_checkpoint(folder), recipe, tmp_path)
    examples = task.load("dev", recipe)
    rows = task.encode(examples, tokens, config, run=run)
    labelled = task.encode(examples, tokens, config, True, run)
    objective = task.loss(recipe, examples, config)
    assert_same_in_a_graph(model, objective, labelled.batch(np.arange(4)))
    every = np.arange(len(rows))
    one_by_one = (
        (every[n : n + 1], model(rows.batch(every[n : n + 1]))) for n in every
    )
    expected = rows.gather(
        (row, {name: np.array(values) for name, values in found.items()})
        for row, found in one_by_one
    )
    strategy = tf.distribute.get_strategy()
    for batch_size in (1, 64):
        found = Predictor([model], strategy, batch_size).outputs(rows)
        for name, values in expected.items():
            # Choices that a row lacks are -inf.
            given = np.isfinite(values)
            spread = np.ptp(values[given])
            assert spread > 0.1
            np.testing.assert_allclose(
                found[name][given], values[given], rtol=0, atol=1e-5 * spread
            )


def test_the_prediction_file_scores_as_the_run(finished: Finished) -> None:
    case = finished.case
    task = finished.task.resolve(finished.recipe)
    dev = case.train_path(finished.files).with_name(case.files[1])
    (path,) = (
        path
        for path in finished.folder.iterdir()
        if path.name
        in (
            "predictions_dev.tsv",
            "predictions_dev.txt",
            "dev_predictions.json",
        )
    )
    found = task.score_file(finished.recipe, str(dev), str(path))
    scores = finished.done["eval"]["dev"]
    same = set(found) & set(scores)
    assert same
    for name in same:
        assert found[name] / case.scale == pytest.approx(
            scores[name], rel=case.rounding, nan_ok=True
        )


@each_family
def test_a_model_is_used_from_elsewhere(
    finished: Finished, tmp_path, eagerly
) -> None:
    moved = dataclasses.replace(finished.recipe, init_from=str(finished.folder))
    done = run_finetuning(finished.task, moved, tmp_path / "new", ["eval"])
    assert done["eval"]["dev"] == pytest.approx(
        finished.done["eval"]["dev"], nan_ok=True
    )
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert "eval_dev.json" in written
    assert not written & {"bert_model.safetensors", "recipe.json", "task.json"}


@some("classes", "choices", "rankings", "tags", "questions", "features")
def test_models_of_other_tasks_are_refused(finished: Finished, start) -> None:
    task, recipe = finished.task, finished.recipe
    raw = dataclasses.replace(recipe, init_from=str(start))
    line = error_of(run_finetuning, task, raw, start, ["eval"])
    assert str(start) in line
    other = dataclasses.replace(task, name="another")
    line = error_of(run_finetuning, other, recipe, finished.folder, ["eval"])
    assert "another" in line
    assert finished.task.name in line


def copied(finished: Finished, folder: pathlib.Path) -> Finished:
    """Copies a run and its files for a test that changes them."""
    place = finished.files.parent
    shutil.copytree(place, folder)
    for path in (folder / "run").glob("recipe.json"):
        path.write_text(path.read_text().replace(str(place), str(folder)))
    task, recipe = finished.case.on_files(folder / "files", folder / "start")
    files, run = folder / "files", folder / "run"
    return Finished(finished.case, task, recipe, files, run, finished.done)


@some("classes", "features")
def test_a_finished_run_stays(
    finished: Finished, tmp_path, capsys, eagerly
) -> None:
    """Partial files of killed runs, on any machine, are deleted."""
    before = contents(finished.folder)
    stamp = (finished.folder / "bert_model.safetensors").read_bytes()
    again = copied(finished, tmp_path / "copy")
    (again.folder / "bert_model.safetensors").unlink()
    for left in (
        ".bert_model.safetensors.999999999.partial",
        ".last.0123abcd-7-123.partial/.vocab.txt.0123abcd-7-1.partial",
        "last/.task.json.0123abcd-7-123.partial",
    ):
        path = again.folder / left
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    done = run_finetuning(again.task, again.recipe, again.folder, ["train"])
    assert "already finished" in capsys.readouterr().out
    assert not list(again.folder.rglob("*.partial"))
    assert done["train"]["dev"] == finished.done["train"]["dev"]
    assert contents(again.folder) == before
    assert (again.folder / "bert_model.safetensors").read_bytes() == stamp


@some("choices", "features")
def test_other_rows_do_not_resume(
    finished: Finished, tmp_path, eagerly
) -> None:
    case, copy = finished.case, copied(finished, tmp_path / "copy")
    case.write(case.train_path(copy.files), NUM_TRAIN, 9, False)
    line = error_of(
        run_finetuning, copy.task, copy.recipe, copy.folder, ["train"]
    )
    assert "training rows" in line


@some("questions")
def test_check_writes_nothing(
    finished: Finished, tmp_path, capsys, eagerly
) -> None:
    done = run_finetuning(
        finished.task, finished.recipe, tmp_path / "new", ["check"]
    )
    assert done["check"]
    assert "train" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


@each_family
def test_bad_input_gets_one_line(finished: Finished, tmp_path, eagerly) -> None:
    copy = copied(finished, tmp_path / "copy")
    task, recipe = copy.task, copy.recipe
    train = copy.case.train_path(copy.files)
    content = train.read_bytes()
    folder = tmp_path / "run"

    def line() -> str:
        return error_of(run_finetuning, task, recipe, folder, ["train"])

    train.write_bytes(b"")
    assert train.name in line()
    train.write_bytes(content[:200] + b"\xff\xfe" + content[200:])
    assert train.name in line()
    train.unlink()
    assert train.name in line()
    train.write_bytes(content)
    recipe = dataclasses.replace(recipe, init_from="")
    assert "`init_from`" in line()
    recipe = dataclasses.replace(copy.recipe, init_from=str(tmp_path))
    assert str(tmp_path) in line()
    assert not folder.exists() or not list(folder.glob("*.json"))


@some("classes", "features")
def test_rematerialize_is_reached(
    finished: Finished, tmp_path, monkeypatch, eagerly
) -> None:
    if finished.case.task.endswith("_features"):
        # The encoder is not trained.
        with pytest.raises(UserError, match="rematerialize=True"):
            dataclasses.replace(finished.recipe, rematerialize=True)
        return

    class ReachedError(Exception):
        pass

    def stand_in(*_: object) -> None:
        raise ReachedError

    recipe = dataclasses.replace(finished.recipe, rematerialize=True)
    monkeypatch.setattr(bert, "rematerialized", stand_in)
    with pytest.raises(ReachedError):
        run_finetuning(finished.task, recipe, tmp_path / "run", ["train"])


@pytest.mark.parametrize(
    # Without labels, and with more files; test_seeds.py has labels only.
    "name",
    ["choices", "vectors", "features"],
)
def test_seeds_keep_the_best(
    name: str, start, tmp_path, eagerly, undrawn
) -> None:
    task, recipe = CASES[name].make(tmp_path / "files", start)
    recipe = dataclasses.replace(recipe, seeds=2, num_train_epochs=0.2)
    folder = tmp_path / "run"
    done = run_finetuning(task, recipe, folder, ["train", "eval"])
    rows = done["train"]["seeds"]
    assert [row["seed"] for row in rows] == [recipe.seed, recipe.seed + 1]
    (best,) = (row for row in rows if row["best"])
    metric = done["train"]["main_metric"]
    assert not any(row["dev"][metric] > best["dev"][metric] for row in rows)
    assert done["eval"]["dev"] == pytest.approx(best["dev"], nan_ok=True)
    files = ["task.json", "dev_predictions.jsonl"]
    if name == "features":
        files.append("tagger.safetensors")
    if name == "vectors":
        files += ["1_Pooling/config.json", "2_Dense/model.safetensors"]
    for file in files:
        kept = (folder / file).read_bytes()
        assert kept == (folder / best["folder"] / file).read_bytes()


@pytest.mark.parametrize(
    ("relative", "name", "changes"),
    [
        (
            *("electra", "tags"),
            {"embedding_size": 12, "rematerialize": True}
            | {"num_train_epochs": 4.0, "learning_rate": 2e-2},
        ),
        ("distilbert", "choices", {"type_vocab_size": 0}),
    ],
)
def test_a_relative_learns_it(
    relative, name, changes, tmp_path, undrawn
) -> None:
    case = CASES[name]
    own = {f.name for f in dataclasses.fields(case.on_files(tmp_path, "")[1])}
    start = model_folder(
        tmp_path / "start",
        model_type=relative,
        hidden_act="gelu_erf",
        **{k: v for k, v in changes.items() if k not in own},
    )
    task, recipe = case.make(tmp_path / "files", start)
    changes = {k: v for k, v in changes.items() if k in own}
    recipe = dataclasses.replace(recipe, **changes)
    done = run_finetuning(task, recipe, tmp_path / "run", ["train", "eval"])
    assert done["train"]["dev"]["dev"][case.score] >= case.reached
    assert done["eval"]["dev"] == pytest.approx(
        done["train"]["dev"]["dev"], nan_ok=True
    )
    assert load_checkpoint(tmp_path / "run").config.model_type == relative
