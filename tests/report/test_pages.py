"""Pages that are rendered from plain numbers."""

import math
import pathlib
import re
import xml.etree.ElementTree as ET

import pytest

from bert_tf.finetuning.measured import Measured, write_measured_page
from bert_tf.report import figures
from bert_tf.report.formats import markdown, number, percent
from bert_tf.report.render import write_page
from bert_tf.report.sections import (
    Lines,
    ReportTable,
    Section,
    settings_section,
)
from bert_tf.report.sections import Page as PageOf
from tests.finetuning.report_pages import Page


def test_cells_are_plain_numbers() -> None:
    """What a spreadsheet reads: no separators, no other minus, no dash."""
    assert number(1234567) == "1234567"
    assert number(1234.56) == "1235"
    assert number(-0.123456) == "-0.1235"
    assert number(3.0) == "3"
    assert percent(0.12345) == "12.3"
    assert number(None) == number(math.nan) == percent(math.inf) == ""


def test_markdown_has_no_markup_of_values() -> None:
    assert markdown("- a *b* | c\n# d") == r"\- a \*b\* \| c \# d"
    assert markdown("12. -1 .5 1e-3") == r"12\. -1 .5 1e-3"


def test_models_side_by_side(tmp_path: pathlib.Path) -> None:
    models = {
        "teacher": Measured({"f1": 0.9, "x_perplexity": 3.5}, 12.0, 2000, 8000),
        "student": Measured(
            {"f1": 0.8, "x_perplexity": 5.0}, 1234.5, 1000, 4000, {"f1": 0.01}
        ),
    }
    path = tmp_path / "pruning.html"
    write_measured_page(path, "T", "C", models, "f1", ["a/report.html"])
    page = Page(path.read_text("utf-8"))
    page.check()
    (table,) = page.tables()
    assert table[0] == [
        *("Model", "F1", "X perplexity", "SD of F1"),
        *("Rows per second", "Parameters", "MB"),
    ]
    assert table[1:] == [
        ["teacher", "90", "3.5", "", "12", "2000", "0.008"],
        ["student", "80", "5", "1", "1234", "1000", "0.004"],
    ]
    assert "a/report.html" in [each["href"] for each in page.named("a")]
    svg = path.with_suffix(".svg").read_bytes()
    assert ET.fromstring(svg).tag.endswith("svg")


@pytest.mark.parametrize("steps", [[1, 2], [12], [25, 50, 75, 100]])
def test_whole_steps_and_dark_mode(monkeypatch, steps) -> None:
    values = [1 / step for step in steps]
    series = [{"seed": "", "steps": steps, "values": values}]
    panel = figures.learning_panel("loss", series, [], levels={"chance": 0.7})
    found = []
    real = figures._draw_panel

    def draw(axes, *given, **more):
        real(axes, *given, **more)
        axes.figure.draw_without_rendering()
        found.extend(axes.get_xticks())

    monkeypatch.setattr(figures, "_draw_panel", draw)
    svg = figures.Curves([panel]).drawn().decode()
    assert found
    assert all(float(tick).is_integer() for tick in found)
    # Every color of the figure has a replacement on dark pages.
    style, drawn = svg.split("</style>", 1)
    for color in ("#0072b2", "#5f6b76", "#323f4b", "#e4e7eb", "#9aa5b1"):
        assert f"stroke: {color}" in drawn or f"fill: {color}" in drawn
        assert f'[style*="stroke: {color}"]' in style
    assert "#ffffff" not in drawn
    assert "#000000" not in drawn


def test_a_page_of_values(tmp_path: pathlib.Path) -> None:
    setting = {"default": 1e-4, "help": "h", "changed": True}
    rows = [
        {"number": "<b>", "held_out": 345.6, "baseline": None},
        {"number": "a | b", "held_out": 1234567, "baseline": 0.5},
    ]
    page = PageOf(
        "BERT <pre-training>",
        {"records": "12,345", "masked_lm_perplexity": 345.64},
        [
            Section("scores", "Scores", [ReportTable("Losses", rows)]),
            Section("none", "Empty", [ReportTable("c", []), Lines([])]),
            settings_section([{"name": "rate", "value": 1e-3} | setting]),
        ],
        "The foot",
    )
    write_page(tmp_path / "page.html", page)
    drawn = Page((tmp_path / "page.html").read_text("utf-8"))
    drawn.check()
    facts = "Records 12,345 Masked LM perplexity 345.6 Scores Recipe"
    assert facts in drawn.text
    scores, settings = drawn.tables()
    assert scores == [
        ["Number", "Held out", "Baseline"],
        ["<b>", "345.6", ""],
        ["a | b", "1234567", "0.5"],
    ]
    assert settings[1] == ["rate", "0.001", "0.0001", "h"]
    # Numbers are right-aligned, and the words are not.
    styles = [each.get("class") for each in drawn.named("th")][:3]
    assert styles == [None, "number", "number"]
    write_page(tmp_path / "page.md", page)
    lines = (tmp_path / "page.md").read_text("utf-8").splitlines()
    assert lines[0] == r"# BERT \<pre-training\>"
    assert r"| \<b\> | 345.6 | – |" in lines
    assert r"| a \| b | 1234567 | 0.5 |" in lines


def test_only_the_kit_renders_and_draws() -> None:
    root = pathlib.Path(__file__).parents[2] / "bert_tf"
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(
            r"import jinja2|import_matplotlib\(|from matplotlib",
            path.read_text("utf-8"),
        )
    }
    assert found == {"libraries.py", "report/figures.py", "report/render.py"}
