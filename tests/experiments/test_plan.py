"""Plans of experiments: shared runs, settings, and what is refused."""

import pathlib
import re

import pytest

from bert_tf.experiments import (
    AfterSteps,
    Cell,
    Experiment,
    Finetuning,
    Pretraining,
)
from bert_tf.experiments.plan import Sources, make_plan
from bert_tf.experiments.scales import SCALES, scale_named
from tests.user_errors import error_of
from tools.shared_flags import EXPERIMENTS, load_task

TINY = SCALES["tiny"]


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    """A folder of a corpus and a file of texts."""
    (tmp_path / "corpus").mkdir()
    text = "A sentence.\nAnother one.\n\nA document.\nIt ends.\n"
    (tmp_path / "corpus" / "a.txt").write_text(text)
    rows = "".join(f"good text {n},{n % 2}\n" for n in range(20))
    (tmp_path / "texts.csv").write_text("text,label\n" + rows)
    return tmp_path


def sources(data: pathlib.Path, **changes) -> Sources:
    """What an experiment is run with."""
    given = {
        "corpus": f"{data}/corpus/*.txt",
        "data_dir": str(data),
        "init_from": "",
        "stand_ins": {},
        "precision": "float32",
        "strategy": "one_device",
    }
    return Sources(**(given | changes))


def texts(model=None, **settings) -> Finetuning:
    """A fine-tuning on the file of texts."""
    columns = {"text_columns": "text", "label_column": "label"}
    return Finetuning(
        task="sentence",
        model=model,
        settings={"train_file": "texts.csv", **columns, **settings},
    )


def cell(row, column, run, score="accuracy") -> Cell:
    """A cell."""
    return Cell(row=row, column=column, run=run, score=score)


def plan(data, *cells, rows=(), **changes):
    """The plan of some cells."""
    experiment = Experiment(title="An experiment", cells=cells)
    return make_plan(
        experiment, TINY, sources(data, **changes), load_task, rows
    )


def test_shared_work_is_done_once(data):
    bert, other = Pretraining(), Pretraining(settings={"masked_lm_prob": 0.4})
    made = plan(
        data,
        cell("a", "score", texts(bert)),
        cell("a", "perplexity", bert, "masked_lm_perplexity"),
        cell("b", "score", texts(other)),
        cell("b", "again", texts(other)),
        cell("c", "early", texts(AfterSteps(bert, 3))),
    )
    tools = [run.tool for run in made.runs.values()]
    assert tools == [
        "train-vocab",
        "create-pretraining-data",
        *["pretrain"] * 2,
        *["finetune"] * 3,
    ]
    assert made.run_of["b", "score"] == made.run_of["b", "again"]
    done: set[str] = set()
    for name, run in made.runs.items():
        assert done.issuperset(run.needs)
        done.add(name)
    early = made.runs[made.run_of["c", "early"]]
    model = made.run_of["a", "perplexity"]
    assert f"--init_from={{runs_dir}}/{model}/models/step-00000300" in (
        early.arguments
    )
    assert early.needs == (model,)


def test_names_depend_on_all_that_decides_a_run(data):
    def names(changed: Finetuning | None = None, **changes) -> set[str]:
        run = changed or texts(Pretraining())
        return set(plan(data, cell("a", "b", run), **changes).runs)

    first = names()
    assert names() == first
    for other in (
        {"changed": texts(Pretraining(), learning_rate=1e-2)},
        {"precision": "mixed_bfloat16"},
        {"changed": texts(Pretraining(records={"random_next_prob": 0.2}))},
    ):
        assert names(**other) != first
    text = (data / "corpus" / "a.txt").read_text()
    (data / "corpus" / "a.txt").write_text(text + "More.\n")
    assert names().isdisjoint(first)


def test_settings_of_experiment_go_before_those_of_scale(data):
    run = texts(Pretraining(settings={"learning_rate": 7e-4}), seeds=2)
    made = plan(data, cell("a", "b", run))
    by_tool = {each.tool: each.arguments for each in made.runs.values()}
    assert "--learning_rate=0.0007" in by_tool["pretrain"]
    assert "--learning_rate=0.001" not in by_tool["pretrain"]
    assert "--keep_model_steps=100" in by_tool["pretrain"]
    assert "--size=4/64/2" in by_tool["pretrain"]
    assert "--seeds=2" in by_tool["finetune"]
    assert "--learning_rate=0.0003" in by_tool["finetune"]


def test_rows_can_be_chosen(data):
    cells = [
        cell("a", "x", texts(Pretraining())),
        cell("b", "x", texts(Pretraining(size="3/768/12"))),
    ]
    made = plan(data, *cells, rows=("b",))
    assert made.run_of.keys() == {("b", "x")}
    assert len(made.runs) == 4
    line = error_of(plan, data, *cells, rows=("B",))
    assert "`only`=B" in line
    assert "'a', 'b'" in line


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (texts(Pretraining(), learning_rte=1), "learning_rte"),
        (Pretraining(settings={"num_steps": 1}), "num_steps"),
        (Pretraining(records={"mask": 1}), "mask"),
        (Pretraining(settings={"num_train_steps": 19}), "it is 19"),
        (Pretraining(settings={"keep_model_steps": 7}), "is left out"),
        (Pretraining(objective="mlm"), "mlm"),
        (Finetuning(task="mrpcc", model=Pretraining()), "Did you mean mrpc?"),
        (Finetuning(task="mrpc", model=Pretraining()), "`stand_in`=mrpc:OTHER"),
        (texts(), "`init_from`"),
        (texts(Pretraining(), max_seq_length=1024), "its longest input is"),
    ],
)
def test_mistakes_are_found_before_anything_is_done(data, run, said):
    assert said in error_of(plan, data, cell("a", "b", run))


def test_a_score_or_a_split_that_a_task_does_not_have(data, capfd):
    run = texts(Pretraining())
    line = error_of(plan, data, cell("a", "b", run, "f1_macro"))
    assert "'f1_macro'" in line
    other = Cell(row="a", column="c", run=run, score="accuracy", split="test")
    made = plan(data, cell("a", "b", run), other)
    assert made.run_of.keys() == {("a", "b")}
    assert "c: sentence has no test here" in capfd.readouterr().err


def test_corpus_that_is_not_there(data):
    run = texts(Pretraining())
    line = error_of(plan, data, cell("a", "b", run), corpus=f"{data}/no/*.txt")
    assert f"{data}/no/*.txt" in line


def test_unknown_scale():
    assert "tiny, small, paper" in error_of(scale_named, "huge")


def test_stand_ins_take_the_place_of_tasks(data):
    cells = [cell("a", "b", Finetuning(task="mrpc", model=Pretraining()))]
    folder = data / "glue" / "RTE"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text(
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n"
            "1\tc\td\tnot_entailment\n"
        )
    made = plan(data, *cells, stand_ins={"mrpc": "rte"})
    assert "--task=rte" in made.runs[made.run_of["a", "b"]].arguments


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_keeps_models_at_even_steps(scale):
    assert SCALES[scale].pretraining["num_train_steps"] % 20 == 0


def test_experiment_refuses_what_does_not_fit():
    twice = [cell("a", "b", Pretraining())] * 2
    assert "twice" in error_of(Experiment, title="T", cells=twice)
    assert "needs a cell" in error_of(Experiment, title="T", cells=[])
    line = error_of(
        Experiment, title="T", cells=twice[:1], lower_is_better=["c"]
    )
    assert "'c'" in line
    assert "1 to 20" in error_of(AfterSteps, Pretraining(), 21)


def test_the_example_of_the_documentation(tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs" / "experiments.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    (tmp_path / "grid.py").write_text(code)
    experiment = EXPERIMENTS.load(str(tmp_path / "grid.py"))
    assert (len(experiment.rows), len(experiment.columns)) == (6, 3)
    check_settings(experiment)


def check_settings(experiment: Experiment) -> None:
    """Every fine-tuning's settings are some of its task's."""
    for each in experiment.cells:
        if isinstance(each.run, Finetuning):
            task = load_task(each.run.task)
            recipe = task.recipe_type.from_dict(task.defaults, task.name)
            recipe.override([f"{k}={v}" for k, v in each.run.settings.items()])


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_files_of_the_paper_say_what_is_run(name):
    experiment = EXPERIMENTS.load(name)
    check_settings(experiment)
    if not name.startswith("table") or name in ("table5", "table6", "table8"):
        assert all(each.paper is not None for each in experiment.cells)
