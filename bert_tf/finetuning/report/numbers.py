"""The numbers of a report: what its tables and pictures show, for JSON."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.report.checks import RESULTS
from bert_tf.finetuning.report.run_files import FACTS, RunFiles

_CURVE_POINTS = 400


def report_numbers(run: RunFiles) -> dict[str, Any]:
    """Everything that the page shows.

    Args:
      run: the files of a finished run.
    """
    results = run.results
    main_split = next(iter(results["dev"]))
    return {
        "task": results["task"],
        "model": results["model"],
        "finished": _written_time(results.get("finished")),
        "main_metric": results["main_metric"],
        "main_split": main_split,
        "labels": results["labels"],
        "examples": results.get("examples", {}),
        "settings": settings(run.recipe, run.kind.recipes),
        "doctor": results["doctor"],
        "scores": scores(results),
        "paper_note": results.get("paper_note"),
        "curves": curves(run.histories, results["main_metric"]),
        "seeds": results.get("seeds", []),
        "summary": results.get("summary", {}),
        "facts": {x: results[x] for x in FACTS if results.get(x) is not None},
        "predictions": run.kind.numbers(run.predictions, results),
    }


def _written_time(time: str | None) -> str | None:
    """An ISO 8601 time to the minute, as people write it."""
    if time is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(time)
    except (TypeError, ValueError):
        raise UserError(
            f"{RESULTS}: finished is {time!r}; it takes an ISO 8601 time."
        ) from None
    zone = f" {moment.tzname()}" if moment.tzinfo else ""
    return f"{moment:%Y-%m-%d %H:%M}{zone}"


def settings(
    recipe: Mapping[str, Any], recipe_types: Sequence[type[FinetuningRecipe]]
) -> list[dict[str, Any]]:
    """Every setting beside its default, those that differ first.

    Args:
      recipe: recipe.json, whose keys may be of another version.
      recipe_types: of these it is the one that knows most of its keys.
    """
    recipe_type = max(
        recipe_types, key=lambda kind: len(recipe.keys() & kind.kinds().keys())
    )
    defaults = recipe_type().to_dict()
    helps = {
        name: field.metadata.get("help", "")
        for name, field in recipe_type.__dataclass_fields__.items()
    }
    rows = [
        {
            "name": name,
            "value": value,
            "default": defaults.get(name),
            "help": helps.get(name, ""),
            "changed": name not in defaults or value != defaults[name],
        }
        for name, value in recipe.items()
    ]
    return sorted(rows, key=lambda row: not row["changed"])


def scores(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each metric of each split beside the baseline and the paper."""
    return [
        {
            "split": split,
            "metric": metric,
            "value": value,
            "majority": results["majority"][split].get(metric),
            "paper": _paper(results["paper"], split, metric),
        }
        for split, metrics in results["dev"].items()
        for metric, value in metrics.items()
    ]


def _paper(
    paper: Mapping[str, Mapping[str, float]], split: str, metric: str
) -> Mapping[str, float]:
    """The paper's numbers by model; "accuracy_mismatched" is one split's."""
    own = f"{metric}_{split.partition('_')[2]}"
    return paper.get(own, paper.get(metric, {}))


def curves(
    histories: Mapping[str, list[dict[str, float | None]]], main_metric: str
) -> dict[str, list[dict[str, Any]]]:
    """The series over the steps, one a seed.

    A longer series is cut into blocks of equal length, and the point is the
    mean of the block.
    """
    names = {
        "training_loss": "loss",
        "held_out_loss": "eval_loss",
        "training_metric": main_metric,
        "held_out_metric": f"eval_{main_metric}",
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, key in names.items():
        for seed, rows in histories.items():
            points = [
                (step, value)
                for row in rows
                if (step := row["step"]) is not None
                and (value := row.get(key)) is not None
            ]
            if points:
                steps, values = zip(*_block_means(points), strict=True)
                found[name].append(
                    {"seed": seed, "steps": list(steps), "values": list(values)}
                )
    return found


def _block_means(
    points: list[tuple[float, float]],
) -> list[tuple[float, float]]:
    length = -(-len(points) // _CURVE_POINTS)
    blocks = [points[i : i + length] for i in range(0, len(points), length)]
    # The last step of a block is a step of the run, its middle may be none.
    return [
        (block[-1][0], sum(value for _, value in block) / len(block))
        for block in blocks
    ]
