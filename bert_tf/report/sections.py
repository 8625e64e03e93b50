"""A page as values: sections of tables, figures and texts.

`render.write_page` draws them by the templates page.html.jinja and
page.md.jinja.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.report.figures import Curves
from bert_tf.report.formats import inline, shown, words
from bert_tf.report.texts import MarkedText


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      key: of its values.
      heading: its heading.
      show: what writes a value.
      is_text: whether it is left-aligned, which the table finds out.
    """

    key: Any
    heading: str
    show: Callable[[Any], str] = shown
    is_text: bool = False


@dataclasses.dataclass(frozen=True)
class ReportTable:
    """A table. Its cells hold plain numbers, which paste into a spreadsheet.

    Attributes:
      caption: describes it.
      rows: records, as report.json has them.
      show: what writes the values of some keys.
      columns: the columns, of which the first one names the rows; by default
        one for each key.
      note: how to read it.
      is_wide: whether nothing stands next to it.
      is_folded: whether it is unfolded on demand.
    """

    caption: str
    rows: Sequence[Any]
    show: Mapping[str, Callable[[Any], str]] = dataclasses.field(
        default_factory=dict
    )
    columns: Sequence[Column] = ()
    note: str = ""
    is_wide: bool = False
    is_folded: bool = False

    def __bool__(self) -> bool:
        return bool(self.rows)

    def all_columns(self) -> list[Column]:
        """The columns that have values."""
        found = []
        for column in self.columns or [
            Column(key, words(key), self.show.get(key, shown))
            for key in self.rows[0]
        ]:
            values = [row[column.key] for row in self.rows]
            is_text = column.show is inline or (
                column.show is shown
                and any(
                    isinstance(value, str | list | dict) for value in values
                )
            )
            if any(value not in (None, "") for value in values):
                found.append(column._replace(is_text=is_text))
        return found


def fact_table(caption: str, facts: Mapping[str, Any]) -> ReportTable:
    """A table of the values of a record that are not lists."""
    pairs = [(words(key), x) for key, x in facts.items()]
    rows = [pair for pair in pairs if not isinstance(pair[1], list)]
    columns = [Column(0, "Name"), Column(1, "Value")]
    return ReportTable(caption, rows, columns=columns)


class Figure(NamedTuple):
    """A drawing and its caption; nothing stands next to a wide one."""

    drawing: Curves
    caption: str
    is_wide: bool = False


class Lines(NamedTuple):
    """Lines of text, whose indentation is kept; warnings stand out."""

    lines: Sequence[Any]
    is_warning: bool = False

    def __bool__(self) -> bool:
        return bool(self.lines)


class Entry(NamedTuple):
    """What is described in values by their names and texts, as a mistake."""

    facts: Mapping[str, Any]
    texts: Sequence[MarkedText] = ()


class Section(NamedTuple):
    """A section of a page.

    Attributes:
      name: of links to it, and in words its name in the contents.
      title: its title.
      parts: what it shows. Narrow tables and figures stand side by side.
      numbers: what report.json holds of it, by key.
    """

    name: str
    title: str
    parts: Sequence[ReportTable | Figure | Lines | Entry]
    numbers: Mapping[str, Any] = {}

    @property
    def shown(self) -> list[Any]:
        """The parts that are not empty."""
        return [part for part in self.parts if part]


def merged_numbers(sections: Sequence[Section]) -> dict[str, Any]:
    """What report.json holds of sections."""
    return {k: v for section in sections for k, v in section.numbers.items()}


class Page(NamedTuple):
    """A page: below its title are values by their names, numbers in large."""

    title: str
    facts: Mapping[str, Any]
    sections: Sequence[Section]
    foot: str = ""


def settings_section(settings: Sequence[Mapping[str, Any]]) -> Section:
    """The settings of a run, from `statistics.setting_rows`."""
    keys = ("name", "value", "default", "help")
    tables = [
        ReportTable(
            f"Settings {which} their defaults",
            [row for row in settings if row["changed"] is is_changed],
            columns=[Column(key, words(key), inline) for key in keys],
            is_wide=True,
            is_folded=not is_changed,
        )
        for is_changed, which in ((True, "that differ from"), (False, "at"))
    ]
    note = "recipe.json, next to this page, repeats the run as its recipe."
    return Section("recipe", "Recipe", [*tables, Lines([note])])
