"""Texts with marked stretches, for pages; none of a text becomes markup."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.finetuning.report.html import passage, shown

# Texts above this are shown around their marks alone, in characters.
_LONGEST = 600
_AROUND = 150
# How far a cut is moved to the end of a word.
_WORD = 30


class Mark(NamedTuple):
    """A stretch of a text.

    Attributes:
      start: its first character.
      end: the one behind its last.
      label: what stands before it, so that colour is not all that tells.
      style: its class in the style sheet.
    """

    start: int
    end: int
    label: str
    style: str


def marked(text: str, marks: Sequence[Mark]) -> str:
    """A text with its marks, which may overlap, as HTML.

    Args:
      text: any text; of a long one what is around the marks, and the whole to
        unfold.
      marks: within the text; empty ones are left out.
    """
    marks = sorted(mark for mark in marks if mark.start < mark.end)
    if not marks:
        return passage(text)
    if len(text) <= _LONGEST:
        body = _stretch(text, 0, len(text), marks)
        return f'<p class="text" dir="auto">{body}</p>'
    cut = ' <span class="cut">\u2026</span> '
    pieces = _around(text, marks)
    body = cut.join(_stretch(text, *piece, marks) for piece in pieces)
    before = cut.lstrip() if pieces[0][0] else ""
    after = cut.rstrip() if pieces[-1][1] < len(text) else ""
    whole = _stretch(text, 0, len(text), marks)
    return (
        f'<p class="text" dir="auto">{before}{body}{after}</p>'
        f"<details><summary>Full text, {len(text):,} characters</summary>"
        f'<p class="text whole" dir="auto">{whole}</p></details>'
    )


def _around(text: str, marks: Sequence[Mark]) -> list[tuple[int, int]]:
    """Where the pieces begin and end that hold all marks."""
    pieces: list[tuple[int, int]] = []
    for mark in marks:
        begin = max(mark.start - _AROUND, 0)
        end = min(mark.end + _AROUND, len(text))
        # To the end of the word that the cut goes through.
        if begin and (blank := text.find(" ", begin, begin + _WORD)) >= 0:
            begin = blank + 1
        if end < len(text) and (blank := text.rfind(" ", end - _WORD, end)) > 0:
            end = blank
        if pieces and begin <= pieces[-1][1]:
            last_begin, last_end = pieces.pop()
            begin, end = last_begin, max(last_end, end)
        pieces.append((begin, end))
    return pieces


def _stretch(text: str, begin: int, end: int, marks: Sequence[Mark]) -> str:
    """A part of a text, which cuts no mark in two."""
    inside = [mark for mark in marks if begin <= mark.start < end]
    edges = sorted({begin, end, *(x for mark in inside for x in mark[:2])})
    parts = []
    for first, last in itertools.pairwise(edges):
        covering = [m for m in inside if m.start <= first < m.end]
        labels = "".join(
            f'<b class="label {mark.style}"><bdi>{shown(mark.label)}</bdi></b>'
            for mark in covering
            if mark.start == first
        )
        content = f"<bdi>{shown(text[first:last])}</bdi>"
        if covering:
            styles = " ".join(dict.fromkeys(mark.style for mark in covering))
            content = f'<mark class="{styles}">{content}</mark>'
        parts.append(labels + content)
    return "".join(parts)
