"""What an experiment leaves: results.json, table.md, pictures, report.html."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.experiments.comparison import (
    comparisons,
    headings,
    mean,
    stand_in,
    standard_deviation,
    written,
)
from bert_tf.experiments.experiment import Cell, Experiment, Finetuning
from bert_tf.experiments.figures import pictures
from bert_tf.experiments.results import Found, Numbers
from bert_tf.experiments.running import duration
from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.files import write_text, written_beside
from bert_tf.report.render import environment
from bert_tf.report.texts import showable
from bert_tf.training.history import finite_values, write_numbers

# What Markdown takes for markup: a number or sign that makes a line one of a
# list, and some characters anywhere.
_MARKUP = re.compile(
    r"(^\d+)?((?(1)[.)](?=\s)|(?:^[-+]|[\\`*_{}\[\]<>|#~$&!])))"
)


def write_report(
    experiment: Experiment,
    numbers: Numbers,
    facts: Mapping[str, Any],
    output_dir: pathlib.Path,
) -> pathlib.Path:
    """Writes results.json, table.md, the pictures and report.html.

    The same numbers give the same bytes. Cells without values are not finished
    yet, and the report says so.

    Args:
      experiment: what was planned.
      numbers: what was found so far.
      facts: of the whole: experiment, scale, scale_description, command,
        machine, versions (by name), seconds, stand_ins (task to the task that
        is run in its place), sizes (the paper's to those here),
        scale_settings.
      output_dir: the folder of the experiment.

    Returns:
      The path of report.html.

    Raises:
      UserError: the libraries of pictures and pages are not installed; what
        needs none of them is written first.
    """
    results = experiment_results(experiment, numbers, facts)
    write_numbers(output_dir / RESULTS_FILE, results)
    results = finite_values(results)
    table = _table(results)
    about = _about(experiment, results)
    write_text(output_dir / "table.md", _markdown(results, table, about))
    drawn = pictures(experiment, numbers, results["headings"])
    for name, svg in drawn.items():
        with written_beside(output_dir / name) as beside:
            beside.write_bytes(svg)
    page = environment("bert_tf.experiments").get_template("page.html.jinja")
    html = page.render(
        results,
        table=table,
        about=about,
        made=_made(results["facts"]),
        duration=duration,
        pictures=list(drawn.values()),
    )
    write_text(output_dir / "report.html", html)
    return output_dir / "report.html"


def experiment_results(
    experiment: Experiment, numbers: Numbers, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What results.json holds: everything that the table and the page show."""
    stand_ins = facts.get("stand_ins", {})
    return {
        "title": experiment.title,
        "facts": dict(facts),
        "rows": experiment.rows,
        "columns": experiment.columns,
        "headings": headings(experiment, stand_ins),
        "reference": experiment.reference or experiment.rows[0],
        "paper_rows": experiment.paper_rows,
        "across": experiment.across,
        "against": experiment.against,
        "lower_is_better": list(experiment.lower_is_better),
        "cells": [
            _cell(cell, numbers.get((cell.row, cell.column)), stand_ins)
            for cell in experiment.cells
        ],
        "comparisons": [
            {
                "row": each.row,
                "reference": each.reference,
                "sentence": each.sentence(experiment),
                "columns": [
                    {
                        **dataclasses.asdict(difference),
                        "sign_agrees": difference.sign_agrees,
                        "is_significant": difference.is_significant,
                        "verdict": difference.verdict,
                    }
                    for difference in each.differences
                ],
                "unfinished": each.unfinished,
            }
            for each in comparisons(experiment, numbers, stand_ins)
        ],
        "notes": list(experiment.notes),
    }


def _cell(
    cell: Cell, found: Found | None, stand_ins: Mapping[str, str]
) -> dict[str, Any]:
    values = found.values if found else ()
    own = cell.run.task if isinstance(cell.run, Finetuning) else ""
    other = stand_in(cell, stand_ins)
    return {
        "row": cell.row,
        "column": cell.column,
        "values": list(values),
        "mean": mean(values),
        "standard_deviation": standard_deviation(values),
        "num_seeds": len(values),
        "degenerate": found.degenerate if found else 0,
        "paper": cell.paper,
        "score": cell.score,
        "split": cell.split,
        "factor": cell.factor,
        "task": other or own,
        "stands_in_for": own if other else "",
        "folder": found.folder if found else "",
        "command": found.command if found else "",
        "seconds": found.seconds if found else None,
    }


def _table(results: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By row what stands in each column: ours, the paper's, whose run."""
    places = {
        (cell["row"], cell["column"]): place
        for place, cell in enumerate(results["cells"])
    }
    factors = {cell["column"]: cell["factor"] for cell in results["cells"]}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in dict.fromkeys([*results["rows"], *results["paper_rows"]]):
        found[row] = []
        for column, factor in factors.items():
            place = places.get((row, column))
            cell = {} if place is None else results["cells"][place]
            paper = results["paper_rows"].get(row, {}).get(column)
            paper = cell.get("paper", paper)
            ours = written(cell.get("mean"), factor)
            if (spread := cell.get("standard_deviation")) is not None:
                ours += f" \u00b1 {written(spread, factor)}"
            found[row].append(
                {
                    "ours": ours,
                    "paper": "" if paper is None else written(paper, factor),
                    "is_degenerate": cell.get("degenerate", 0) > 0,
                    "place": place,
                }
            )
    return found


def _about(experiment: Experiment, results: Mapping[str, Any]) -> list[str]:
    """How the table and the sentences are to be read."""
    cells = results["cells"]
    lines = [
        f"Column {column}: the task {task} stands in for {own}, whose training "
        f"data are not there; the paper's numbers are of {own}."
        for column, task, own in dict.fromkeys(
            (cell["column"], cell["task"], cell["stands_in_for"])
            for cell in cells
        )
        if own
    ]
    sizes = [
        f"{paper} is {here}"
        for paper, here in results["facts"].get("sizes", {}).items()
        if paper != here
    ]
    if sizes:
        lines.append(
            "Models are smaller than the paper's; as layers/hidden size/heads "
            f"{', '.join(sizes)} here."
        )
    if any(cell["num_seeds"] > 1 for cell in cells):
        lines.append(
            "\u00b1 in the table: the sample standard deviation over the seeds "
            "of the fine-tuning."
        )
        if any(getattr(cell.run, "model", None) for cell in experiment.cells):
            lines[-1] += (
                " Of each model there is one pre-training; how far another one "
                "would be from it is not in this spread."
            )
    if results["comparisons"]:
        lines.append(
            "\u00b1 in the sentences: the standard error of the difference of "
            "two means. A difference counts where Welch's t-test of the seeds "
            "gives p < .05; otherwise it is within the spread."
        )
    degenerate = [
        f"{cell['row']}, {cell['column']}: {cell['degenerate']} of "
        f"{cell['num_seeds']}"
        for cell in cells
        if cell["degenerate"]
    ]
    if degenerate:
        lines.append(
            "\u2020 Seeds that did no better than the commonest label: "
            f"{'; '.join(degenerate)}."
        )
    return lines


def _made(facts: Mapping[str, Any]) -> dict[str, str]:
    """Where, when and with what the numbers were made, as far as it is told."""
    scale = (facts.get("scale"), facts.get("scale_description"))
    versions = facts.get("versions", {}).items()
    seconds = facts.get("seconds")
    made = {
        "Scale": ": ".join(filter(None, scale)),
        "Machine": facts.get("machine"),
        "Versions": ", ".join(f"{name} {value}" for name, value in versions),
        "Time of all runs": None if seconds is None else duration(seconds),
    }
    return {name: value for name, value in made.items() if value}


def _escaped(text: Any) -> str:
    """A text in a line of Markdown, without any markup of its own."""
    return _MARKUP.sub(r"\1\\\2", " ".join(showable(str(text)).split()))


def _markdown(
    results: Mapping[str, Any],
    table: Mapping[str, Sequence[Mapping[str, Any]]],
    about: Sequence[str],
) -> str:
    """The table and what is to be said of it, for a page on GitHub."""
    facts = results["facts"]
    names = map(_escaped, results["headings"].values())
    lines = [
        f"# {_escaped(results['title'])}",
        "",
        f"| {_escaped(results['across'])} | {' | '.join(names)} |",
        f"|---|{'---:|' * len(results['columns'])}",
    ]
    for row, cells in table.items():
        texts = [
            cell["ours"]
            + (" \u2020" if cell["is_degenerate"] else "")
            + (f"<br>paper {cell['paper']}" if cell["paper"] else "")
            for cell in cells
        ]
        lines.append(f"| {_escaped(row)} | {' | '.join(texts)} |")
    sections = {
        "": about,
        "Does the paper's order show?": [
            each["sentence"] for each in results["comparisons"]
        ],
        "Notes": results["notes"],
        "How it was made": [
            f"{name}: {value}" for name, value in _made(facts).items()
        ],
    }
    for title, items in sections.items():
        if items:
            lines += ["", *([f"## {title}", ""] if title else [])]
            lines += [f"- {_escaped(item)}" for item in items]
    if command := facts.get("command"):
        # The fence is longer than any in the command.
        fence = "`" * max([3, *(1 + len(x) for x in re.findall("`+", command))])
        lines += ["", fence, showable(command), fence]
    return "\n".join(lines) + "\n"
