"""Running text whose sentences stand anywhere."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator

from bert_tf.corpora.raw_documents import DOCUMENT_BYTES, RawDocument
from bert_tf.corpora.recipe import BLANK_LINE, FILE, LINE
from bert_tf.corpora.streams import ByteStream, Position, decode

_BLANK_LINES = re.compile(r"\n\s*\n")


@dataclasses.dataclass(frozen=True)
class PlainText:
    """A file of text.

    A sentence may go over line ends, not over blank lines.

    Attributes:
      path: of the file.
      document_end: "blank_line", "file" or "line".
      encoding_errors: "strict" or "replace".
    """

    path: str
    document_end: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """See `DocumentReader`; blank documents are left out."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            lines: list[bytes] = []
            size, offset, number = 0, start.offset, start.line
            for line in stream.short_lines(start.line):
                offset += len(line)
                number += 1
                blank = not line.strip()
                if lines or not blank:
                    lines.append(line)
                    size += len(line)
                too_long = size >= DOCUMENT_BYTES
                if lines and (too_long or self._ends(blank)):
                    yield RawDocument(
                        b"".join(lines),
                        number - len(lines) + 1,
                        stream.position(start.file, offset, number),
                        stream.disk_bytes(offset),
                        cut=not self._ends(blank),
                    )
                    lines, size = [], 0
            if lines:
                yield RawDocument(
                    b"".join(lines),
                    number - len(lines) + 1,
                    stream.position(start.file, offset, number),
                    stream.disk_bytes(offset),
                )

    def _ends(self, blank: bool) -> bool:
        return self.document_end == LINE or (
            blank and self.document_end == BLANK_LINE
        )

    def paragraphs(self, document: RawDocument) -> list[str]:
        """See `DocumentReader`."""
        text = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        text = text.removeprefix("\ufeff")
        return _BLANK_LINES.split(text) if self.document_end == FILE else [text]
