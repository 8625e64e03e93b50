"""Articles out of a MediaWiki XML dump.

A dump is one `<mediawiki>` with a `<siteinfo>` and a `<page>` for each page, in
which "<" occurs as markup alone. Pages are found by that, and each is parsed
as XML of its own.

As in the paper (section 3.1) only the passages of an article are kept:
templates, tables, lists, headers, references, files, formulas, code and
comments are left out, and of links, bold type and HTML the text alone stays.
"""

import dataclasses
import html
import pathlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from bert_tf.corpora.streams import (
    MAX_LINE_BYTES,
    ByteStream,
    Position,
    RawDocument,
    decode,
)
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

_COMMENTS = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# Elements that go with all that they hold.
_DROPPED = (
    "ref|references|math|chem|ce|gallery|timeline|table|source|"
    "syntaxhighlight|pre|score|imagemap|hiero|graph|mapframe|maplink|"
    "templatestyles|templatedata|noinclude|includeonly|ul|ol|dl|"
    "categorytree|inputbox|indicator|style|script|rp|rt"
)
_EMPTY_ELEMENTS = re.compile(rf"<(?:{_DROPPED})\b[^<>]*/>", re.IGNORECASE)
_ELEMENTS = re.compile(
    rf"<({_DROPPED})\b[^<>]*(?<!/)>(?:(?!<\1\b).)*?</\1\s*>",
    re.IGNORECASE | re.DOTALL,
)
_NOWIKI = re.compile(
    r"<nowiki\s*/>|<nowiki\s*>(.*?)</nowiki\s*>", re.IGNORECASE | re.DOTALL
)
# No XML holds these characters. The first two stand around the number of a
# literal text, the third where something was cut out: without it, what
# follows would look like a line that begins with a blank, which is code.
_NO_MARKS = str.maketrans("", "", "\x01\x02\x03")
_CUT = "\x03"
_PLACES = re.compile(r"\x01(\d+)\x02")
_BREAKS = re.compile(
    r"</?(?:br|p|div|blockquote|poem|center|hr|tr|td|th|h[1-6])\b[^<>]*>",
    re.IGNORECASE,
)
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>")
_BRACES = re.compile(r"\{{2,}|\}{2,}")
_TABLE_MARKS = re.compile(
    r"^[ \t:*#\x03]*(?P<open>\{\|)|^[ \t\x03]*\|\}(?!\})", re.MULTILINE
)
_BRACKETS = re.compile(r"\[\[|\]\]")
_EXTERNAL = re.compile(
    r"\[(?:https?:|ftp:|mailto:|news:|irc:)?//[^\s\[\]]*(?:[^\S\n]+([^\[\]\n]*))?\]",
    re.IGNORECASE,
)
_MAIL = re.compile(r"\[mailto:[^\s\[\]]*(?:\s+([^\[\]\n]*))?\]", re.IGNORECASE)
_QUOTES = re.compile(r"'{2,}")
_MAGIC_WORDS = re.compile(r"__[A-Z]{3,}__")
_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
# A link to the same article in another language stands on a line of its own.
_LANGUAGE_LINKS = re.compile(
    r"^\s*\[\[(?:[a-z]{2,3}(?:-[a-z]+)*|simple):[^\[\]|]*\]\]\s*$", re.MULTILINE
)
_STRAY = re.compile(r"\{\{+|\}\}+|\[\[+|\]\]+|\{\||\|\}")
_HEADER = re.compile(r"=.*=\s*$")
# Lists, indented lines and definitions; rows that a broken table left; rules.
_NO_PASSAGE = (*"*#:;|!", "----")
_EMPTY_PARENTHESES = re.compile(r"\([\s,;:–—/-]*\)|（[\s，；、,;:-]*）|\[\s*\]")
_REPEATED_COMMAS = re.compile(r"([,;])(?:\s*[,;])+")
_AFTER_PARENTHESIS = re.compile(r"(?<=[(（])[\s,;:、，；]+")
_BEFORE_COMMA = re.compile(r" (?=[,.;:!)](?:\s|$))")


@dataclasses.dataclass(frozen=True)
class WikipediaDump:
    """A dump, of which the articles are taken.

    `unshown` are the lower-case names of the namespaces whose links show no
    text.
    """

    path: str
    unshown: frozenset[str]
    encoding_errors: str

    @classmethod
    def open(cls, path: str, encoding_errors: str) -> "WikipediaDump":
        """Reads the names of a dump's namespaces."""
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
        if len(text) > MAX_LINE_BYTES:
            raise UserError(
                f"{self.path}: the page after line {line + 1} has more than "
                f"{MAX_LINE_BYTES >> 20} MB; dumps with the history of "
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


def passages(source: str, unshown: frozenset[str]) -> list[str]:
    """The paragraphs of a page in MediaWiki's markup as plain text."""
    text = _COMMENTS.sub("", source.translate(_NO_MARKS))
    literals: list[str] = []
    text = _NOWIKI.sub(lambda match: _keep(match, literals), text)
    text = _EMPTY_ELEMENTS.sub(_CUT, text)
    # The innermost elements first.
    dropped = 1
    while dropped:
        text, dropped = _ELEMENTS.subn(_CUT, text)
    text = _VARIANTS.sub(lambda match: _first_variant(match[1]), text)
    text = _without_templates(text)
    text = _without_tables(text)
    text = _LANGUAGE_LINKS.sub("\n", text)
    text = _with_link_texts(text, unshown)
    text = _STRAY.sub("", text)
    text = _EXTERNAL.sub(lambda match: match[1] or "", text)
    text = _MAIL.sub(lambda match: match[1] or "", text)
    text = _MAGIC_WORDS.sub("", text)
    text = _QUOTES.sub(lambda match: "'" * (len(match[0]) == 4), text)
    text = _BREAKS.sub(f"\n\n{_CUT}", text)
    text = _TAGS.sub("", text)
    found = []
    for paragraph in _paragraphs(text):
        plain = _PLACES.sub(lambda match: literals[int(match[1])], paragraph)
        plain = html.unescape(plain)
        plain = _REPEATED_COMMAS.sub(r"\1", plain).lstrip(" ,;:")
        plain = _EMPTY_PARENTHESES.sub("", plain)
        plain = _AFTER_PARENTHESIS.sub("", plain)
        plain = _BEFORE_COMMA.sub("", " ".join(plain.split()))
        if any(character.isalnum() for character in plain):
            found.append(plain)
    return found


def _keep(match: re.Match, literals: list[str]) -> str:
    """A placeholder for the text of <nowiki>, which holds no markup."""
    if not match[1]:
        return ""
    literals.append(_TAGS.sub("", match[1]))
    return f"\x01{len(literals) - 1}\x02"


def _first_variant(text: str) -> str:
    """The text of -{zh-hans:...;zh-hant:...}-: the first, or all of it."""
    first, colon, rest = text.partition(":")
    if colon and re.fullmatch(r"[\w|-]+", first):
        return rest.partition(";")[0]
    return "" if "=>" in text else text.rpartition("|")[2]


def _spans(
    text: str, marks: Iterator[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """The outermost pairs of nested marks; an open one goes to its line's end.

    Args:
      text: what the marks are in.
      marks: start, end and depth of each: positive if it opens.
    """
    opened: list[list[int]] = []
    found: list[tuple[int, int]] = []
    for start, end, depth in marks:
        if depth > 0:
            opened.append([start, depth])
            continue
        while depth and opened:
            closed = min(opened[-1][1], -depth)
            opened[-1][1] -= closed
            depth += closed
            if not opened[-1][1]:
                found.append((opened.pop()[0], end))
    for start, _ in opened:
        line_end = text.find("\n", start)
        found.append((start, len(text) if line_end < 0 else line_end))
    outermost: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if outermost and start < outermost[-1][1]:
            start, before = outermost.pop()
            end = max(end, before)
        outermost.append((start, end))
    return outermost


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    """The text without some spans, their places marked."""
    kept, end = [], 0
    for start, stop in spans:
        kept.append(text[end:start])
        end = stop
    return _CUT.join([*kept, text[end:]])


def _without_templates(text: str) -> str:
    """Drops {{...}}, with what is nested in it."""
    marks = (
        (m.start(), m.end(), len(m[0]) if m[0][0] == "{" else -len(m[0]))
        for m in _BRACES.finditer(text)
    )
    return _cut(text, _spans(text, marks))


def _without_tables(text: str) -> str:
    """Drops {|...|}, with what is nested in it."""
    marks = (
        (m.start(), m.end(), 1 if m["open"] else -1)
        for m in _TABLE_MARKS.finditer(text)
    )
    return _cut(text, _spans(text, marks))


def _with_link_texts(text: str, unshown: frozenset[str]) -> str:
    """Puts the text that is shown in the place of [[...]]."""
    opened: list[list[str]] = [[]]
    end = 0
    for match in _BRACKETS.finditer(text):
        opened[-1].append(text[end : match.start()])
        end = match.end()
        if match[0] == "[[":
            opened.append([])
        elif len(opened) > 1:
            inside = "".join(opened.pop())
            opened[-1].append(_link_text(inside, unshown))
    opened[-1].append(text[end:])
    return "".join(part for parts in opened for part in parts)


def _link_text(inside: str, unshown: frozenset[str]) -> str:
    """What a link shows, of whose brackets the inner links are replaced."""
    target, bar, shown = inside.partition("|")
    target = target.strip()
    space, colon, _ = target.partition(":")
    space = space.strip().replace("_", " ").lower()
    if colon and space in unshown:
        return _CUT
    if bar:
        return shown.strip() and shown.rpartition("|")[2]
    return target.removeprefix(":").replace("_", " ")


def _paragraphs(text: str) -> Iterator[str]:
    """Runs of lines that are no header, list, table or code."""
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        is_code = line.startswith(" ")
        line = line.replace(_CUT, "").strip()
        is_text = line and not is_code and not line.startswith(_NO_PASSAGE)
        if is_text and not _HEADER.match(line):
            lines.append(line)
        elif lines:
            yield " ".join(lines)
            lines = []
