"""The page of a report: one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.report.doctor import doctor_section
from bert_tf.finetuning.report.html import (
    hundredths,
    inline,
    model_named,
    named,
    number,
    section,
    shown,
    table,
)
from bert_tf.finetuning.report.kind import Kind
from bert_tf.finetuning.report.scores import (
    curves_section,
    scores_section,
    seeds_section,
)
from bert_tf.finetuning.report.style import STYLE

# The page runs nothing and fetches nothing, whatever a text tries.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_FACTS = {
    "num_parameters": ("Parameters of the model", ""),
    "num_train_steps": ("Training steps", ""),
    "best_step": ("Step of the model that was kept", ""),
    "stopped_early": ("Stopped early", ""),
    "threshold": ("Threshold", ""),
    "train_seconds": ("Training time", " s"),
    "examples_per_second": ("Training speed", " examples/s"),
    "eval_examples_per_second": ("Evaluation speed", " examples/s"),
}
_CONTENTS = {
    "scores": "Scores",
    "seeds": "Seeds",
    "curves": "Curves",
    "answers": "Answers",
    "null_odds": "No answer",
    "calibration": "Calibration",
    "mistakes": "Mistakes",
    "doctor": "Data",
    "recipe": "Recipe",
    "speed": "Speed",
}


def page(numbers: Mapping[str, Any], kind: Kind) -> str:
    """The whole page.

    Args:
      numbers: from `report_numbers`.
      kind: what kind the task is of.
    """
    sections = [
        scores_section(numbers, kind),
        seeds_section(numbers),
        curves_section(numbers),
        *kind.sections(numbers),
        doctor_section(numbers["doctor"]),
        _recipe(numbers["settings"]),
        _speed(numbers["facts"], kind),
    ]
    body = "\n".join(each for each in sections if each)
    contents = "".join(
        f'<a href="#{identifier}">{title}</a>'
        for identifier, title in _CONTENTS.items()
        if f'<section id="{identifier}">' in body
    )
    # A title takes no elements: these marks isolate the name's direction.
    title = f"\u2068{shown(numbers['task'])}\u2069: fine-tuning report"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, '
        f'initial-scale=1">\n<title>{title}</title>\n<style>\n{STYLE}\n'
        "</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{inline(numbers['task'])}: fine-tuning report</h1>\n"
        f"{_introduction(numbers, kind)}\n{_tiles(numbers, kind)}\n"
        f'<nav aria-label="Contents">{contents}</nav>\n</header>\n<main>\n'
        f"{body}\n</main>\n<footer>Every number on this page is in "
        "report.json beside it.</footer>\n</body>\n</html>\n"
    )


def _introduction(numbers: Mapping[str, Any], kind: Kind) -> str:
    sizes = ", ".join(
        f"{count:,} {shown(split)} {kind.unit}"
        for split, count in numbers["examples"].items()
    )
    parts = [f"Started from {inline(numbers['model'])}", sizes]
    if numbers["finished"]:
        parts.append(f"finished {shown(numbers['finished'])}")
    return f"<p>{'; '.join(part for part in parts if part)}.</p>"


def _tiles(numbers: Mapping[str, Any], kind: Kind) -> str:
    """The few numbers to see first."""
    main = next(
        each
        for each in numbers["scores"]
        if each["metric"] == numbers["main_metric"]
    )
    metric = f"{named(main['metric'])}, {named(main['split'])}"
    tiles = [
        (metric, hundredths(main["value"]), "x 100, this model"),
        (
            "Baseline",
            hundredths(main["majority"]),
            kind.baseline(numbers["labels"]),
        ),
    ]
    tiles += [
        (model_named(model), hundredths(value), kind.published)
        for model, value in main["paper"].items()
    ]
    if "calibration" in numbers["predictions"]:
        calibration = numbers["predictions"]["calibration"]
        error = f"{calibration['expected_calibration_error']:.3f}"
        tiles.append(("Calibration error", error, "0 is perfect"))
    if "examples_per_second" in numbers["facts"]:
        speed = number(round(numbers["facts"]["examples_per_second"]))
        tiles.append(("Training speed", speed, "examples/s"))
    cells = "".join(
        f'<div class="tile{" main" if i == 0 else ""}"><dt>{name}</dt>'
        f"<dd>{value}<small>{unit}</small></dd></div>"
        for i, (name, value, unit) in enumerate(tiles)
    )
    return f'<dl class="tiles">{cells}</dl>'


def _recipe(settings: Sequence[Mapping[str, Any]]) -> str:
    def rows(changed: bool) -> list[tuple[str, str, str, str]]:
        return [
            (
                inline(each["name"]),
                inline(each["value"]),
                inline(each["default"]),
                f'<span class="help">{shown(each["help"])}</span>',
            )
            for each in settings
            if each["changed"] == changed
        ]

    header, texts = ("Setting", "Value", "Default", "Meaning"), (0, 1, 2, 3)
    others = rows(False)
    return section(
        "recipe",
        "Recipe",
        table(
            "Settings that differ from their defaults",
            header,
            rows(True),
            texts,
        ),
        f"<details><summary>The other {len(others)} settings, at their "
        f"defaults</summary>{table('Defaults', header, others, texts)}"
        "</details>"
        if others
        else "",
        '<p class="note">recipe.json beside this page repeats the run, given '
        "the command as its recipe.</p>",
    )


def _speed(facts: Mapping[str, Any], kind: Kind) -> str:
    titles = {"threshold": kind.threshold}
    rows = [
        (
            titles.get(name) or _FACTS[name][0],
            _fact(value, _FACTS[name][1]),
        )
        for name, value in facts.items()
    ]
    if not rows:
        return ""
    return section(
        "speed", "Size and speed", table("The run", ("Fact", "Value"), rows)
    )


def _fact(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{number(value)}{unit}"
