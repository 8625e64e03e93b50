"""Extracts the text of articles from a MediaWiki XML dump.

A dump is one `<mediawiki>` element with a `<siteinfo>` and a `<page>` element
for each page. Inside them "<" occurs only as markup, so pages are found by
their tags and each is parsed as XML separately.

As in the paper (Devlin et al. 2019, section 3.1) only the text passages of an
article are kept: templates, tables, lists, headers, references, files,
formulas, code and comments are removed; links, bold type and HTML are reduced
to their text.
"""

import contextlib
import dataclasses
import html
import pathlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from bert_tf.corpora.streams import (
    MAX_LINE_BYTES,
    ByteStream,
    Document,
    Position,
    decode,
)
from bert_tf.errors import UserError

_READ_BYTES = 1 << 20
# <mediawiki> begins before this, after at most an XML declaration.
_HEAD_BYTES = 1 << 16
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ARTICLES = "0"
_WIKITEXT = "wikitext"
# Namespaces of files, categories and media: their links show no text.
_HIDDEN = ("6", "14", "-2")
_HIDDEN_IN_ENGLISH = ("file", "image", "category", "media")

_COMMENTS = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# Elements that are removed with their content.
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
# XML never contains these characters. The first two enclose the number of a
# literal text; the third replaces removed markup: without it, the text after it
# would look like a line that begins with a space, which is code.
_NO_MARKS = str.maketrans("", "", "\x01\x02\x03")
_CUT = "\x03"
_LITERALS = re.compile(r"\x01(\d+)\x02")
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
# A link to the same article in another language is on a separate line.
_LANGUAGE_LINKS = re.compile(
    r"^\s*\[\[(?:[a-z]{2,3}(?:-[a-z]+)*|simple):[^\[\]|]*\]\]\s*$", re.MULTILINE
)
_STRAY = re.compile(r"\{\{+|\}\}+|\[\[+|\]\]+|\{\||\|\}")
_HEADER = re.compile(r"=.*=\s*$")
# Lists, indented lines and definitions; rows of broken tables; rules.
_NO_PASSAGE = (*"*#:;|!", "----")
_EMPTY_PARENTHESES = re.compile(r"\([\s,;:–—/-]*\)|（[\s，；、,;:-]*）|\[\s*\]")
_REPEATED_COMMAS = re.compile(r"([,;])(?:\s*[,;])+")
_AFTER_PARENTHESIS = re.compile(r"(?<=[(（])[\s,;:、，；]+")
_BEFORE_COMMA = re.compile(r" (?=[,.;:!)](?:\s|$))")


@dataclasses.dataclass(frozen=True)
class WikipediaDump:
    """A dump, of which only the articles are read.

    Attributes:
      path: the file.
      hidden: lower-case names of the namespaces whose links show no text.
      encoding_errors: see `CorpusRecipe`.
    """

    path: str
    hidden: frozenset[str]
    encoding_errors: str

    @classmethod
    def open(cls, path: str, encoding_errors: str) -> "WikipediaDump":
        """Reads the names of the namespaces from the head of a dump."""
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
        return cls(path, _hidden_namespaces(head), encoding_errors)

    def documents(self, start: Position) -> Iterator[Document]:
        """See `DocumentReader`; every page is a document."""
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
                    text, at = text[at:], 0
                    if len(text) > MAX_LINE_BYTES:
                        raise UserError(
                            f"{self.path}: the page after line {line + 1} has "
                            f"more than {MAX_LINE_BYTES >> 20} MB; dumps with "
                            "the history of every page are not read, download "
                            "pages-articles."
                        )
                    text += data
                    continue
                end += len(b"</page>")
                page_line = line + text.count(b"\n", at, begin) + 1
                line += text.count(b"\n", at, end)
                offset += end - at
                yield Document(
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

    def paragraphs(self, document: Document) -> list[str]:
        """See `DocumentReader`; empty unless the page is an article."""
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
        revisions = page.findall("revision")
        if (
            not revisions
            or page.find("redirect") is not None
            or page.findtext("ns", _ARTICLES).strip() != _ARTICLES
        ):
            return []
        latest = revisions[-1]
        if latest.findtext("model", _WIKITEXT).strip() != _WIKITEXT:
            return []
        return passages(latest.findtext("text", ""), self.hidden)


def _hidden_namespaces(head: bytes) -> frozenset[str]:
    """Returns the names in English and in the language of the dump."""
    names = {*_HIDDEN_IN_ENGLISH}
    begin, end = head.find(b"<namespaces>"), head.find(b"</namespaces>")
    if 0 <= begin < end:
        # Without valid XML, only the names in the dump's language are missing.
        with contextlib.suppress(ElementTree.ParseError):
            names.update(
                (space.text or "").strip().lower()
                for space in ElementTree.fromstring(
                    head[begin : end + len(b"</namespaces>")]
                )
                if space.get("key") in _HIDDEN
            )
    return frozenset(names - {""})


def passages(source: str, hidden: frozenset[str]) -> list[str]:
    """Converts MediaWiki markup to paragraphs of plain text.

    Args:
      source: the markup of a page.
      hidden: lower-case names of the namespaces whose links show no text.
    """
    text = _COMMENTS.sub("", source.translate(_NO_MARKS))
    literals: list[str] = []

    def literal(match: re.Match) -> str:
        """Replaces <nowiki> text, which holds no markup, by a placeholder."""
        if not match[1]:
            return ""
        literals.append(_TAGS.sub("", match[1]))
        return f"\x01{len(literals) - 1}\x02"

    text = _NOWIKI.sub(literal, text)
    text = _EMPTY_ELEMENTS.sub(_CUT, text)
    # Each pass removes the innermost elements.
    removed = 1
    while removed:
        text, removed = _ELEMENTS.subn(_CUT, text)
    text = _VARIANTS.sub(lambda match: _first_variant(match[1]), text)
    text = _without(
        text,
        (
            (m.start(), m.end(), len(m[0]) if m[0][0] == "{" else -len(m[0]))
            for m in _BRACES.finditer(text)
        ),
    )
    text = _without(
        text,
        (
            (m.start(), m.end(), 1 if m["open"] else -1)
            for m in _TABLE_MARKS.finditer(text)
        ),
    )
    text = _LANGUAGE_LINKS.sub("\n", text)
    text = _with_link_texts(text, hidden)
    text = _STRAY.sub("", text)
    text = _EXTERNAL.sub(lambda match: match[1] or "", text)
    text = _MAIL.sub(lambda match: match[1] or "", text)
    text = _MAGIC_WORDS.sub("", text)
    text = _QUOTES.sub(lambda match: "'" * (len(match[0]) == 4), text)
    text = _BREAKS.sub(f"\n\n{_CUT}", text)
    text = _TAGS.sub("", text)
    paragraphs = []
    for paragraph in _paragraphs(text):
        plain = _LITERALS.sub(lambda match: literals[int(match[1])], paragraph)
        plain = html.unescape(plain)
        plain = _REPEATED_COMMAS.sub(r"\1", plain).lstrip(" ,;:")
        plain = _EMPTY_PARENTHESES.sub("", plain)
        plain = _AFTER_PARENTHESIS.sub("", plain)
        plain = _BEFORE_COMMA.sub("", " ".join(plain.split()))
        if any(character.isalnum() for character in plain):
            paragraphs.append(plain)
    return paragraphs


def _first_variant(text: str) -> str:
    """Returns the first text of -{zh-hans:...;zh-hant:...}-, or all of it."""
    first, colon, rest = text.partition(":")
    if colon and re.fullmatch(r"[\w|-]+", first):
        return rest.partition(";")[0]
    return "" if "=>" in text else text.rpartition("|")[2]


def _without(text: str, marks: Iterator[tuple[int, int, int]]) -> str:
    """Removes nested pairs of marks and their content.

    Args:
      text: the text.
      marks: start, end and depth of each mark, positive if it opens; an
        unclosed one extends to the end of its line.
    """
    opened: list[list[int]] = []
    spans: list[tuple[int, int]] = []
    for start, end, depth in marks:
        if depth > 0:
            opened.append([start, depth])
            continue
        while depth and opened:
            closed = min(opened[-1][1], -depth)
            opened[-1][1] -= closed
            depth += closed
            if not opened[-1][1]:
                spans.append((opened.pop()[0], end))
    for start, _ in opened:
        line_end = text.find("\n", start)
        spans.append((start, len(text) if line_end < 0 else line_end))
    outermost: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if outermost and start < outermost[-1][1]:
            start, before = outermost.pop()
            end = max(end, before)
        outermost.append((start, end))
    ends = [0, *(end for _, end in outermost)]
    starts = [*(start for start, _ in outermost), len(text)]
    return _CUT.join(
        text[end:start] for end, start in zip(ends, starts, strict=True)
    )


def _with_link_texts(text: str, hidden: frozenset[str]) -> str:
    """Replaces every [[...]] by the text that it shows."""
    opened: list[list[str]] = [[]]
    end = 0
    for match in _BRACKETS.finditer(text):
        opened[-1].append(text[end : match.start()])
        end = match.end()
        if match[0] == "[[":
            opened.append([])
        elif len(opened) > 1:
            inside = "".join(opened.pop())
            opened[-1].append(_link_text(inside, hidden))
    opened[-1].append(text[end:])
    return "".join(part for parts in opened for part in parts)


def _link_text(inside: str, hidden: frozenset[str]) -> str:
    """Returns the text of a link whose nested links are replaced already."""
    target, bar, shown = inside.partition("|")
    target = target.strip()
    space, colon, _ = target.partition(":")
    space = space.strip().replace("_", " ").lower()
    if colon and space in hidden:
        return _CUT
    if bar:
        return shown.strip() and shown.rpartition("|")[2]
    return target.removeprefix(":").replace("_", " ")


def _paragraphs(text: str) -> Iterator[str]:
    """Yields runs of lines that are not headers, lists, tables or code."""
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
