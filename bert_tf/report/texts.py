"""Prepares a user's texts for a page: valid characters, shortened, marked."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

# Of longer texts, only the parts around the marks are shown, or the beginning
# and the end; in characters.
_LONGEST = 600
_AROUND, _HEAD, _TAIL = 150, 200, 90
# How far a cut is moved to a word boundary, in characters.
_WORD = 30
# Line ends and tabs are the only control characters that HTML allows. Those of
# ASCII have Unicode symbols; the others and lone surrogates have none.
_PICTURES = {
    code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"
} | {0x7F: "\u2421"}
_UNSHOWABLE = re.compile("[\x80-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# Characters that start and end a directional isolate (Unicode Standard Annex 9,
# section 2.4).
_ISOLATES, _END_OF_ISOLATE = "\u2066\u2067\u2068", "\u2069"


def in_words(name: str) -> str:
    """The name of a number as prose: masked LM loss for masked_lm_loss."""
    name = name.replace("_lm_", " LM ").replace("_", " ")
    for score in ("f1", "ndcg@", "mrr@", "map@"):
        name = name.replace(score, score.upper())
    return name


def showable(text: str) -> str:
    """Replaces the characters that HTML and UTF-8 cannot hold; does not escape.

    The returned text closes every directional isolate that it opens and no
    other, so it cannot change the direction of the text around it.
    """
    text = _UNSHOWABLE.sub(
        "\ufffd", text.replace("\r\n", "\n").translate(_PICTURES)
    )
    if not any(mark in text for mark in _ISOLATES + _END_OF_ISOLATE):
        return text
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


class Mark(NamedTuple):
    """A marked part of a text.

    Attributes:
      start, end: its characters.
      label: written in front of it, so that it does not depend on color.
      style: a class of the style sheet.
      share: how strong the color is, from 0 to 1.
    """

    start: int
    end: int
    label: str
    style: str
    share: float = 1.0


class Stretch(NamedTuple):
    """A part of a text that the same marks cover.

    Attributes:
      text: the part.
      begun: the marks that begin with it.
      styles: the styles of the marks that cover it.
      share: of the strongest of them.
    """

    text: str
    begun: Sequence[Mark] = ()
    styles: Sequence[str] = ()
    share: float = 1.0


_CUT = Stretch(" \u2026 ", styles=("cut",))


class MarkedText(NamedTuple):
    """A text of any length with marks, which may overlap.

    Attributes:
      text: the text.
      heading: whose or which it is.
      marks: its marks; empty ones are ignored.
    """

    text: str
    heading: str = ""
    marks: Sequence[Mark] = ()

    def whole(self) -> list[Stretch]:
        """The text, split at the marks."""
        return self._stretches(0, len(self.text))

    def excerpt(self) -> list[Stretch] | None:
        """The parts that are shown of a long text; None for a short one."""
        size, marks = len(self.text), self._marks()
        if size <= _LONGEST:
            return None
        pieces: list[tuple[int, int]] = []
        for begin, end in [
            (max(mark.start - _AROUND, 0), min(mark.end + _AROUND, size))
            for mark in marks
        ] or [(0, _HEAD), (size - _TAIL, size)]:
            # Move the cut to a word boundary.
            blank = self.text.find(" ", begin, begin + _WORD)
            if begin and blank >= 0:
                begin = blank + 1
            blank = self.text.rfind(" ", end - _WORD, end)
            if end < size and blank > 0:
                end = blank
            if pieces and begin <= pieces[-1][1]:
                last_begin, last_end = pieces.pop()
                begin, end = last_begin, max(last_end, end)
            pieces.append((begin, end))
        found = [] if pieces[0][0] == 0 else [_CUT]
        for begin, end in pieces:
            found += [*self._stretches(begin, end), _CUT]
        return found if pieces[-1][1] < size else found[:-1]

    def _marks(self) -> list[Mark]:
        return sorted(mark for mark in self.marks if mark.start < mark.end)

    def _stretches(self, begin: int, end: int) -> list[Stretch]:
        """Splits text[begin:end], which has each mark fully or not at all."""
        inside = [mark for mark in self._marks() if begin <= mark.start < end]
        edges = sorted({begin, end, *(x for mark in inside for x in mark[:2])})
        found = []
        for first, last in itertools.pairwise(edges):
            covering = [m for m in inside if m.start <= first < m.end]
            found.append(
                Stretch(
                    self.text[first:last],
                    [mark for mark in covering if mark.start == first],
                    list(dict.fromkeys(mark.style for mark in covering)),
                    max((mark.share for mark in covering), default=1.0),
                )
            )
        return found
