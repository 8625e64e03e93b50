"""Texts with ids in tables and lines, and what is written of their vectors."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_tf.config import FLOAT32, VECTOR_PRECISIONS
from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.recipe import UserFilesRecipe
from bert_tf.files import PARQUET
from bert_tf.inference.rows import PredictSettings, is_txt
from bert_tf.recipe import Settings, like, setting
from bert_tf.tables.faults import Faults
from bert_tf.tables.table import (
    TXT,
    Dialect,
    MissingColumn,
    Row,
    Table,
    convert_rows,
    existing_files,
    text_of,
)

NPY = "npy"
# Names of columns that identify rows.
_IDS = ("_id", "id", "idx", "index", "guid")


class TextRow(NamedTuple):
    """A text, and what identifies it: its id, or the number of its row."""

    id: str | int
    text: str


@dataclasses.dataclass(frozen=True)
class TextSettings(Settings):
    """How to read texts and their ids."""

    text_column: str = setting("text", "column of the text", not_empty=True)
    id_column: str = setting(
        "",
        "column that identifies a text; empty is the first one named "
        f"{', '.join(_IDS[:-1])} or {_IDS[-1]}, or else the number of the row, "
        "from 0",
    )
    format: str = like(PredictSettings, "format")
    header: bool = like(PredictSettings, "header")
    encoding_errors: str = like(PredictSettings, "encoding_errors")
    bad_rows: str = like(
        UserFilesRecipe,
        "bad_rows",
        help_text="rows without a text and malformed ones: error or skip",
    )

    def table(self, source: Any, argument: str = "input") -> Table:
        """Opens a table of texts; see `Table`.

        Raises:
          UserError: there is no such file.
        """
        if isinstance(source, str | os.PathLike):
            existing_files(os.fspath(source), argument)
        name = self.format or (TXT if is_txt(source) else "")
        dialect = Dialect(
            *(name, self.header, self.encoding_errors, self.bad_rows),
            chosen=True,
        )
        return Table(source, dialect, argument)

    def rows(self, table: Table) -> Iterator[TextRow]:
        """Yields the texts of a table.

        Raises:
          UserError: the table lacks a column or has no rows, or rows are
            malformed, after the last one; see `Table.rows`.
        """
        is_lines = table.dialect.format == TXT
        if is_lines and self.id_column:
            raise UserError(
                f"`id_column`={self.id_column}: {table.name} has a text a "
                "line, and no columns."
            )
        required = [self.text_column, *filter(None, [self.id_column])]
        optional = [] if self.id_column or is_lines else _IDS
        rows = table.rows(required, optional)
        faults = Faults(table.name, self.bad_rows)
        try:
            yield from convert_rows(rows, self._text_row, faults)
        except MissingColumn as error:
            is_text = error.column == self.text_column
            name = "text_column" if is_text else "id_column"
            raise UserError(f"{error} Choose one with `{name}`.") from None
        finally:
            rows.close()

    def _text_row(self, row: Row) -> TextRow:
        cell, *ids = row.cells
        text = text_of(cell, self.text_column, row.place)
        if not text.strip():
            raise Fault(
                "an empty text",
                f"{row.place}: the text in {self.text_column!r} is empty "
                f"({excerpt(text)}); correct the row.",
            )
        found = next((each for each in ids if each is not None), None)
        if found is None:
            return TextRow(row.position, text)
        return TextRow(text_of(found, "the id", row.place), text)


@dataclasses.dataclass(frozen=True)
class EmbedSettings(TextSettings):
    """How to read texts, and what to write of their vectors."""

    prompt_name: str = setting(
        "",
        "name of the folder's prompt before every text; empty is the first of "
        "document, passage and corpus that it has",
    )
    normalize: bool = setting(False, "divides each vector by its length")
    truncate_dim: int = setting(
        0,
        "how many of a vector's first numbers to keep, for models trained for "
        "that (Matryoshka); 0 is all",
        at_least=0,
    )
    vector_precision: str = setting(
        FLOAT32,
        "float32; int8 or uint8, a byte per number, whose range is that of the "
        "first file; binary or ubinary, a bit per number",
        choices=VECTOR_PRECISIONS,
    )
    file_format: str = setting(
        NPY,
        "npy, which NumPy and faiss open, with ids and texts in Parquet; or "
        "parquet, with id, text and vector",
        choices=(NPY, PARQUET),
    )
    rows_per_file: int = setting(
        20_000,
        "vectors in a file; an interrupted run loses at most as many",
        at_least=1,
    )
    max_seq_length: int = setting(
        0,
        "longest text in tokens; longer ones are truncated; 0 is as the "
        "model's folder states",
        at_least=0,
    )
    batch_size: int = like(PredictSettings, "batch_size")
    precision: str = like(
        PredictSettings,
        "precision",
        help_text="of the computation: "
        + PredictSettings.__dataclass_fields__["precision"].metadata["help"],
    )
    runtime: str = like(PredictSettings, "runtime")
