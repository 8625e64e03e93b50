"""The report and the model card of a finished fine-tuning.

The same run gives the same bytes.
"""

import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.families import part_of
from bert_tf.families.config import TaskConfig
from bert_tf.families.task import Task, score_scale
from bert_tf.files import write_text
from bert_tf.finetuning.evaluation import FinishedRun
from bert_tf.recipe import Settings
from bert_tf.report import figures
from bert_tf.report.answer_sections import ReportWords
from bert_tf.report.formats import model_words, percent, score, words
from bert_tf.report.render import REPORT_FILE, write_page
from bert_tf.report.sections import (
    Figure,
    Lines,
    Page,
    ReportTable,
    Section,
    fact_table,
    merged_numbers,
    settings_section,
)
from bert_tf.report.statistics import curve_points, setting_rows
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.training.history import errors_become_warnings, finite_values

if TYPE_CHECKING:
    from bert_tf.finetuning.setup import TrainingData

# Numbers of results.json that the page shows if they are there.
_FACTS = (
    "num_parameters",
    "num_train_steps",
    "best_step",
    "stopped_early",
    "threshold",
    "train_seconds",
    "examples_per_second",
    "eval_examples_per_second",
)


def write_reports(
    folder: pathlib.Path, run: FinishedRun, data: "TrainingData"
) -> None:
    """Writes the report and the model card of a finished run.

    One that cannot be made is a warning.

    Args:
      folder: of the run.
      run: the run.
      data: what it was trained on.
    """
    task, recipe_type = data.task, type(data.recipe)
    with errors_become_warnings("the report", folder):
        page = write_report(
            folder, run, task.config_type, recipe_type, task.defaults
        )
        print(f"the report is {page}", flush=True)
    with errors_become_warnings("the model card", folder):
        write_card(folder, run, data)


def write_report(
    folder: pathlib.Path,
    run: FinishedRun,
    config_type: type[TaskConfig],
    recipe_type: type[Settings],
    changed_defaults: Mapping[str, Any],
) -> pathlib.Path:
    """Writes report.html and report.json of a finished run into its folder.

    Args:
      folder: of the run.
      run: the run.
      config_type: of its family.
      recipe_type: the type of the run's recipe.
      changed_defaults: settings whose defaults the task changes.

    Returns:
      The path of report.html.

    Raises:
      UserError: a library is not installed.
    """
    family: Any = part_of(config_type, "report")
    numbers = run_statistics(run, recipe_type, changed_defaults)
    answers = family.sections(run.predictions, run.results)
    numbers["predictions"] = merged_numbers(answers)
    write_page(folder / REPORT_FILE, _page(numbers, family.WORDS, answers))
    # Lone surrogates of a text stay escaped, as in dev_predictions.jsonl.
    text = json.dumps(numbers, indent=1, allow_nan=False)
    write_text(folder / "report.json", text + "\n")
    return folder / REPORT_FILE


def _page(
    numbers: Mapping[str, Any], own: ReportWords, answers: Sequence[Section]
) -> Page:
    """The page of a run.

    Args:
      numbers: what report.json holds.
      own: the words of the family.
      answers: the sections of the family.
    """
    metric, facts = numbers["main_metric"], numbers["facts"]
    main = next(row for row in numbers["scores"] if row["metric"] == metric)
    scale, split = numbers["scales"][metric], numbers["main_split"]
    label = words(metric) + " x 100" * (scale == 100)
    levels = {
        f"{label}, {split}": _times(scale, main["value"]),
        "baseline": _times(scale, main["majority"]),
        **{model_words(k): _times(scale, x) for k, x in main["paper"].items()},
    }
    calibration = numbers["predictions"].get("calibration", {})
    named = {"threshold": own.threshold}
    facts = {named.get(name, name): value for name, value in facts.items()}
    return Page(
        f"{numbers['task']}: fine-tuning report",
        {
            **levels,
            "calibration_error": calibration.get("expected_calibration_error"),
            "examples_per_second": facts.get("examples_per_second"),
            "started_from": numbers["model"],
            **{
                split: f"{count:,} {own.unit}"
                for split, count in numbers["examples"].items()
            },
            "finished": numbers["finished"],
        },
        [
            Section("scores", "Scores", _scores(numbers, own, main)),
            Section("seeds", "Seeds", _seeds(numbers, levels)),
            Section("curves", "Learning curves", _curves(numbers, levels)),
            *answers,
            Section(
                "doctor",
                "Data doctor",
                [Lines(numbers["doctor"].get("lines", ()))],
            ),
            settings_section(numbers["settings"]),
            Section("speed", "Size and speed", [fact_table("The run", facts)]),
        ],
        "Every number on this page is in report.json next to it.",
    )


def _times(scale: int, value: float | None) -> float | None:
    return None if value is None else scale * value


def _scores(
    numbers: Mapping[str, Any], own: ReportWords, main: Mapping[str, Any]
) -> list[ReportTable | Lines]:
    """The scores beside those of the baseline and of the paper."""
    scores, unit = numbers["scores"], own.unit
    # A correlation with a constant is not defined; a guess scores 0.
    value, guess = main["value"] or 0.0, main["majority"] or 0.0
    is_lower = main["metric"] in numbers.get("lower_is_better", ())
    warnings = []
    if not (value < guess if is_lower else value > guess):
        warnings.append("This model is no better than the baseline.")
    splits = {row["split"] for row in scores}
    for split, shared in numbers["doctor"].get("in_train", {}).items():
        if shared["share"] and split in splits:
            warnings.append(
                f"{percent(shared['share'])} % of the {unit} of {split} are "
                f"{unit} of the training data too, so the scores do not show "
                "how good the model is on new ones."
            )
    reasons = numbers.get("reasons", ())
    if reasons:
        why = "A training is no better than the baseline, likely because:"
        reasons = [why, *reasons]
    models = dict.fromkeys(name for row in scores for name in row["paper"])
    rows = []
    for row in scores:
        values = {"this_model": row["value"], "baseline": row["majority"]}
        values |= {model_words(x): row["paper"].get(x) for x in models}
        scale = numbers["scales"][row["metric"]]
        rows.append(
            {"metric": words(row["metric"]), "split": row["split"]}
            | {name: score(x, scale) for name, x in values.items()}
        )
    about = [
        f"Scores are x 100, costs as they are. Baseline: {own.baseline}. The "
        f"model was selected by {words(main['metric'])} on "
        f"{numbers['main_split']}, so its score there is slightly optimistic."
    ]
    if models:
        about.append(numbers["paper_note"] or own.about_paper)
    table = ReportTable("Scores", rows, dict.fromkeys([*rows[0]][2:], str))
    return [Lines(warnings, True), Lines(reasons), table, Lines(about)]


def _seeds(
    numbers: Mapping[str, Any], levels: Mapping[str, float | None]
) -> list[ReportTable | Figure]:
    """The scores of several trainings."""
    seeds, scales = numbers["seeds"], numbers["scales"]
    if not seeds:
        return []
    metric, summary = numbers["main_metric"], numbers["summary"]
    rows = [
        {
            "seed": each["seed"],
            **{name: score(x, scales[name]) for name, x in each["dev"].items()},
            "best": each.get("best", False),
            "degenerate": each["degenerate"],
        }
        for each in seeds
    ]
    statistics = [
        {"metric": words(name)}
        | {statistic: score(x, scales[name]) for statistic, x in own.items()}
        for name, own in summary.items()
    ]
    label, *others = levels
    scale = scales[metric]
    panel = figures.Panel(
        figures.named_curves(
            [_times(scale, each["dev"][metric]) for each in seeds],
            flagged=[each["degenerate"] for each in seeds],
        ),
        label,
        lines={name: levels[name] for name in others}
        | {"mean": _times(scale, summary[metric]["mean"])},
        names=[f"seed {each['seed']}" for each in seeds],
    )
    return [
        ReportTable(
            f"Scores on {numbers['main_split']} with different seeds of the "
            "head and the order of rows",
            rows,
            dict.fromkeys(seeds[0]["dev"], str),
            note="A training is degenerate if it is no better than the "
            "baseline. The rest of this page shows the best training.",
        ),
        Figure(
            figures.Curves([panel]),
            f"{label}, of each training. A cross is a degenerate one.",
        ),
        ReportTable(
            "Statistics over the seeds",
            statistics,
            dict.fromkeys(summary[metric], str),
            note="The standard deviation is that of the sample (n - 1).",
        ),
    ]


def _curves(
    numbers: Mapping[str, Any], levels: Mapping[str, float | None]
) -> list[Figure]:
    """Loss and main score over the steps."""
    curves, (label, *_) = numbers["curves"], levels
    best = [str(x["seed"]) for x in numbers["seeds"] if x.get("best")]

    def figure(name: str, kind: str, caption: str, *scaled: Any) -> Figure:
        panel = figures.learning_panel(
            name,
            curves[f"training_{kind}"],
            curves[f"held_out_{kind}"],
            "".join(best),
            numbers["facts"].get("best_step"),
            *scaled,
        )
        return Figure(figures.Curves([panel]), caption)

    overfits = "The model overfits where the held-out loss rises."
    scale = numbers["scales"][numbers["main_metric"]]
    floor = {"baseline": levels["baseline"]}
    selected = f"{label}, by which the model was selected."
    found = [
        figure("loss", "loss", overfits),
        figure(label, "metric", selected, scale, floor),
    ]
    return [each for each in found if each.drawing.numbers()]


def run_statistics(
    run: FinishedRun,
    recipe_type: type[Settings],
    changed_defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """The numbers of a run that its report and its model card show.

    Args:
      run: the run.
      recipe_type: the type of its recipe.
      changed_defaults: settings whose defaults the task changes.
    """
    results: Any = finite_values(run.results)
    finished = datetime.datetime.fromisoformat(results["finished"])
    metric, seeds = results["main_metric"], results.get("seeds", [])
    scores = [
        {
            "split": split,
            "metric": name,
            "value": value,
            "majority": results["majority"][split].get(name),
            "paper": _paper(results["paper"], split, name),
        }
        for split, metrics in results["dev"].items()
        for name, value in metrics.items()
    ]
    costs = results.get("lower_is_better", ())
    scaled: dict[str, list] = {row["metric"]: [] for row in scores}
    for row in scores:
        scaled[row["metric"]] += row["value"], row["majority"]
    for each in seeds:
        for name, value in each["dev"].items():
            scaled[name].append(value)
    histories = finite_values(run.histories)
    kinds = {"loss": "loss", "metric": metric}
    return {
        "task": results["task"],
        "model": results["model"],
        "finished": f"{finished:%Y-%m-%d %H:%M} {finished.tzname()}",
        "main_metric": metric,
        "main_split": next(iter(results["dev"])),
        "labels": results["labels"],
        "examples": results["examples"],
        "settings": setting_rows(
            results["recipe"], recipe_type, changed_defaults
        ),
        "doctor": results["doctor"],
        "scores": scores,
        "paper_note": results.get("paper_note"),
        "scales": {
            name: score_scale(values, name in costs)
            for name, values in scaled.items()
        },
        "curves": {
            f"{part}_{kind}": curve_points(histories, prefix + key)
            for part, prefix in (("training", ""), ("held_out", "eval_"))
            for kind, key in kinds.items()
        },
        "seeds": seeds,
        "summary": results.get("summary", {}),
        "facts": {x: results[x] for x in _FACTS if results.get(x) is not None},
        # Only tasks with such scores, and degenerate runs, have these keys.
        **{
            name: results[name]
            for name in ("lower_is_better", "reasons")
            if name in results
        },
    }


def _paper(
    paper: Mapping[str, Mapping[str, float]], split: str, metric: str
) -> Mapping[str, float]:
    """The paper's numbers by model; "accuracy_mismatched" is of one split."""
    own = f"{metric}_{split.partition('_')[2]}"
    return paper.get(own, paper.get(metric, {}))


def data_set_of(task: Task, recipe: Mapping[str, Any]) -> str:
    """The name of a run's data on huggingface.co; empty for a user's data.

    Args:
      task: the task of the run.
      recipe: its settings by name.
    """
    # Other data may have the format of a task's files.
    own_file = task.defaults.get("train_file", "")
    is_the_tasks_own = recipe.get("train_file", "") in ("", own_file)
    return task.hub_data_set if is_the_tasks_own else ""


def write_card(
    folder: pathlib.Path, run: FinishedRun, data: "TrainingData"
) -> pathlib.Path:
    """Writes README.md of a finished run, unless a user has written one there.

    Args:
      folder: of the run.
      run: the run.
      data: what it was trained on.

    Returns:
      The path of README.md.

    Raises:
      UserError: a library is not installed.
    """
    task, architecture = data.task, data.initial.config
    numbers = run_statistics(run, type(data.recipe), task.defaults)

    def over_seeds(split: str, metric: str, statistic: str) -> float | None:
        # Seeds are compared on the split that selects the best model.
        is_main = split == numbers["main_split"]
        spread = numbers["summary"].get(metric, {}) if is_main else {}
        return spread.get(statistic)

    recipe = run.results["recipe"]
    losses = [task.loss_classes[recipe["loss"]]] if task.loss_classes else []
    if recipe.get("matryoshka_dims"):
        losses.insert(0, "MatryoshkaLoss")
    is_served = data.config.head or task.sentence_kind
    card = ModelCard(
        summary=f"{architecture.title}, fine-tuned for {task.name}",
        pipeline_tag=data.config.pipeline_tag,
        question=data.config.sample() if is_served else {},
        init_from=numbers["model"],
        data_set=data_set_of(task, recipe),
        num_rows=numbers["examples"],
        labels=numbers["labels"],
        scores=[
            CardScore(
                each["split"],
                each["metric"],
                each["value"],
                each["majority"],
                over_seeds(each["split"], each["metric"], "mean"),
                over_seeds(each["split"], each["metric"], "standard_deviation"),
                each["paper"],
                numbers["scales"][each["metric"]],
            )
            for each in numbers["scores"]
        ],
        seeds=len(numbers["seeds"]) or 1,
        architecture=architecture.model_type,
        tokenizer=data.tokenizer.vocabulary.description,
        settings={
            each["name"]: each["value"]
            for each in numbers["settings"]
            if each["changed"]
        },
        sentence_kind=task.sentence_kind,
        losses=losses,
    )
    return card.write(folder)
