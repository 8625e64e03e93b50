"""The table of an experiment: results.json, table.md, figures and page."""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.experiments.experiment import Cell, Experiment, Finetuning
from bert_tf.experiments.running import duration
from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.files import written_beside
from bert_tf.report import figures
from bert_tf.report.formats import inline, words
from bert_tf.report.render import REPORT_FILE, write_page
from bert_tf.report.sections import (
    Column,
    Figure,
    Lines,
    Page,
    ReportTable,
    Section,
    fact_table,
)
from bert_tf.training.history import finite_values, write_numbers

TABLE_FILE = "table.md"
_DECIMALS = 6
_CONFIDENCE = 0.95
# Points of the numerical integration of Student's distribution.
_POINTS = 400
_PANELS_PER_LINE = 5
# The numbers of a cell, and what their columns are called.
_KINDS = {"mean": "", "standard_deviation": ", SD", "paper": ", paper"}
_MADE = ("scale", "scale_description", "command", "machine", "versions")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
    """The scores of the run of a cell.

    Attributes:
      values: the score of each seed, times the cell's factor; empty if the run
        is not finished.
      degenerate: number of seeds no better than the most frequent label.
      folder: the folder of the run.
      command: the command of the run.
      seconds: duration of the run; None if it is not finished.
    """

    values: tuple[float, ...]
    degenerate: int
    folder: str
    command: str
    seconds: float | None


# By row and column.
Numbers = Mapping[tuple[str, str], CellResult]


def mean(values: Sequence[float]) -> float | None:
    """The mean; None without values or if one of them is not finite."""
    if not values or not all(map(math.isfinite, values)):
        return None
    return statistics.fmean(values)


def standard_deviation(values: Sequence[float]) -> float | None:
    """That of the sample (n - 1); None for fewer than two finite values."""
    if len(values) < 2 or mean(values) is None:
        return None
    return statistics.stdev(values)


def written(value: float | None, factor: float) -> str:
    """A number of a table: one decimal if it is a share x 100.

    Other numbers, such as perplexities, have about three digits. A missing
    number is empty.
    """
    if value is None or not math.isfinite(value):
        return ""
    size = abs(value)
    decimals = 1 if factor == 100 or 10 <= size < 1000 else 2 * (size < 10)
    return f"{value:.{decimals}f}"


def _stand_in(cell: Cell, stand_ins: Mapping[str, str]) -> str:
    """The task that is run in place of the cell's; empty if none."""
    if not isinstance(cell.run, Finetuning):
        return ""
    return stand_ins.get(cell.run.task, "")


def comparisons(
    experiment: Experiment, numbers: Numbers, stand_ins: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The differences between each row and the reference row.

    Returns:
      For each other row "row", "reference", "unfinished" (the columns in which
      a run is not finished), and "columns", a dict for each finished column:
      "column", "stand_in" (the task that is run in its place), "paper" (the
      difference of the paper's numbers, or None), "num_seeds" of both rows,
      "factor", "lower_is_better", "is_degenerate" (whether no seed of either
      row is better than the most frequent label), and the values of `_welch`.
    """
    cells = {(cell.row, cell.column): cell for cell in experiment.cells}
    reference = experiment.reference or experiment.rows[0]
    found = []
    for row in experiment.rows:
        columns: list[dict[str, Any]] = []
        unfinished = []
        for column in experiment.columns:
            cell = cells.get((row, column))
            base = cells.get((reference, column))
            if cell is None or base is None or row == reference:
                continue
            both = [numbers.get((name, column)) for name in (row, reference)]
            pair = [x for x in both if x and mean(x.values) is not None]
            if len(pair) < 2:
                unfinished.append(column)
                continue
            paper = None
            if cell.paper is not None and base.paper is not None:
                paper = round(cell.paper - base.paper, _DECIMALS)
            columns.append(
                {
                    "column": column,
                    "stand_in": _stand_in(cell, stand_ins),
                    "paper": paper,
                    **_welch(*(each.values for each in pair)),
                    "num_seeds": [len(each.values) for each in pair],
                    "factor": cell.factor,
                    "lower_is_better": column in experiment.lower_is_better,
                    "is_degenerate": all(
                        each.degenerate == len(each.values) for each in pair
                    ),
                }
            )
        if columns or unfinished:
            found.append(
                {
                    "row": row,
                    "reference": reference,
                    "columns": columns,
                    "unfinished": unfinished,
                }
            )
    return found


def _welch(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Compares two means without assuming equal variances (Welch 1947).

    Returns:
      "ours", the difference; "standard_error", the 95 % confidence "interval"
      and the two-sided "p_value" with the degrees of freedom of Satterthwaite
      1946, which are None if one of the two has a single value.
    """
    ours = statistics.fmean(first) - statistics.fmean(second)
    found: dict[str, Any] = {"ours": round(ours, _DECIMALS)}
    if min(len(first), len(second)) < 2:
        return found | dict.fromkeys(("standard_error", "interval", "p_value"))
    parts = [statistics.variance(v) / len(v) for v in (first, second)]
    error, reach, p_value = math.sqrt(sum(parts)), 0.0, 0.0 if ours else 1.0
    if error:
        degrees = sum(parts) ** 2 / sum(
            part**2 / (len(v) - 1)
            for part, v in zip(parts, (first, second), strict=True)
        )
        p_value = two_sided_p_value(ours / error, degrees)
        reach = error * _critical_value(degrees)
    return found | {
        "standard_error": round(error, _DECIMALS),
        "interval": [round(ours + x, _DECIMALS) for x in (-reach, reach)],
        "p_value": round(p_value, _DECIMALS),
    }


def two_sided_p_value(t: float, degrees: float) -> float:
    """The probability of a larger |t| under Student's t distribution.

    With t = sqrt(n) tan(x) the density is cos(x) ** (n - 1), which is
    integrated by Simpson's rule.

    Args:
      t: the statistic.
      degrees: the degrees of freedom, n >= 1.
    """

    def integral(first: float, last: float) -> float:
        width = (last - first) / _POINTS
        heights = [
            max(math.cos(first + width * k), 0.0) ** (degrees - 1)
            for k in range(_POINTS + 1)
        ]
        inner = 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
        return (heights[0] + inner + heights[-1]) * width / 3

    angle = math.atan(abs(t) / math.sqrt(degrees))
    return integral(angle, math.pi / 2) / integral(0.0, math.pi / 2)


def _critical_value(degrees: float) -> float:
    """The |t| whose two-sided p-value is 1 - 95 %, by bisection."""
    # That of one degree of freedom, the largest one, is 12.71.
    low, high = 0.0, 13.0
    for _ in range(40):
        middle = (low + high) / 2
        if two_sided_p_value(middle, degrees) > 1 - _CONFIDENCE:
            low = middle
        else:
            high = middle
    return low


def write_report(
    experiment: Experiment,
    numbers: Numbers,
    facts: Mapping[str, Any],
    output_dir: pathlib.Path,
) -> pathlib.Path:
    """Writes results.json, table.md, the figures and report.html.

    The same numbers give the same bytes. Cells without values are not finished.

    Args:
      experiment: the experiment.
      numbers: the results so far.
      facts: experiment, scale, scale_description, command, machine, versions
        (by name), seconds, stand_ins (task to the task that is run in its
        place), sizes (the paper's to those of the scale), scale_settings.
      output_dir: the folder of the experiment.

    Returns:
      The path of report.html.

    Raises:
      UserError: the libraries of figures and pages are not installed;
        results.json is written first.
    """
    results = experiment_results(experiment, numbers, facts)
    write_numbers(output_dir / RESULTS_FILE, results)
    results = finite_values(results)
    drawn = pictures(experiment, numbers, results["headings"])
    for name, drawing in drawn.items():
        with written_beside(output_dir / name) as beside:
            beside.write_bytes(drawing.drawn())
    facts = results["facts"]
    across, reference = results["across"], results["reference"]
    caption = (
        f"Over {across}." if across else f"The vertical line is {reference}."
    ) + (
        " Bars and bands are standard deviations over the seeds, small circles "
        "single seeds."
    )
    page = Page(
        experiment.title,
        {name: facts[name] for name in _MADE if facts.get(name)}
        | {"time of all runs": duration(facts.get("seconds", 0))},
        [
            Section(
                "table",
                "Table",
                [_table(results), Lines(_about(experiment, results))],
            ),
            Section(
                "differences",
                f"Differences from {reference}",
                _differences(results),
            ),
            Section("notes", "Notes", [Lines(results["notes"])]),
        ],
        "Every number on this page is in results.json next to it.",
    )
    write_page(output_dir / TABLE_FILE, page)
    cells = ("row", "column", "score", "split", "values", "degenerate")
    runs = ReportTable(
        "The run of each cell of the table",
        results["cells"],
        columns=[
            Column(key, words(key))
            for key in (*cells, "seconds", "folder", "command")
        ],
        is_wide=True,
    )
    more = [
        Section(
            "figures",
            "Figures",
            [Figure(each, caption, is_wide=True) for each in drawn.values()],
        ),
        Section(
            "settings",
            "Settings of the scale",
            [fact_table("Settings", facts.get("scale_settings", {}))],
        ),
        Section("runs", "Runs", [runs]),
    ]
    page = page._replace(sections=[*page.sections, *more])
    write_page(output_dir / REPORT_FILE, page)
    return output_dir / REPORT_FILE


def experiment_results(
    experiment: Experiment, numbers: Numbers, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of results.json: all numbers of the table and the page."""
    stand_ins = facts.get("stand_ins", {})
    headings = {column: column for column in experiment.columns}
    for cell in experiment.cells:
        if task := _stand_in(cell, stand_ins):
            headings[cell.column] = f"{cell.column} (here {task})"
    return {
        "title": experiment.title,
        "facts": dict(facts),
        "rows": experiment.rows,
        "columns": experiment.columns,
        "headings": headings,
        "reference": experiment.reference or experiment.rows[0],
        "paper_rows": experiment.paper_rows,
        "across": experiment.across,
        "against": experiment.against,
        "lower_is_better": list(experiment.lower_is_better),
        "cells": [
            _cell(cell, numbers.get((cell.row, cell.column)), stand_ins)
            for cell in experiment.cells
        ],
        "comparisons": comparisons(experiment, numbers, stand_ins),
        "notes": list(experiment.notes),
    }


def _cell(
    cell: Cell, found: CellResult | None, stand_ins: Mapping[str, str]
) -> dict[str, Any]:
    values = found.values if found else ()
    own = cell.run.task if isinstance(cell.run, Finetuning) else ""
    other = _stand_in(cell, stand_ins)
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


def _table(results: Mapping[str, Any]) -> ReportTable:
    """Our number, its spread and the paper's of each cell."""
    cells = {(cell["row"], cell["column"]): cell for cell in results["cells"]}
    factors = {cell["column"]: cell["factor"] for cell in results["cells"]}
    papers = results["paper_rows"]
    rows = []
    for row in dict.fromkeys([*results["rows"], *papers]):
        shown: dict[Any, str] = {None: row}
        for column, factor in factors.items():
            cell = {"paper": papers.get(row, {}).get(column)}
            cell |= cells.get((row, column), {})
            for kind in _KINDS:
                shown[column, kind] = written(cell.get(kind), factor)
        rows.append(shown)
    columns = [
        Column((column, kind), heading + name, str)
        for column, heading in results["headings"].items()
        for kind, name in _KINDS.items()
    ]
    first = Column(None, results["across"] or "Row", inline)
    return ReportTable(
        "Means and standard deviations (SD) over the seeds",
        rows,
        columns=[first, *columns],
        is_wide=True,
    )


def _differences(results: Mapping[str, Any]) -> list[ReportTable | Lines]:
    """The differences from the reference row."""
    rows = [
        {"row": each["row"], **column}
        for each in results["comparisons"]
        for column in each["columns"]
    ]
    keys = ("row", "column", "ours", "interval", "p_value", "num_seeds")
    note = (
        "Interval: the 95 % confidence interval of the difference of two means "
        "with unequal variances (Welch 1947), not corrected for the number of "
        "comparisons; a single seed has none."
    )
    columns = [Column(key, words(key)) for key in (*keys, "paper")]
    unfinished = [
        f"Not finished: {each['row']} in {', '.join(each['unfinished'])}."
        for each in results["comparisons"]
        if each["unfinished"]
    ]
    table = ReportTable(
        "Differences of the means", rows, columns=columns, note=note
    )
    return [table, Lines(unfinished)]


def _about(experiment: Experiment, results: Mapping[str, Any]) -> list[str]:
    """Notes on how to read the table."""
    cells = results["cells"]
    lines = [
        f"Column {column}: the task {task} is run in place of {own}, whose "
        f"training data are missing; the paper's numbers are those of {own}."
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
            "Models are smaller at this scale; as layers/hidden size/heads "
            f"{', '.join(sizes)}."
        )
    if any(cell["num_seeds"] > 1 for cell in cells):
        line = (
            "The standard deviation is that of the sample (n - 1) over the "
            "seeds of the fine-tuning."
        )
        if any(getattr(cell.run, "model", None) for cell in experiment.cells):
            line += (
                " Each model is pre-trained once, so the variation between "
                "pre-trainings is not included."
            )
        lines.append(line)
    degenerate = [
        f"{cell['row']}, {cell['column']}: {cell['degenerate']} of "
        f"{cell['num_seeds']}"
        for cell in cells
        if cell["degenerate"]
    ]
    if degenerate:
        lines.append(
            "Seeds that are no better than the most frequent label: "
            f"{'; '.join(degenerate)}."
        )
    return lines


def pictures(
    experiment: Experiment, numbers: Numbers, headings: Mapping[str, str]
) -> dict[str, figures.Curves]:
    """The figures of an experiment, by file name.

    The paper's numbers have panels of their own: at a small scale they are far
    from ours, and the order of the rows is what is compared.

    Args:
      experiment: the experiment.
      numbers: our results.
      headings: column to its heading.
    """
    paper = {
        (cell.row, cell.column): cell.paper
        for cell in experiment.cells
        if cell.paper is not None
    }
    for row, numbers_of_row in experiment.paper_rows.items():
        paper |= {(row, name): x for name, x in numbers_of_row.items()}
    rows = list(dict.fromkeys([*experiment.rows, *experiment.paper_rows]))
    values = {key: each.values for key, each in numbers.items()}
    ours = {key: mean(each) for key, each in values.items()}
    spreads = {key: standard_deviation(each) for key, each in values.items()}
    titles: dict[str, Mapping[tuple[str, str], float | None]] = {"": ours}
    if paper:
        titles = {"here": ours, "in the paper": paper}

    def label(column: str, is_paper: bool) -> str:
        name = column if is_paper else headings[column]
        is_lower = column in experiment.lower_is_better
        return f"{name}\n(lower is better)" if is_lower else name

    def curve(
        number: int, row: str, source: Mapping[Any, Any], columns: list[Any]
    ) -> figures.Curve:
        known = [
            (across, (row, column))
            for across, column in columns
            if source.get((row, column)) is not None and across is not None
        ]
        is_paper = source is paper
        return figures.Curve(
            row,
            [across for across, _ in known],
            [source[key] for _, key in known],
            [0 if is_paper else spreads.get(key) or 0 for _, key in known],
            color=number,
            style="points"
            if not experiment.across
            else ("dashed" if is_paper else "marked"),
        )

    if experiment.across:
        unit = ", x 100" if experiment.cells[0].factor == 100 else ""
        steps = [(float(column), column) for column in experiment.columns]
        over_steps = [
            figures.Panel(
                [curve(n, row, of, steps) for n, row in enumerate(rows)],
                experiment.across,
                experiment.cells[0].score.replace("_", " ") + unit,
                title,
            )
            for title, of in titles.items()
        ]
        drawn = figures.Curves(over_steps, (4.4, 3.6), len(over_steps))
        return {"picture.svg": drawn}
    reference = experiment.reference or rows[0]
    # Lines of panels of equal length.
    columns = experiment.columns
    length = math.ceil(
        len(columns) / math.ceil(len(columns) / _PANELS_PER_LINE)
    )
    panels: list[figures.Panel | None] = []
    for title, of in titles.items():
        is_paper = of is paper
        for column in columns:
            keys = [(row, column) for row in rows]
            curves = figures.named_curves(
                [of.get(key) for key in keys],
                [None if is_paper else spreads.get(key) for key in keys],
                [() if is_paper else values.get(key, ()) for key in keys],
                color=int(is_paper),
            )
            panels.append(
                figures.Panel(
                    curves,
                    "",
                    title=f"{label(column, is_paper)}\n{title}".strip(),
                    lines={reference: of.get((reference, column))},
                    names=rows,
                    is_reversed=column in experiment.lower_is_better,
                )
            )
        panels += [None] * (-len(panels) % length)
    found = {"picture.svg": figures.Curves(panels, (1.9, 0), length)}
    if experiment.against and len(columns) > 1:
        against = experiment.against
        others = [column for column in columns if column != against]
        against_panels = [
            figures.Panel(
                [
                    curve(n, row, of, [(of.get((row, against)), column)])
                    for n, row in enumerate(rows)
                ],
                label(against, of is paper),
                label(column, of is paper),
                title,
                is_reversed=against in experiment.lower_is_better,
            )
            for title, of in titles.items()
            for column in others
        ]
        found["picture_against.svg"] = figures.Curves(
            against_panels, (3.3, 2.9), len(others)
        )
    return found
