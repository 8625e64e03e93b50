"""Renders pages and model cards: one jinja2 environment for all templates.

Templates of HTML escape every value that they are given, and `texts.showable`
replaces the characters that a page cannot hold. Templates of Markdown
(`.md.jinja`) escape nothing themselves; they use the filter `markdown`.
"""

import base64
import functools
import json
import math
import pathlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from bert_tf.files import write_text
from bert_tf.libraries import require_extra
from bert_tf.report import figures, texts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

REPORT_FILE = "report.html"
# What Markdown interprets as markup: some characters anywhere, and a number or
# a sign that turns a line into a list item.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")
_LIST_ITEM = re.compile(r"^(\d*)([-+.)])(?=\s|$)")
_SECTION = re.compile(r'<section id="([\w-]+)" aria-label="([^"<>]*)">')


def render(template: str, **values: Any) -> str:
    """Renders a page or a card.

    Args:
      template: a file in report/templates, or PACKAGE:FILE for one of another
        package.
      **values: what the template shows.

    Raises:
      UserError: jinja2 or matplotlib is not installed.
    """
    return environment().get_template(template).render(values)


def write_page(path: pathlib.Path, template: str, **values: Any) -> None:
    """Writes a page; see `render`."""
    write_text(path, render(template, **values))


@functools.cache
def environment() -> "Environment":
    """The environment of all templates, with their filters and functions."""
    require_extra("report", "a report")
    # Not needed before a training is finished.
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=lambda name: not (name or "").endswith(".md.jinja"),
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (
        *(
            contents,
            count,
            dash,
            inline,
            markdown,
            model_words,
            number,
            percent,
            score,
        ),
        *(plain, texts.shortened, words),
    )
    functions = (
        *(texts.answer_marks, texts.entity_marks, texts.excerpts),
        *(texts.stretches, script_data),
    )
    found.filters |= {each.__name__: each for each in filters}
    found.filters["json"] = json.dumps
    found.filters["base64"] = lambda data: base64.b64encode(data).decode()
    found.globals |= {each.__name__: each for each in functions}
    found.globals["figures"] = figures
    return found


def _source(name: str) -> str:
    """The text of a template; see `render`."""
    package, _, file = name.rpartition(":")
    if package:
        return (resources.files(package) / file).read_text("utf-8")
    folder = resources.files("bert_tf.report") / "templates"
    return (folder / file).read_text("utf-8")


def _finalize(value: Any) -> Any:
    """Replaces what a page cannot hold, before the value is escaped."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return texts.showable(value)
    return value


def contents(body: str) -> list[tuple[str, str]]:
    """The id and the short title of every section of a rendered page."""
    return _SECTION.findall(body)


def script_data(values: Any) -> "Markup":
    """Values as JSON in which nothing can end the script element around it."""
    from markupsafe import Markup

    return Markup(json.dumps(values).replace("<", "\\u003c"))


def inline(value: Any) -> "Markup":
    """A user's value within a line, isolated from the line's direction."""
    from markupsafe import Markup

    if isinstance(value, float):
        # In full, because a setting is exact.
        return Markup('<span class="whole-word">{}</span>').format(repr(value))
    if isinstance(value, list | tuple):
        return Markup(", ").join(map(inline, value)) or Markup("none")
    if isinstance(value, Mapping):
        pairs = [
            Markup("{} {}").format(
                inline(name),
                Markup("({})").format(inline(each))
                if isinstance(each, Mapping)
                else inline(each),
            )
            for name, each in value.items()
        ]
        return Markup(", ").join(pairs) or Markup("none")
    if value is None:
        return Markup("none")
    text = str(value)
    if not text.strip():
        return Markup("<i>empty</i>")
    return Markup("<bdi>{}</bdi>").format(texts.showable(text))


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


def score(value: float | None, scale: int) -> str:
    """A score by its `score_scale`: `percent`, or a `number`."""
    return percent(value) if scale == 100 else number(value)


def plain(value: float | None, decimals: int) -> str:
    """A number with a fixed number of decimals; a missing one is empty."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:.{decimals}f}"


def count(value: int) -> str:
    """A count within a sentence, with thousands separators."""
    return f"{value:,}"


def dash(value: float | None) -> str:
    """A number for a table of Markdown, with a dash for a missing one."""
    if value is None:
        return "\u2013"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def words(name: str) -> str:
    """The name of a metric or split as prose, capitalised."""
    text = texts.in_words(name)
    return text[:1].upper() + text[1:]


def model_words(name: str) -> str:
    """The name of a published model as prose: BERT base for bert_base."""
    return words(name).replace("Bert ", "BERT ")


def markdown(value: Any) -> str:
    """A value as plain words within a line of Markdown."""
    text = " ".join(str(value).split())
    return _LIST_ITEM.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", text))
