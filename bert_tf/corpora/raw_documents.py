"""What every format of a corpus gives: documents as they stand in a file."""

import dataclasses
from collections.abc import Iterator
from typing import Protocol

from bert_tf.corpora.streams import Position

# A document of more text than this is cut, so that memory stays bounded.
DOCUMENT_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class RawDocument:
    """A document before it is taken apart.

    Attributes:
      content: its bytes.
      line: the line or row it begins on, counted from 1.
      end: the place after it.
      disk_bytes: bytes of the file that were read up to there.
      cut: whether it was too long and goes on as another one.
    """

    content: bytes
    line: int
    end: Position
    disk_bytes: int
    cut: bool = False


class DocumentReader(Protocol):
    """A file in one format; it can be pickled.

    Finding documents is cheap and is done in order; taking them apart is not,
    and can be done anywhere.
    """

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """The documents from a place on.

        Raises:
          UserError: the file is damaged or is none of this format.
        """

    def paragraphs(self, document: RawDocument) -> list[str]:
        """The text of a document, of which a sentence is in one paragraph.

        Raises:
          UserError: the document has no text, or bytes that are not UTF-8;
            it names the line.
        """
