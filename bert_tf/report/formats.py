"""Writes values as the text of pages and cards."""

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.report.texts import in_words, showable

if TYPE_CHECKING:
    from markupsafe import Markup

# What Markdown interprets as markup: some characters anywhere, and a number or
# a sign that turns a line into a list item.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")
_LIST_ITEM = re.compile(r"^(\d*)([-+.)])(?=\s|$)")


def html(template: str, *values: Any) -> "Markup":
    """HTML with values in place of {}, which are escaped."""
    # A part of jinja2, which is needed when a page is written.
    from markupsafe import Markup

    return Markup(template).format(*values)


def inline(value: Any, write: Callable[[float], str] = repr) -> "Markup":
    """A user's value within a line, isolated from the line's direction.

    Args:
      value: a value of JSON.
      write: writes a float, by default in full, because a setting is exact.
    """
    if isinstance(value, Mapping):
        value = [
            html(
                "{} ({})" if isinstance(each, Mapping) else "{} {}",
                *(inline(name), inline(each, write)),
            )
            for name, each in value.items()
        ]
    if isinstance(value, list | tuple):
        found = [inline(each, write) for each in value]
        return html(", ").join(found) or html("none")
    if value is None or hasattr(value, "__html__"):
        return html("{}", "none" if value is None else value)
    text = write(float(value)) if isinstance(value, float) else str(value)
    if not text.strip():
        return html("<i>empty</i>")
    return html("<bdi>{}</bdi>", showable(text))


def shown(value: Any) -> str:
    """A value of a record: a `number`, yes or no, or text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_number = value is None or isinstance(value, int | float)
    return number(value) if is_number else inline(value, number)


def number(value: float | None) -> str:
    """A number as a spreadsheet reads it: four significant digits, a point.

    Whole numbers have all their digits; a missing one is an empty cell.
    """
    if value is None or not math.isfinite(value):
        return ""
    if isinstance(value, int) or value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A score times 100 with one decimal; a missing one is an empty cell."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{100 * value:.1f}"


def bar(value: float | None) -> str:
    """A share: `percent`, after a bar; a missing one is an empty cell."""
    if value is None:
        return ""
    return html(
        '<span class="meter" aria-hidden="true">'
        '<i style="width:{:.1f}%"></i></span>{}',
        100 * value,
        percent(value),
    )


def score(value: float | None, scale: int) -> str:
    """A score by its `score_scale`: `percent`, or a `number`."""
    return percent(value) if scale == 100 else number(value)


def dash(value: float | None, scale: int = 1) -> str:
    """A number for a table of Markdown, with a dash for a missing one.

    A score has its `score_scale`; see `score`.
    """
    if value is None:
        return "\u2013"
    if scale == 100:
        return percent(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def words(name: str) -> str:
    """The name of a metric or split as prose, capitalised."""
    text = in_words(name)
    return text[:1].upper() + text[1:]


def model_words(name: str) -> str:
    """The name of a published model as prose: BERT base for bert_base."""
    return words(name).replace("Bert ", "BERT ")


def markdown(value: Any) -> str:
    """A value as plain words within a line of Markdown."""
    text = " ".join(str(value).split())
    return _LIST_ITEM.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", text))
