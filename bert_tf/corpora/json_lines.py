"""JSON lines: an object with a text on every line."""

import dataclasses
import pathlib
from collections.abc import Iterator

from bert_tf.corpora.raw_documents import RawDocument
from bert_tf.corpora.streams import ByteStream, Position, decode
from bert_tf.errors import UserError, excerpt
from bert_tf.files import json_object, whole_text

_KEYS_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """A file of JSON lines; a line end in a text ends a paragraph.

    Attributes:
      path: of the file.
      text_field: the key of the text.
      encoding_errors: "strict" or "replace".
    """

    path: str
    text_field: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """See `DocumentReader`; blank lines are left out."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            offset, number = start.offset, start.line
            for line in stream.short_lines(start.line):
                offset += len(line)
                number += 1
                if line.strip():
                    yield RawDocument(
                        line,
                        number,
                        stream.position(start.file, offset, number),
                        stream.disk_bytes(offset),
                    )

    def paragraphs(self, document: RawDocument) -> list[str]:
        """See `DocumentReader`."""
        line = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        place = f"{self.path}, line {document.line}"
        values = json_object(line, place, self.text_field)
        if self.text_field not in values:
            keys = ", ".join(map(str, list(values)[:_KEYS_SHOWN])) or "none"
            raise UserError(
                f"{place}: has no key {self.text_field!r} (its keys: {keys}); "
                "pass the key of the text as `text_field`."
            )
        text = values[self.text_field]
        if not isinstance(text, str):
            raise UserError(
                f"{place}: {self.text_field!r} is {excerpt(text)}; a text is "
                "wanted."
            )
        where = f"{place}: {self.text_field!r}"
        return whole_text(text, where, self.encoding_errors).split("\n")
