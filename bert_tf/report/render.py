"""report.html out of a report's numbers, by the templates beside this file.

The templates escape every value that they are given, and `texts.showable`
takes from it what a page cannot hold; only what a template itself writes is
markup.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.libraries import require_extra
from bert_tf.report import figures, texts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(
    numbers: Mapping[str, Any],
    template: str,
    package: str,
    doctor_lines: Sequence[str],
) -> str:
    """The page of what report.json holds.

    Args:
      numbers: what report.json holds.
      template: the name of the family's template.
      package: the family's package, where the template lies.
      doctor_lines: the findings of the data doctor.
    """
    scores, metric = numbers["scores"], numbers["main_metric"]
    main = next(row for row in scores if row["metric"] == metric)
    models = dict.fromkeys(name for row in scores for name in row["paper"])
    levels = {"baseline": main["majority"]}
    levels |= {model_words(name): v for name, v in main["paper"].items()}
    # A correlation with a constant is not defined; guessing scores 0.
    value, guess = main["value"] or 0.0, main["majority"] or 0.0
    is_lower = metric in numbers.get("lower_is_better", ())
    page = environment(package, "").get_template(template)
    return page.render(
        numbers,
        doctor_lines=doctor_lines,
        main=main,
        is_better=value < guess if is_lower else value > guess,
        paper_models=list(models),
        levels={name: v for name, v in levels.items() if v is not None},
    )


def environment(
    package: str = "bert_tf.report", folder: str = "templates"
) -> "Environment":
    """The templates with the filters and functions that they use.

    Args:
      package: has templates that come before those here.
      folder: where they lie in the package.
    """
    require_extra("report", "a report")
    # Of no use before a training is done.
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader(package, folder),
                jinja2.PackageLoader("bert_tf.report"),
            ]
        ),
        autoescape=True,
        finalize=_finalized,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (inline, model_words, number, percent, texts.shortened, words)
    functions = (
        texts.answer_marks,
        texts.entity_marks,
        texts.excerpts,
        texts.stretches,
        shade,
    )
    found.filters |= {each.__name__: each for each in filters}
    found.filters["base64"] = lambda data: base64.b64encode(data).decode()
    found.globals |= {each.__name__: each for each in functions}
    found.globals["figures"] = figures
    return found


def _finalized(value: Any) -> Any:
    """What a template writes, before it is escaped."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return texts.showable(value)
    return value


def inline(value: Any) -> "Markup":
    """A user's value in a line of ours, whose direction it does not change."""
    from markupsafe import Markup

    if isinstance(value, float):
        # Exact: a setting is no measurement.
        return Markup('<span class="whole-word">{}</span>').format(repr(value))
    if isinstance(value, list | tuple):
        return Markup(", ").join(map(inline, value)) or Markup("none")
    if value is None:
        return Markup("\u2013")
    text = str(value)
    if not text.strip():
        return Markup("<i>empty</i>")
    return Markup("<bdi>{}</bdi>").format(texts.showable(text))


def number(value: float | None) -> str:
    """A number with four significant digits, or all of a whole number."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    if isinstance(value, int) or value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def percent(value: float | None) -> str:
    """A score times 100, as tables of results print it."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    return f"{100 * value:.1f}"


def words(name: str) -> str:
    """A metric's or a split's name as words."""
    text = name.replace("_", " ").replace("f1", "F1")
    return text[:1].upper() + text[1:]


def model_words(name: str) -> str:
    """A published model's name as words: bert_base is BERT base."""
    return words(name).replace("Bert ", "BERT ")


def shade(count: int, total: int) -> str:
    """The style of a cell of a confusion matrix, by its share of the row."""
    share = count / total if total else 0.0
    # From white to the dark blue of the pictures, in steps of one class.
    red, green, blue = (
        round(255 + (end - 255) * share) for end in (0, 84, 140)
    )
    ink = "#fff" if share > 0.67 else "#1f2933"
    return f"background:rgb({red},{green},{blue});color:{ink}"
