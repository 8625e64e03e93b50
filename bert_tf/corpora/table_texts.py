"""Documents from a column of tables: CSV, TSV, Parquet, Arrow and Feather."""

import dataclasses
import pathlib
from collections.abc import Iterator

from bert_tf.corpora.streams import Document, Position
from bert_tf.errors import UserError
from bert_tf.tables.table import Dialect, MissingColumn, Table, text_of


@dataclasses.dataclass(frozen=True)
class TableTexts:
    """A column of a table; a line end inside a text ends a paragraph."""

    path: str
    text_field: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[Document]:
        """See `DocumentReader`; a position is a number of rows."""
        dialect = Dialect(encoding_errors=self.encoding_errors, chosen=True)
        table = Table(self.path, dialect, "inputs")
        size, total = pathlib.Path(self.path).stat().st_size, table.num_rows
        try:
            for row in table.rows([self.text_field]):
                if row.position < start.offset:
                    continue
                if row.fault:
                    raise row.fault
                text = text_of(row.cells[0], self.text_field, row.place)
                end = row.position + 1
                yield Document(
                    text.encode(),
                    row.number,
                    Position(start.file, end, end),
                    size * end // total if total else table.bytes_read,
                )
        except MissingColumn as error:
            raise UserError(f"{error} Name it with `text_field`.") from None

    def paragraphs(self, document: Document) -> list[str]:
        """See `DocumentReader`."""
        return document.content.decode().split("\n")
