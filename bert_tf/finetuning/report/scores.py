"""The parts of a report's page about scores: table, seeds and curves."""

from collections.abc import Mapping
from typing import Any

from bert_tf.finetuning.report.figures import learning_curve, seed_dots
from bert_tf.finetuning.report.html import (
    figure,
    hundredths,
    inline,
    model_named,
    named,
    number,
    section,
    shown,
    table,
    words,
)
from bert_tf.finetuning.report.kind import Kind


def scores_section(numbers: Mapping[str, Any], kind: Kind) -> str:
    """The scores beside the baseline and the paper.

    Args:
      numbers: from `report_numbers`.
      kind: what kind the task is of.
    """
    rows = numbers["scores"]
    models = list(dict.fromkeys(x for row in rows for x in row["paper"]))
    has_splits = len({row["split"] for row in rows}) > 1
    cells = [
        (
            named(row["metric"]),
            *([named(row["split"])] if has_splits else []),
            f"<b>{hundredths(row['value'])}</b>",
            hundredths(row["majority"]),
            *(hundredths(row["paper"].get(model)) for model in models),
        )
        for row in rows
    ]
    header = ["Metric", *(["Rows"] if has_splits else [])]
    header += ["This model", "Baseline"]
    note = (
        f"Scores are x 100. Baseline: {kind.baseline(numbers['labels'])}. "
        "The model was chosen by "
        f"{named(numbers['main_metric'])}"
        f" on {shown(numbers['main_split'])}, so its score there is a little "
        "kind to it. "
    )
    if models:
        note += inline(numbers["paper_note"] or kind.paper_note)
    return section(
        "scores",
        "Scores",
        _warning(numbers),
        table(
            "Scores on rows that were not trained on",
            header + [model_named(model) for model in models],
            cells,
            (0, 1) if has_splits else (0,),
        ),
        f'<p class="note">{note}</p>',
    )


def _warning(numbers: Mapping[str, Any]) -> str:
    """A line where the model has learnt nothing."""
    main = next(
        row
        for row in numbers["scores"]
        if row["metric"] == numbers["main_metric"]
    )
    # A correlation with a constant is not defined; guessing scores 0.
    if (main["value"] or 0.0) > (main["majority"] or 0.0):
        return ""
    return '<p class="flag">This model is no better than the baseline.</p>'


def seeds_section(numbers: Mapping[str, Any]) -> str:
    """Each training and their mean; empty where there is only one."""
    seeds, summary = numbers["seeds"], numbers["summary"]
    if len(seeds) < 2:
        return ""
    metrics = list(seeds[0]["dev"])
    rows = [
        (
            str(each["seed"]),
            *(hundredths(each["dev"].get(metric)) for metric in metrics),
            _verdict(each),
        )
        for each in seeds
    ]
    rows += [
        (
            f"<b>{named(statistic)}</b>",
            *(
                f"<b>{hundredths(summary.get(x, {}).get(statistic))}</b>"
                for x in metrics
            ),
            "",
        )
        for statistic in next(iter(summary.values()), {})
    ]
    header = ["Seed", *map(named, metrics), "Remark"]
    return section(
        "seeds",
        f"{len(seeds)} seeds",
        '<div class="pictures"><div>',
        table(
            "Each training, with its own new head and order of the rows",
            header,
            rows,
            (0, len(header) - 1),
        ),
        '<p class="note">Scores x 100 on '
        f"{shown(numbers['main_split'])}. The standard deviation is the "
        "sample's (n - 1). A degenerate training is one no better than the "
        "baseline. The rest of this page shows the best training.</p></div>",
        _seed_picture(numbers),
        "</div>",
    )


def _verdict(seed: Mapping[str, Any]) -> str:
    remarks = []
    if seed.get("best"):
        remarks.append("<b>best</b>")
    if seed["degenerate"]:
        remarks.append('<span class="flag">degenerate</span>')
    return ", ".join(remarks)


def _seed_picture(numbers: Mapping[str, Any]) -> str:
    metric = numbers["main_metric"]
    seeds = [
        each for each in numbers["seeds"] if each["dev"].get(metric) is not None
    ]
    values = [each["dev"][metric] for each in seeds]
    mean = numbers["summary"][metric]["mean"]
    svg = seed_dots(
        values,
        [each["degenerate"] for each in seeds],
        mean,
        levels(numbers),
        words(metric),
    )
    listed = ", ".join(map(hundredths, values))
    return figure(
        svg,
        f"{words(metric)} x 100 of each seed: {listed}; mean "
        f"{hundredths(mean)}",
        f"One mark a training: {named(metric)} x 100; a cross is a "
        "degenerate one. Dashed: the baseline, and the paper's numbers.",
    )


def levels(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The baseline and the paper's numbers of the main metric, labelled."""
    main = next(
        each
        for each in numbers["scores"]
        if each["metric"] == numbers["main_metric"]
    )
    found = {"baseline": main["majority"]} | {
        model_named(model): value for model, value in main["paper"].items()
    }
    return {k: v for k, v in found.items() if v is not None}


def curves_section(numbers: Mapping[str, Any]) -> str:
    """Loss and main metric over the training steps."""
    curves, metric = numbers["curves"], numbers["main_metric"]
    name = words(metric)
    best_seed = next(
        (str(each["seed"]) for each in numbers["seeds"] if each.get("best")), ""
    )
    if len(numbers["seeds"]) < 2:
        best_seed = ""
    parts = []
    if curves["training_loss"] or curves["held_out_loss"]:
        svg = learning_curve(
            curves["training_loss"],
            curves["held_out_loss"],
            "loss",
            {},
            best_seed,
            numbers["facts"].get("best_step"),
        )
        parts.append(
            figure(
                svg,
                f"Loss over the steps. {_ends(curves, 'loss', number)}",
                "Loss over the training steps, the lower the better. When "
                "held-out loss rises while training loss falls, the model "
                "learns its training rows by heart.",
            )
        )
    if curves["training_metric"] or curves["held_out_metric"]:
        svg = learning_curve(
            curves["training_metric"],
            curves["held_out_metric"],
            f"{name}, x 100",
            {k: v for k, v in levels(numbers).items() if k == "baseline"},
            best_seed,
            numbers["facts"].get("best_step"),
            100,
        )
        parts.append(
            figure(
                svg,
                f"{name} over the steps. {_ends(curves, 'metric', hundredths)}",
                f"{named(metric)} x 100 on held-out rows, by which the model "
                "was chosen; dashed is the baseline.",
            )
        )
    if not parts:
        return ""
    return section(
        "curves",
        "Learning curves",
        f'<div class="pictures">{"".join(parts)}</div>',
    )


def _ends(curves: Mapping[str, Any], kind: str, written: Any) -> str:
    """Where the lines of a picture begin and end, in words."""
    return " ".join(
        f"{label}{' seed ' + each['seed'] if each['seed'] else ''} from "
        f"{written(each['values'][0])} to {written(each['values'][-1])}."
        for label, key in (
            ("Training", f"training_{kind}"),
            ("Held-out", f"held_out_{kind}"),
        )
        for each in curves[key]
    )
