"""What an experiment leaves, and what it says of the paper's order."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
import xml.etree.ElementTree as ET

import pytest

from bert_tf.errors import UserError
from bert_tf.experiments import (
    Cell,
    Experiment,
    Finetuning,
    Pretraining,
    figures,
)
from bert_tf.experiments.comparison import Comparison, comparisons, written
from bert_tf.experiments.report import write_report
from bert_tf.experiments.results import Found
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
    "command": "python -m tools.run_experiment --only='``` x'",
    "machine": "2 cores",
    "versions": {"tensorflow": "2.21.0"},
    "seconds": 6240,
    "stand_ins": {"qnli": "rte"},
    "sizes": {"12/768/12": "4/64/2", "2/128/2": "2/128/2"},
}


def found(values: tuple[float, ...], degenerate: int = 0) -> Found:
    return Found(
        values=values,
        degenerate=degenerate,
        task="mnli",
        folder="runs/mnli-1",
        command="python -m tools.run_finetuning --task=mnli",
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


def compare(table: Experiment, numbers: dict) -> Comparison:
    """The only row beside the reference row."""
    (only,) = comparisons(table, numbers, FACTS["stand_ins"])
    return only


@pytest.mark.parametrize(
    ("values", "paper", "ours", "standard_error", "p_value", "verdict"),
    [
        # Variances 4 and 4 of 3: sqrt(4/3 + 4/3). The p-values are those of
        # scipy 1.17.1, stats.ttest_ind(equal_var=False).
        ((44.0, 46.0, 48.0), 83.4, -6.0, 1.632993, 0.021312, "shows"),
        ((44.0, 46.0, 48.0), 85.4, -6.0, 1.632993, 0.021312, "reversed"),
        # More than two standard errors, which is no difference of three seeds.
        (
            (46.0, 48.0, 50.0),
            83.4,
            -4.0,
            1.632993,
            0.070484,
            "within the spread",
        ),
        # Variance 1: sqrt(4/3 + 1/3).
        (
            (50.0, 51.0, 52.0),
            83.4,
            -1.0,
            1.290994,
            0.496055,
            "within the spread",
        ),
        (
            (50.0, 51.0, 52.0),
            84.4,
            -1.0,
            1.290994,
            0.496055,
            "tie in the paper",
        ),
        # One seed has no spread, whatever the other row has.
        ((48.0,), 83.4, -4.0, None, None, "one run, agrees"),
        ((48.0,), 85.4, -4.0, None, None, "one run, reversed"),
        ((52.0,), 85.4, 0.0, None, None, "within the spread"),
    ],
)
def test_a_difference_by_hand(
    values, paper, ours, standard_error, p_value, verdict
):
    table = experiment({"BERT": (84.4,), "No NSP": (paper,)}, ("MNLI",))
    numbers = {("BERT", "MNLI"): found(BASE), ("No NSP", "MNLI"): found(values)}
    (difference,) = compare(table, numbers).differences
    assert difference.paper == round(paper - 84.4, 6)
    assert difference.ours == ours
    assert difference.standard_error == standard_error
    assert difference.p_value == p_value
    assert difference.verdict == verdict
    # What did not learn the task says nothing of the pre-training.
    numbers = {
        place: found(x.values, len(x.values)) for place, x in numbers.items()
    }
    (difference,) = compare(table, numbers).differences
    assert difference.verdict == "not learned"


def test_the_sentence_of_a_row():
    columns = ("MNLI", "QNLI", "MRPC", "Perplexity", "SQuAD")
    table = experiment(
        {
            "LTR": (82.1, 84.3, 77.5, 5.0, 77.8),
            "BERT": (84.4, 88.4, 86.7, 4.0, None),
        },
        columns,
        reference="BERT",
        lower_is_better=["Perplexity"],
    )
    numbers = {("BERT", column): found(BASE) for column in columns}
    numbers |= {
        ("LTR", "MNLI"): found((44.0, 46.0, 48.0)),
        ("LTR", "QNLI"): found((56.0, 58.0, 60.0)),
        ("LTR", "MRPC"): found((50.0, 51.0, 52.0)),
        ("LTR", "Perplexity"): found((62.0,)),
        ("LTR", "SQuAD"): found((10.0,)),
    }
    assert compare(table, numbers).sentence(table) == (
        "LTR against BERT: the paper's order shows in 1 of 3 columns: worse in "
        "MNLI (\u22126.0 \u00b1 1.6); it is reversed: better in QNLI (rte "
        "here, +6.0 \u00b1 1.6); the difference is within the spread in MRPC "
        "(\u22121.0 \u00b1 1.3); as in the paper, but by one run each: worse "
        "in Perplexity (+10.0)."
    )
    del numbers["LTR", "QNLI"], numbers["BERT", "Perplexity"]
    numbers["LTR", "MRPC"] = found(())
    assert compare(table, numbers).sentence(table) == (
        "LTR against BERT: the paper's order shows in 1 of 1 column: worse in "
        "MNLI (\u22126.0 \u00b1 1.6); QNLI, MRPC and Perplexity: not finished."
    )


def test_the_sentence_of_a_curve():
    steps = ("30", "50", "100", "200", "400")
    table = experiment(
        {
            "MLM": (78.6, 79.6, 80.5, 82.2, 83.2),
            "LTR": (79.4, 79.8, 80.3, 81.0, 83.2),
        },
        steps,
        across="steps (thousands)",
    )
    numbers = {("MLM", step): found(BASE) for step in steps}
    values = (56.0, 58.0, 60.0), BASE, (44.0, 46.0, 48.0), (44.0, 46.0, 48.0)
    for step, each in zip(steps, (*values, (40.0,)), strict=True):
        numbers["LTR", step] = found(each)
    assert compare(table, numbers).sentence(table) == (
        "LTR against MLM: the paper's order shows in 3 of 4 columns; in the "
        "paper it is above at 30 to 50, below at 100 to 200, equal at 400; "
        "here it is above at 30, within the spread at 50, below at 100 to 200, "
        "below, by one run each, at 400."
    )


@pytest.mark.parametrize(
    ("value", "factor", "text"),
    [
        (84.449, 100.0, "84.4"),
        (5.844, 1.0, "5.84"),
        (312.44, 1.0, "312.4"),
        (12345.6, 1.0, "12,346"),
        (float("nan"), 100.0, "\u2013"),
    ],
)
def test_numbers_as_tables_print_them(value, factor, text):
    assert written(value, factor) == text


@pytest.fixture(scope="module")
def partial(tmp_path_factory) -> pathlib.Path:
    """The folder of a table with what a long run may leave half done."""
    folder = tmp_path_factory.mktemp("partial")
    table = experiment(
        {"BERT": (84.4, 88.4), HOSTILE: (83.9, None), "LTR": (82.1, 84.3)},
        paper_rows={"OpenAI | GPT": {"MNLI": 82.1}},
        notes=["<b>a note</b>", "123. of (10) rows", "+ 1.5 + (0.4) is it"],
    )
    numbers = {
        ("BERT", "MNLI"): found(BASE),
        ("BERT", "QNLI"): found((50.0, float("nan"))),
        (HOSTILE, "MNLI"): found((44.0, 46.0, 48.0), degenerate=1),
        (HOSTILE, "QNLI"): found((51.0,)),
        ("LTR", "MNLI"): found(()),
    }
    page = write_report(table, numbers, FACTS, folder)
    before = {each: each.read_bytes() for each in folder.iterdir()}
    # The same numbers give the same bytes, and nothing is left beside them.
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
        [],
        ["MNLI", "QNLI"],
    ]


def test_the_table(partial):
    text = (partial / "table.md").read_text("utf-8")
    assert "layers/hidden size/heads 12/768/12 is 4/64/2 here." in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    # A bar of a name ends no cell.
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    assert {len(each) for each in cells} == {3}
    assert cells[0][2].strip() == r"QNLI (here rte)"
    assert [each.strip() for each in cells[2]] == [
        "BERT",
        "52.0 \u00b1 2.0<br>paper 84.4",
        "\u2013<br>paper 88.4",
    ]
    assert [each.strip() for each in cells[3][1:]] == [
        "46.0 \u00b1 2.0 \u2020<br>paper 83.9",
        "51.0",
    ]
    assert [each.strip() for each in cells[5]] == [
        r"OpenAI \| GPT",
        "\u2013<br>paper 82.1",
        "\u2013",
    ]
    for part in (
        "the task rte stands in for qnli",
        r"\<b\>a note\</b\>",
        "1 of 3",
        "Time of all runs: 1 h 44 min",
        f"\n````\n{FACTS['command']}\n````\n",
    ):
        assert part in text
    assert "<script" not in re.sub(r"\\<", "", text)
    # Lists begin with a line alone.
    assert "- 123\\. of (10) rows\n- \\+ 1.5 + (0.4) is it\n" in text


def test_the_page_is_complete_and_needs_nothing(partial):
    source = (partial / "report.html").read_text("utf-8")
    page = Page(source)
    assert not page.named("script")
    assert not page.named("link")
    assert page.named("meta")[1]["content"].startswith("default-src 'none'")
    assert "url(" not in source
    (picture,) = page.named("img")
    assert picture["src"].startswith("data:image/svg+xml;base64,")
    assert "BERT as a dashed line" in picture["alt"]
    # Numbers lead to their runs, and the contents to sections.
    names = [each["id"] for _, each in page.tags if "id" in each]
    links = [each["href"] for each in page.named("a")]
    assert len(set(names)) == len(names) == len(links)
    assert {link[1:] for link in links} == set(names)
    for part in (
        "<script>alert('x')</script>",
        "<b>a note</b>",
        FACTS["command"],
        "52.0 \u00b1 2.0",
        "python -m tools.run_finetuning --task=mnli",
        "1 min 15 s",
        "1 of 3 no better than the commonest label",
        "Not finished.",
        "mnli ( num_train_epochs 2.0 ), mrpc (–)",
    ):
        assert " ".join(part.split()) in page.text


def sizes_table() -> tuple[Experiment, dict]:
    """Table 6 with points that lie close to one another."""
    paper = {
        "3/768/12": (5.84, 77.9),
        "6/768/3": (5.24, 80.6),
        "6/768/12": (4.68, 81.9),
        "12/768/12": (3.99, 84.4),
        "12/1024/16": (3.54, 85.7),
        "24/1024/16": (3.23, 86.6),
    }
    columns = ("Perplexity", "MNLI")
    table = experiment(
        paper, columns, against="Perplexity", lower_is_better=["Perplexity"]
    )
    numbers = {
        (row, column): found(
            (400.0 - 8 * place,)
            if column == "Perplexity"
            else tuple(50.0 + 0.2 * place + seed for seed in range(3))
        )
        for place, row in enumerate(paper)
        for column in columns
    }
    return table, numbers


def test_a_lower_perplexity_is_drawn_to_the_right(monkeypatch):
    kept = []
    real = figures.drawing

    @contextlib.contextmanager
    def drawing(*given):
        with real(*given) as axes:
            yield axes
            kept.append(axes)

    monkeypatch.setattr(figures, "drawing", drawing)
    table, numbers = sizes_table()
    drawn = figures.pictures(
        table, numbers, {column: column for column in table.columns}
    )
    assert list(drawn) == ["picture.svg", "picture_against.svg"]
    assert [axes.xaxis_inverted() for axes in kept[1]] == [True, True]


@pytest.mark.parametrize("kind", ["curves", "sizes"])
def test_pictures_show_the_numbers(kind):
    steps = ("30", "50")
    table = experiment(
        {"MLM": (78.6, 79.6), "LTR": (79.4, 79.8)}, steps, across="steps"
    )
    numbers = dict.fromkeys(itertools.product(table.rows, steps), found(BASE))
    if kind == "sizes":
        table, numbers = sizes_table()
    headings = {column: column for column in table.columns}
    before = figures.pictures(table, numbers, headings)
    place = table.rows[1], table.columns[1]
    after = figures.pictures(
        table, numbers | {place: found((30.0, 31.0, 40.0))}, headings
    )
    assert before.keys() == after.keys()
    for name, svg in after.items():
        assert ET.fromstring(svg).tag.endswith("svg")
        assert svg != before[name]
    # Before anything is finished, of numbers that no paper has.
    cells = [dataclasses.replace(cell, paper=None) for cell in table.cells]
    own = dataclasses.replace(table, cells=cells)
    assert figures.pictures(own, {}, headings).keys() == after.keys()
    assert comparisons(own, numbers, {}) == []


def test_curves_need_numbers_to_be_drawn_over():
    with pytest.raises(UserError, match="'MNLI' is no number"):
        experiment({"BERT": (84.4, 88.4)}, across="steps")
