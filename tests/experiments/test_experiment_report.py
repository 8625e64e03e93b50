"""Tables of experiments: differences, files and page, checked by hand."""

import itertools
import json
import pathlib
import re
import xml.etree.ElementTree as ET

import pytest

from bert_tf.errors import UserError
from bert_tf.experiments import Cell, Experiment, Finetuning, Pretraining
from bert_tf.experiments.table import (
    CellResult,
    comparisons,
    pictures,
    write_report,
    written,
)
from bert_tf.report import figures
from tests.finetuning.report_pages import HOSTILE, Page

MODEL = Pretraining()
# Mean 52, variance 4.
BASE = (50.0, 52.0, 54.0)
FACTS = {
    "experiment": "table5",
    "scale": "tiny",
    "scale_description": "2 layers of 128",
    "scale_settings": {
        "seeds": 3,
        "tasks": {"mnli": {"num_train_epochs": 2.0}, "mrpc": {}},
    },
    "command": "bert-tf experiment --only='``` x'",
    "machine": "2 cores",
    "versions": {"tensorflow": "2.21.0"},
    "seconds": 6240,
    "stand_ins": {"qnli": "rte"},
    "sizes": {"12/768/12": "4/64/2", "2/128/2": "2/128/2"},
}


def result(values: tuple[float, ...], degenerate: int = 0) -> CellResult:
    return CellResult(
        values=values,
        degenerate=degenerate,
        folder="runs/mnli-1",
        command="bert-tf finetune --task=mnli",
        seconds=75.0 if values else None,
    )


def experiment(rows, columns=("MNLI", "QNLI"), **changes) -> Experiment:
    """Rows with the paper's numbers of the columns; None: it has none."""
    return Experiment(
        title="Table 5",
        cells=[
            Cell(
                row=row,
                column=column,
                run=Finetuning(task=column.lower(), model=MODEL),
                score="accuracy",
                paper=paper,
            )
            for row, numbers in rows.items()
            for column, paper in zip(columns, numbers, strict=True)
        ],
        **changes,
    )


@pytest.mark.parametrize(
    ("values", "ours", "error", "p_value", "interval"),
    [
        # Variances 4 and 4 of 3: sqrt(4/3 + 4/3). The p-values and intervals
        # are those of scipy 1.17.1, stats.ttest_ind(equal_var=False).
        ((44, 46, 48), -6.0, 1.632993, 0.021312, (-10.533916, -1.466084)),
        ((46, 48, 50), -4.0, 1.632993, 0.070484, (-8.533916, 0.533916)),
        # Variance 1: sqrt(4/3 + 1/3).
        ((50, 51, 52), -1.0, 1.290994, 0.496055, (-5.1554, 3.1554)),
        # One seed has no spread, whatever the other row has.
        ((48,), -4.0, None, None, None),
    ],
)
def test_a_difference_by_hand(values, ours, error, p_value, interval):
    table = experiment({"BERT": (84.4,), "No NSP": (83.4,)}, ("MNLI",))
    numbers = {
        ("BERT", "MNLI"): result(BASE),
        ("No NSP", "MNLI"): result(tuple(map(float, values))),
    }
    (row,) = comparisons(table, numbers, {})
    (found,) = row["columns"]
    assert found["paper"] == -1.0
    assert (found["ours"], found["standard_error"]) == (ours, error)
    assert found["p_value"] == p_value
    assert found["num_seeds"] == [len(values), 3]
    assert found["interval"] == (interval and list(interval))
    assert not found["is_degenerate"]
    numbers = {
        key: result(x.values, len(x.values)) for key, x in numbers.items()
    }
    ((found,),) = (x["columns"] for x in comparisons(table, numbers, {}))
    assert found["is_degenerate"]


@pytest.mark.parametrize(
    ("value", "factor", "text"),
    [
        (84.449, 100.0, "84.4"),
        (-5.844, 1.0, "-5.84"),
        (312.44, 1.0, "312.4"),
        (12345.6, 1.0, "12346"),
        (float("nan"), 100.0, ""),
    ],
)
def test_numbers_are_plain(value, factor, text):
    assert written(value, factor) == text


@pytest.fixture(scope="module")
def partial(tmp_path_factory) -> pathlib.Path:
    """The folder of a table of which some runs are not finished."""
    folder = tmp_path_factory.mktemp("partial")
    table = experiment(
        {"BERT": (84.4, 88.4), HOSTILE: (83.9, None), "LTR": (82.1, 84.3)},
        paper_rows={"OpenAI | GPT": {"MNLI": 82.1}},
        notes=["<b>a note</b>", "123. of (10) rows", "+ 1.5 + (0.4) is it"],
    )
    numbers = {
        ("BERT", "MNLI"): result(BASE),
        ("BERT", "QNLI"): result((50.0, float("nan"))),
        (HOSTILE, "MNLI"): result((44.0, 46.0, 48.0), degenerate=1),
        (HOSTILE, "QNLI"): result((51.0,)),
        ("LTR", "MNLI"): result(()),
    }
    page = write_report(table, numbers, FACTS, folder)
    before = {each: each.read_bytes() for each in folder.iterdir()}
    # The same numbers give the same bytes, and no other files are left.
    assert write_report(table, numbers, FACTS, folder) == page
    assert before == {each: each.read_bytes() for each in folder.iterdir()}
    assert {each.name for each in before} == {
        *("results.json", "table.md", "picture.svg", "report.html"),
    }
    return folder


def test_the_numbers(partial):
    results = json.loads((partial / "results.json").read_text("utf-8"))
    assert results["facts"] == FACTS
    assert results["headings"] == {"MNLI": "MNLI", "QNLI": "QNLI (here rte)"}
    first, broken, other, single, unfinished, absent = results["cells"]
    assert first["values"] == [50.0, 52.0, 54.0]
    assert (first["mean"], first["standard_deviation"]) == (52.0, 2.0)
    assert (first["task"], first["stands_in_for"]) == ("mnli", "")
    assert broken["values"] == [50.0, None]
    assert broken["mean"] is broken["standard_deviation"] is None
    assert (broken["task"], broken["stands_in_for"]) == ("rte", "qnli")
    assert (other["degenerate"], other["num_seeds"]) == (1, 3)
    assert single["standard_deviation"] is None
    assert single["paper"] is None
    assert unfinished["values"] == absent["values"] == []
    assert [each["unfinished"] for each in results["comparisons"]] == [
        ["QNLI"],
        ["MNLI", "QNLI"],
    ]


HEADINGS = [
    *("Row", "MNLI", "MNLI, SD", "MNLI, paper"),
    *("QNLI (here rte)", "QNLI (here rte), paper"),
]


def test_the_markdown_table(partial):
    text = (partial / "table.md").read_text("utf-8")
    assert " 12/768/12 is 4/64/2" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    # A bar of a name ends no cell.
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]
    assert [len(each) for each in cells] == [6] * 6 + [7] * 3
    assert cells[0] == HEADINGS
    assert cells[2] == ["BERT", "52.0", "2.0", "84.4", "–", "88.4"]
    assert cells[3][1:] == ["46.0", "2.0", "83.9", "51.0", "–"]
    assert cells[5][0] == r"OpenAI \| GPT"
    assert cells[8][1:6] == ["MNLI", "-6", "-10.53, -1.466", "0.02131", "3, 3"]
    for part in (
        "the task rte is run in place of qnli",
        r"\<b\>a note\</b\>",
        "1 of 3",
        "Time of all runs: 1 h 44 min",
        r"- Command: bert-tf experiment --only='\`\`\` x'",
        # Only the dash of a list item begins a list.
        "- 123\\. of (10) rows\n- \\+ 1.5 + (0.4) is it\n",
    ):
        assert part in text
    assert "<script" not in re.sub(r"\\<", "", text)


def test_the_page(partial):
    page = Page((partial / "report.html").read_text("utf-8"))
    page.check()
    (picture,) = page.named("img")
    assert "The vertical line is BERT." in picture["alt"]
    table, differences, _, runs = page.tables()
    assert table[0] == HEADINGS
    assert table[1][1:] == ["52.0", "2.0", "84.4", "", "88.4"]
    assert table[2][1:] == ["46.0", "2.0", "83.9", "51.0", ""]
    assert differences[1][1:] == [
        *("MNLI", "-6", "-10.53, -1.466", "0.02131", "3, 3", "-0.5"),
    ]
    assert runs[1] == [
        *("BERT", "MNLI", "accuracy", "50, 52, 54", "0", "75"),
        *("runs/mnli-1", "bert-tf finetune --task=mnli"),
    ]
    # An unfinished run.
    assert runs[5][3:6] == ["none", "0", ""]
    for part in (
        "<script>alert('x')</script>",
        "<b>a note</b>",
        FACTS["command"],
        "MNLI: 1 of 3",
        "mnli ( num_train_epochs 2 ), mrpc (none)",
    ):
        assert " ".join(part.split()) in page.text


def sizes_table(paper=True) -> tuple[Experiment, dict]:
    """Table 6 with points that are close to one another."""
    numbers = {
        "3/768/12": (5.84, 77.9),
        "6/768/3": (5.24, 80.6),
        "12/768/12": (3.99, 84.4),
    }
    columns = ("Perplexity", "MNLI")
    table = experiment(
        numbers if paper else dict.fromkeys(numbers, (None, None)),
        columns,
        against="Perplexity",
        lower_is_better=["Perplexity"],
    )
    return table, {
        (row, column): result(
            (400.0 - 8 * index,)
            if column == "Perplexity"
            else tuple(50.0 + 0.2 * index + seed for seed in range(3))
        )
        for index, row in enumerate(numbers)
        for column in columns
    }


def test_an_experiment_of_a_user_shows_no_paper(tmp_path):
    table, numbers = sizes_table(paper=False)
    page = Page(write_report(table, numbers, {}, tmp_path).read_text("utf-8"))
    first, differences, *_ = page.tables()
    assert first[0] == ["Row", "Perplexity", "MNLI", "MNLI, SD"]
    assert len(differences) == 5
    for text in (page.text, (tmp_path / "table.md").read_text("utf-8")):
        assert not re.search(r"paper\b(?! \|$)", text, re.M | re.I)
    # Before any run is finished.
    drawn = pictures(table, {}, {column: column for column in table.columns})
    assert [name for name, each in drawn.items() if each.drawn()] == [
        "picture.svg",
        "picture_against.svg",
    ]


@pytest.mark.parametrize("kind", ["curves", "sizes"])
def test_figures_show_the_numbers(kind, monkeypatch):
    steps = ("30", "50")
    table = experiment(
        {"MLM": (78.6, 79.6), "LTR": (79.4, 79.8)}, steps, across="steps"
    )
    numbers = dict.fromkeys(itertools.product(table.rows, steps), result(BASE))
    if kind == "sizes":
        table, numbers = sizes_table()
    drawn = []
    real = figures._draw_panel
    monkeypatch.setattr(
        figures,
        "_draw_panel",
        lambda axes, *given, **more: (
            drawn.append(axes) or real(axes, *given, **more)
        ),
    )
    headings = {column: column for column in table.columns}

    def svgs(numbers):
        found = pictures(table, numbers, headings).items()
        return {name: drawing.drawn() for name, drawing in found}

    before = svgs(numbers)
    # A lower perplexity is drawn to the right, as in the paper.
    assert any(axes.xaxis_inverted() for axes in drawn) == (kind == "sizes")
    changed = table.rows[1], table.columns[1]
    after = svgs(numbers | {changed: result((30.0, 31.0, 40.0))})
    assert before.keys() == after.keys()
    for name, svg in after.items():
        assert ET.fromstring(svg).tag.endswith("svg")
        assert svg != before[name]


def test_curves_need_numeric_columns():
    with pytest.raises(UserError, match="'MNLI' is not a number"):
        experiment({"BERT": (84.4, 88.4)}, across="steps")
