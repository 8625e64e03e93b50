"""Pieces of HTML in which nothing of the user's can become markup."""

import base64
import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Where a shortened text is cut, in characters.
_HEAD, _TAIL = 200, 90
_LONGEST_WORD = 30
# Line ends and tabs are the only control characters HTML may hold; those of
# ASCII have pictures, the others and lone surrogates have none.
_PICTURES = {
    code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"
} | {0x7F: "\u2421"}
_UNSHOWABLE = re.compile("[\x80-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


# Marks that begin a stretch with a direction of its own, and the one that ends
# it (Unicode Standard Annex 9, section 2.4).
_ISOLATES, _END_OF_ISOLATE = "\u2066\u2067\u2068", "\u2069"


def shown(text: str) -> str:
    """Any string as HTML text or attribute: escaped, and valid UTF-8."""
    visible = text.replace("\r\n", "\n").translate(_PICTURES)
    visible = _balanced(_UNSHOWABLE.sub("\ufffd", visible))
    return html.escape(visible, quote=True)


def _balanced(text: str) -> str:
    """Ends every isolate that the text begins, and no other.

    One too many or too few would open or swallow the end of the element
    around the text, and turn our own words around.
    """
    depth, kept = 0, []
    for character in text:
        if character in _ISOLATES:
            depth += 1
        elif character == _END_OF_ISOLATE:
            if not depth:
                continue
            depth -= 1
        kept.append(character)
    return "".join(kept) + _END_OF_ISOLATE * depth


def inline(value: Any) -> str:
    """A user's value in a line of ours.

    Marks of writing direction end with it and do not turn what follows.
    """
    if isinstance(value, float):
        # Exact: a setting is no measurement.
        return f'<span class="whole-word">{value!r}</span>'
    if isinstance(value, list | tuple):
        return ", ".join(map(inline, value)) or "none"
    if value is None:
        return "\u2013"
    text = value if isinstance(value, str) else str(value)
    return f"<bdi>{shown(text)}</bdi>" if text.strip() else "<i>empty</i>"


def passage(text: str) -> str:
    """A text of any length: its two ends, and the whole to unfold."""
    if not text.strip():
        return '<p class="text"><i>empty</i></p>'
    if len(text) <= _HEAD + _TAIL + 40:
        return f'<p class="text" dir="auto">{shown(text)}</p>'
    # Inner spaces in the short form would only push the words out of it.
    head, tail = " ".join(text[:_HEAD].split()), " ".join(text[-_TAIL:].split())
    # The word that the cut goes through is left out, but for very long ones.
    if len(last := head.rpartition(" ")[2]) < _LONGEST_WORD:
        head = head[: len(head) - len(last)].rstrip()
    if len(first := tail.partition(" ")[0]) < _LONGEST_WORD:
        tail = tail[len(first) :].lstrip()
    return (
        f'<p class="text" dir="auto">{shown(head)} '
        f'<span class="cut">\u2026</span> {shown(tail)}</p>'
        f"<details><summary>Full text, {len(text):,} characters</summary>"
        f'<p class="text whole" dir="auto">{shown(text)}</p></details>'
    )


def number(value: float | None) -> str:
    """A number with as many digits as mean something."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    if isinstance(value, int) or value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def words(name: str) -> str:
    """A metric's or a split's name as plain text."""
    text = name.replace("_", " ").replace("f1", "F1")
    return text[:1].upper() + text[1:]


def named(name: str) -> str:
    """A metric's or a split's name as HTML."""
    return shown(words(name))


def model_named(name: str) -> str:
    """A published model's name as words: bert_base is BERT base."""
    return named(name).replace("Bert ", "BERT ")


def hundredths(value: float | None) -> str:
    """A score times 100, as tables of results print it."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    return f"{100 * value:.1f}"


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    texts: Sequence[int] = (0,),
) -> str:
    """A table whose cells are HTML, numbers to the right.

    Args:
      caption: what it holds.
      header: the names of the columns.
      rows: the cells, the first of each row being its name.
      texts: the columns that hold words and are set to the left.
    """

    def cell(tag: str, scope: str, column: int, content: str) -> str:
        kind = "" if column in texts else ' class="number"'
        return f"<{tag}{scope}{kind}>{content}</{tag}>"

    head = "".join(
        cell("th", ' scope="col"', i, name) for i, name in enumerate(header)
    )
    body = "".join(
        "<tr>"
        + cell("th", ' scope="row"', 0, row[0])
        + "".join(cell("td", "", i, x) for i, x in enumerate(row[1:], 1))
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{shown(caption)}" '
        f'tabindex="0"><table><caption>{shown(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def figure(svg: bytes, description: str, note: str) -> str:
    """A picture with its description for who cannot see it, and a note.

    Args:
      svg: the picture.
      description: plain text.
      note: HTML under the picture.
    """
    data = base64.b64encode(svg).decode("ascii")
    return (
        f'<figure><img alt="{shown(description)}" '
        f'src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{note}</figcaption></figure>"
    )


def section(identifier: str, title: str, *parts: str) -> str:
    """A part of the page; empty where it holds nothing."""
    content = "\n".join(part for part in parts if part)
    if not content:
        return ""
    return f'<section id="{identifier}"><h2>{title}</h2>\n{content}\n</section>'
