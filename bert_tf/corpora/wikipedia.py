"""Articles out of a MediaWiki XML dump.

A dump is one `<mediawiki>` with a `<siteinfo>` and a `<page>` for each page, in
which "<" occurs as markup alone. Pages are found by that, and each is parsed
as XML of its own.
"""

import dataclasses
import pathlib
from collections.abc import Iterator
from xml.etree import ElementTree

from bert_tf.corpora.raw_documents import RawDocument
from bert_tf.corpora.streams import (
    MOST_BYTES_AT_ONCE,
    ByteStream,
    Position,
    decode,
)
from bert_tf.corpora.wikitext import passages
from bert_tf.errors import UserError

_READ_BYTES = 1 << 20
# <mediawiki> stands before this, behind an XML declaration at most.
_HEAD_BYTES = 1 << 16
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ARTICLES = "0"
_WIKITEXT = "wikitext"
# Namespaces of files, categories and media: their links show no text.
_UNSHOWN = ("6", "14", "-2")
_UNSHOWN_IN_ENGLISH = ("file", "image", "category", "media")


@dataclasses.dataclass(frozen=True)
class WikipediaDump:
    """A dump, of which the articles are taken.

    Attributes:
      path: of the file.
      unshown: lower-case names of the namespaces whose links show no text.
      encoding_errors: "strict" or "replace".
    """

    path: str
    unshown: frozenset[str]
    encoding_errors: str

    @classmethod
    def open(cls, path: str, encoding_errors: str) -> "WikipediaDump":
        """Reads the names of a dump's namespaces.

        Raises:
          UserError: it is no dump.
        """
        head = b""
        with ByteStream(pathlib.Path(path), Position()) as stream:
            while b"</siteinfo>" not in head and b"<page>" not in head:
                data = stream.read(_HEAD_BYTES)
                head += data
                if not data or b"<mediawiki" not in head:
                    break
        if head.startswith(_UTF_16):
            raise UserError(
                f"{path}: is UTF-16; convert it to UTF-8, for example with "
                "iconv -f UTF-16 -t UTF-8."
            )
        if b"<mediawiki" not in head:
            raise UserError(
                f"{path}: is no dump of a wiki, which begins with <mediawiki; "
                "download a file NAME-pages-articles.xml.bz2, or pass "
                "`input_format` if it holds something else."
            )
        return cls(path, _unshown(head), encoding_errors)

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """See `DocumentReader`; every page, articles or not."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            text, at = b"", 0
            offset, line = start.offset, start.line
            while True:
                begin = text.find(b"<page>", at)
                end = text.find(b"</page>", begin) if begin >= 0 else -1
                if end < 0:
                    data = stream.read(_READ_BYTES)
                    if not data:
                        break
                    text, at = self._more(text[at:], data, line), 0
                    continue
                end += len(b"</page>")
                page_line = line + text.count(b"\n", at, begin) + 1
                line += text.count(b"\n", at, end)
                offset += end - at
                yield RawDocument(
                    text[begin:end],
                    page_line,
                    stream.position(start.file, offset, line),
                    stream.disk_bytes(offset),
                )
                at = end
            if b"</mediawiki>" not in text[at:]:
                raise UserError(
                    f"{self.path}: ends in the middle of the dump, behind line "
                    f"{line + 1}; download it again."
                )

    def _more(self, text: bytes, data: bytes, line: int) -> bytes:
        """What was read with what comes."""
        if len(text) > MOST_BYTES_AT_ONCE:
            raise UserError(
                f"{self.path}: the page after line {line + 1} has more than "
                f"{MOST_BYTES_AT_ONCE >> 20} MB; dumps with the history of "
                "every page are not read, download pages-articles."
            )
        return text + data

    def paragraphs(self, document: RawDocument) -> list[str]:
        """See `DocumentReader`; none unless the page is an article."""
        text = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        try:
            page = ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise UserError(
                f"{self.path}, line {document.line}: the page that begins "
                f"there is not XML ({error})."
            ) from None
        if page.findtext("ns", _ARTICLES).strip() != _ARTICLES:
            return []
        if page.find("redirect") is not None:
            return []
        revisions = page.findall("revision")
        if not revisions:
            return []
        latest = revisions[-1]
        if latest.findtext("model", _WIKITEXT).strip() != _WIKITEXT:
            return []
        return passages(latest.findtext("text", ""), self.unshown)


def _unshown(head: bytes) -> frozenset[str]:
    """The namespaces of a dump's head that show no text, in its language."""
    names = {*_UNSHOWN_IN_ENGLISH}
    begin, end = head.find(b"<namespaces>"), head.find(b"</namespaces>")
    if 0 <= begin < end:
        try:
            found = ElementTree.fromstring(
                head[begin : end + len(b"</namespaces>")]
            )
        except ElementTree.ParseError:
            # Only the names in this language are lost.
            return frozenset(names)
        names.update(
            (space.text or "").strip().lower()
            for space in found
            if space.get("key") in _UNSHOWN
        )
    return frozenset(names - {""})
