"""Renders pages and model cards: one jinja2 environment for all templates.

Templates of HTML escape every value that they are given, and `texts.showable`
replaces the characters that a page cannot hold. Templates of Markdown
(`.md.jinja`) escape nothing themselves; they use the filter `markdown`.
"""

import base64
import functools
import json
import pathlib
from importlib import resources
from typing import TYPE_CHECKING, Any

from bert_tf.files import write_text
from bert_tf.libraries import require_extra
from bert_tf.report import formats, sections, texts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

REPORT_FILE = "report.html"


def render(template: str, **values: Any) -> str:
    """Renders a page or a card.

    Args:
      template: a file in report/templates.
      **values: what the template shows.

    Raises:
      UserError: jinja2 or matplotlib is not installed.
    """
    return environment().get_template(template).render(values)


def write_page(path: pathlib.Path, page: sections.Page) -> None:
    """Writes a page as HTML, or as Markdown if the path ends in .md."""
    kind = "md" if path.suffix == ".md" else "html"
    write_text(path, render(f"page.{kind}.jinja", page=page))


@functools.cache
def environment() -> "Environment":
    """The environment of all templates, with their filters and tests."""
    require_extra("report", "a report")
    # Not needed before a training is finished.
    import jinja2

    def source(name: str) -> str:
        folder = resources.files("bert_tf.report") / "templates"
        return (folder / name).read_text("utf-8")

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=lambda name: not (name or "").endswith(".md.jinja"),
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (
        *(formats.dash, formats.inline, formats.markdown),
        *(formats.shown, formats.words),
    )
    found.filters |= {each.__name__: each for each in filters}
    found.filters["json"] = json.dumps
    found.filters["script_data"] = _script_data
    found.filters["base64"] = lambda data: base64.b64encode(data).decode()
    for kind in (
        *(sections.ReportTable, sections.Figure),
        *(sections.Lines, sections.Entry),
    ):
        found.tests[kind.__name__] = kind.__instancecheck__
    return found


def _finalize(value: Any) -> Any:
    """Replaces what a page cannot hold, before the value is escaped."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return texts.showable(value)
    return value


def _script_data(values: Any) -> "Markup":
    """Values as JSON in which nothing can end the script element around it."""
    from markupsafe import Markup

    return Markup(json.dumps(values).replace("<", "\\u003c"))
