"""Scores of a finished pre-training: results.json, page and model card."""

import dataclasses
import math
import pathlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import ObjectiveTraits
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.records.dataset import held_out_batches, training_batches
from bert_tf.records.folder import RecordFolder
from bert_tf.report.figures import (
    Curves,
    history_panels,
    write_learning_curve,
)
from bert_tf.report.formats import words
from bert_tf.report.render import REPORT_FILE, write_page
from bert_tf.report.sections import (
    Figure,
    Page,
    ReportTable,
    Section,
    settings_section,
)
from bert_tf.report.statistics import setting_rows
from bert_tf.report.texts import in_words
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.training.history import (
    LEARNING_CURVE,
    History,
    errors_become_warnings,
    finite_values,
    write_numbers,
)
from bert_tf.training.loop import TrainingLoop

# The largest loss whose exponential is a float64.
_LARGEST_EXPONENT = 709
_MAX_BASELINE_BATCHES = 2000
_LOSS, _ACCURACY = "_loss", "_accuracy"
_HELD_OUT = "held_out"
_NOTE = (
    "By token frequency: the perplexity of the unigram distribution of the "
    "training text, and the accuracy of always predicting its most frequent "
    "token."
)
# Numbers of a row that are not losses or metrics of the objective.
_OTHER_NUMBERS = {
    "step",
    "loss",
    "learning_rate",
    "gradient_norm",
    "sequences_per_second",
    "tokens_per_second",
}


@dataclasses.dataclass(frozen=True)
class Baseline:
    """Held-out scores of predicting tokens by their frequency.

    Attributes:
      perplexity: of the unigram distribution of the training text, with
        add-one smoothing, on the held-out tokens to predict.
      accuracy: the share of the training text's most frequent token among the
        held-out tokens to predict.
    """

    perplexity: float
    accuracy: float


def unigram_baseline(
    training: tf.data.Dataset,
    num_batches: int,
    held_out: tf.data.Dataset,
    vocab_size: int,
) -> Baseline:
    """Scores the unigram model on held-out tokens.

    Masked positions are drawn uniformly, so the masked tokens of an epoch are
    an unbiased sample of the text; next tokens are the text itself.

    Args:
      training: endless batches with masked_lm_ids and masked_lm_weights.
      num_batches: batches of one epoch; at most 2,000 are used.
      held_out: the batches to score.
      vocab_size: number of tokens.
    """
    seen = _counts(
        training.take(min(num_batches, _MAX_BASELINE_BATCHES)), vocab_size
    )
    scored = _counts(held_out, vocab_size)
    probabilities = (seen + 1) / (seen.sum() + vocab_size)
    entropy = -(scored * np.log(probabilities)).sum() / scored.sum()
    return Baseline(
        perplexity=math.exp(entropy),
        accuracy=float(scored[seen.argmax()] / scored.sum()),
    )


def _counts(dataset: tf.data.Dataset, vocab_size: int) -> np.ndarray:
    counts = np.zeros(vocab_size, np.int64)
    for batch in dataset:
        ids = batch["masked_lm_ids"].numpy()
        used = ids[batch["masked_lm_weights"].numpy() > 0]
        counts += np.bincount(used, minlength=vocab_size)
    return counts


@dataclasses.dataclass(frozen=True)
class PretrainingResult:
    """Scores of a finished run.

    Attributes:
      held_out: mean losses and metrics on held-out records; empty if there are
        none.
      baseline: scores of predicting by token frequency; None if there are no
        held-out records or it could not be computed.
      sequences_per_second: training speed since the last start of the run.
    """

    held_out: Mapping[str, float]
    baseline: Baseline | None
    sequences_per_second: float


def report(
    recipe: PretrainingRecipe,
    output_dir: pathlib.Path,
    history: History,
    loop: TrainingLoop,
    folder: RecordFolder,
    config: BertConfig,
    mask: str | None,
) -> PretrainingResult:
    """Scores the finished model and writes its reports.

    Writes results.json, report.html, learning_curve.png and README.md, and
    prints the scores.

    Args:
      recipe: of the run.
      output_dir: of the run.
      history: the numbers of the run.
      loop: the finished training.
      folder: the records of the last phase.
      config: of the model.
      mask: the mask token of a model that fills masks.
    """
    _, speeds = history.series("sequences_per_second")
    speed = speeds[-1] if speeds else 0.0
    assert loop.evaluation is not None
    task = ObjectiveTraits.of(loop.evaluation.objective).token_task
    held_out, baseline = {}, None
    if folder.num_held_out:
        held_out = loop.evaluate(loop.phases[-1])
    if f"{task}{_LOSS}" in held_out:
        with errors_become_warnings("the baseline", output_dir), loop.reading():
            baseline = unigram_baseline(
                training_batches(
                    folder, recipe.eval_batch_size, recipe.seed, 0
                ),
                math.ceil(folder.num_records / recipe.eval_batch_size),
                held_out_batches(folder, recipe.eval_batch_size),
                config.vocab_size,
            )
    training = _last_row(history)
    _write_results(output_dir, training, held_out, task, baseline, speed)
    _print_scores(training, held_out, task, baseline)
    print(f"finished; the model is in {output_dir}", flush=True)
    names = _shown_names(training or _of_objective(held_out), task)
    levels: dict[str, dict[str, float]] = {}
    if baseline is not None:
        levels = {
            f"{task}{_LOSS}": {
                "token frequencies": math.log(baseline.perplexity)
            },
            f"{task}{_ACCURACY}": {"most frequent token": baseline.accuracy},
        }
    model = f"{config.num_hidden_layers} layers of {config.hidden_size}"
    scores = _of_objective(held_out) if held_out else {}
    by_frequency = {}
    if f"{task}{_LOSS}" in scores:
        scores[f"{task}_perplexity"] = perplexity(scores[f"{task}{_LOSS}"])
    if baseline is not None:
        by_frequency = {
            f"{task}_perplexity": baseline.perplexity,
            f"{task}{_ACCURACY}": baseline.accuracy,
        }
    scores = finite_values(scores)
    settings = setting_rows(recipe.to_dict(), type(recipe), {})
    num_rows = {"training": folder.num_records, _HELD_OUT: folder.num_held_out}
    rows = [
        {
            "number": words(name),
            "training, last row": finite_values(training.get(name)),
            "held-out": scores.get(name),
            "by_token_frequency": by_frequency.get(name),
        }
        for name in dict.fromkeys((*scores, *training))
    ]
    table = ReportTable("Losses and metrics", rows, note=_NOTE)
    main = f"{task}_perplexity", f"{task}{_ACCURACY}"
    page = Page(
        f"{config.title} pre-training, {model}",
        {
            **{name: scores[name] for name in main if name in scores},
            "sequences_per_second": round(speed),
            "started_from": recipe.init_from or None,
            **{f"{k} records": f"{n:,}" for k, n in num_rows.items()},
        },
        [Section("scores", "Scores", [table]), settings_section(settings)],
        "The final numbers are in results.json next to this page, those of all "
        "steps in history.jsonl.",
    )
    _draw(output_dir, history, names, levels, page)
    with errors_become_warnings("the model card", output_dir):
        ModelCard(
            summary=f"{config.title} of {model}, pre-trained with "
            f"{pathlib.PurePath(recipe.objective).name}",
            pipeline_tag="fill-mask" if mask else "feature-extraction",
            question={"text": f"Paris is in {mask}." if mask else "Paris."},
            signature="fill_mask" if mask else "embed",
            init_from=recipe.init_from,
            num_rows=num_rows,
            scores=[
                CardScore(_HELD_OUT, name, value, by_frequency.get(name))
                for name, value in scores.items()
            ],
            settings={x["name"]: x["value"] for x in settings if x["changed"]},
            architecture=config.model_type,
            tokenizer=""
            if folder.tokenizer is None
            else folder.vocabulary.description,
        ).write(output_dir)
    return PretrainingResult(held_out, baseline, speed)


def _draw(
    output_dir: pathlib.Path,
    history: History,
    names: Sequence[str],
    levels: Mapping[str, Mapping[str, float]],
    page: Page,
) -> None:
    """Writes learning_curve.png, and report.html with the curves too."""
    rows = finite_values(history.rows)
    panels = history_panels(rows, names, levels)
    with errors_become_warnings("the learning curve", output_dir):
        path = output_dir / LEARNING_CURVE
        write_learning_curve(path, panels, page.title)
        print(f"the curves are in {path}", flush=True)
    with errors_become_warnings("the report", output_dir):
        curves = [
            Figure(Curves([each]), f"{words(each.y_label)} over the steps.")
            for each in panels
        ]
        scores, *others = page.sections
        section = Section("curves", "Learning curves", curves)
        path = output_dir / REPORT_FILE
        write_page(path, page._replace(sections=[scores, section, *others]))
        print(f"the report is {path}", flush=True)


def perplexity(loss: float) -> float:
    """exp(loss); infinite if a float cannot hold it."""
    return math.exp(loss) if loss < _LARGEST_EXPONENT else math.inf


def _write_results(
    output_dir: pathlib.Path,
    training: Mapping[str, float],
    held_out: Mapping[str, float],
    task: str,
    baseline: Baseline | None,
    speed: float,
) -> None:
    scores = {f"training_{k}": v for k, v in training.items()} | dict(held_out)
    if f"{task}{_LOSS}" in held_out:
        loss = held_out[f"{task}{_LOSS}"]
        scores[f"{task}_perplexity"] = perplexity(loss)
    if baseline is not None:
        scores["unigram_perplexity"] = baseline.perplexity
        scores["most_frequent_token_accuracy"] = baseline.accuracy
    scores["sequences_per_second"] = speed
    write_numbers(output_dir / "results.json", scores)


def _last_row(history: History) -> dict[str, float]:
    """The objective's losses and metrics in the last training row."""
    rows = [row for row in history.rows if "loss" in row]
    return _of_objective(rows[-1]) if rows else {}


def _of_objective(row: Mapping[str, float]) -> dict[str, float]:
    """A row's losses and metrics, with the sum if no loss has a name."""
    found = {k: v for k, v in row.items() if k not in _OTHER_NUMBERS}
    if not any(name.endswith(_LOSS) for name in found):
        found = {"loss": row["loss"]} | found
    return found


def _shown_names(names: Collection[str], task: str) -> list[str]:
    """The names without losses that have an accuracy, except the token loss."""
    return [
        name
        for name in names
        if name == f"{task}{_LOSS}"
        or not name.endswith(_LOSS)
        or name.removesuffix(_LOSS) + _ACCURACY not in names
    ]


def _print_scores(
    training: Mapping[str, float],
    held_out: Mapping[str, float],
    task: str,
    baseline: Baseline | None,
) -> None:
    if training:
        shown = ", ".join(f"{k} {v:.4f}" for k, v in training.items())
        print(f"training, last row: {shown}")
    if not held_out:
        print("there are no held-out records to score the model on")
        return
    by_frequency = most_frequent = ""
    if baseline is not None:
        by_frequency = f" (by frequency alone {baseline.perplexity:,.1f})"
        most_frequent = (
            f" (always the most frequent token {baseline.accuracy:.1%})"
        )
    scores = _of_objective(held_out)
    of_tokens = f"{task}{_LOSS}", f"{task}{_ACCURACY}"
    loss, accuracy = map(scores.get, of_tokens)
    if loss is not None:
        line = (
            f"held-out {in_words(task + _LOSS).removesuffix(' loss')}: loss "
            f"{loss:.4f}, perplexity {perplexity(loss):,.1f}{by_frequency}"
        )
        if accuracy is not None:
            line += f", accuracy {accuracy:.1%}{most_frequent}"
        print(line)
    for name in _shown_names(scores, task):
        if name in of_tokens:
            continue
        if name.endswith(_ACCURACY):
            shown = in_words(name).removesuffix(" accuracy")
            print(f"held-out {shown}: accuracy {scores[name]:.1%}")
        else:
            print(f"held-out {in_words(name)}: {scores[name]:.4f}")
