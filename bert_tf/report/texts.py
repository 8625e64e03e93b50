"""Prepares a user's texts for a page: valid characters, shortened, marked."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Characters of a shortened text at its beginning and its end.
_HEAD, _TAIL = 200, 90
_LONGEST_WORD = 30
# Of longer texts, only the parts around the marks are shown, in characters.
_LONGEST_MARKED = 600
_AROUND = 150
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
    return name.replace("_lm_", " LM ").replace("_", " ").replace("f1", "F1")


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


def shortened(text: str) -> tuple[str, str] | None:
    """The beginning and the end of a long text; None for a short one."""
    if len(text) <= _HEAD + _TAIL + 40:
        return None
    # Runs of spaces would displace the words.
    head, tail = " ".join(text[:_HEAD].split()), " ".join(text[-_TAIL:].split())
    # A word that is cut is left out, unless it is very long.
    if len(last := head.rpartition(" ")[2]) < _LONGEST_WORD:
        head = head[: len(head) - len(last)].rstrip()
    if len(first := tail.partition(" ")[0]) < _LONGEST_WORD:
        tail = tail[len(first) :].lstrip()
    return head, tail


class Mark(NamedTuple):
    """A marked part of a text.

    Attributes:
      start, end: its characters.
      label: written in front of it, so that it does not depend on color.
      style: a class of the style sheet.
    """

    start: int
    end: int
    label: str
    style: str


class Stretch(NamedTuple):
    """A part of a text that the same marks cover.

    Attributes:
      text: the part.
      begun: the marks that begin with it.
      styles: the styles of the marks that cover it.
    """

    text: str
    begun: tuple[Mark, ...]
    styles: tuple[str, ...]


def answer_marks(mistake: Mapping[str, Any]) -> list[Mark]:
    """Marks of the gold answers at their offsets, and of the predicted one."""
    context = mistake["context"]
    spans = dict.fromkeys(
        (each["start"], each["start"] + len(each["text"]))
        for each in mistake["answers"]
        if context.startswith(each["text"], each["start"])
    )
    marks = [Mark(*span, "true", "gold") for span in spans]
    if mistake["start"] >= 0:
        given = mistake["start"], mistake["end"]
        marks.append(Mark(*given, "predicted", "given"))
    return marks


def entity_marks(
    words: Sequence[str], entities: Sequence[Mapping[str, Any]], remark: str
) -> list[Mark]:
    """Marks of the entities in the words of a sentence, joined by spaces.

    Args:
      words: the words of the sentence.
      entities: each with kind, first and last word, and "right".
      remark: the label of entities that are not right.
    """
    ends = list(itertools.accumulate(len(word) + 1 for word in words))
    begins = [0, *ends]
    return [
        Mark(
            begins[each["first"]],
            ends[each["last"]] - 1,
            each["kind"] if each["right"] else f"{each['kind']}, {remark}",
            "gold" if each["right"] else "given",
        )
        for each in entities
    ]


def stretches(text: str, marks: Sequence[Mark]) -> list[Stretch]:
    """Splits a text at its marks, which may overlap; ignores empty marks."""
    return _cut_at_marks(text, 0, len(text), _ordered(marks))


def excerpts(text: str, marks: Sequence[Mark]) -> dict[str, Any] | None:
    """The parts of a long text around its marks.

    Returns:
      "pieces", lists of stretches; "is_cut_before" and "is_cut_after", whether
      text is left out at the beginning and the end. None for a short text or
      one without marks.
    """
    marks = _ordered(marks)
    if not marks or len(text) <= _LONGEST_MARKED:
        return None
    pieces: list[tuple[int, int]] = []
    for mark in marks:
        begin = max(mark.start - _AROUND, 0)
        end = min(mark.end + _AROUND, len(text))
        # Move the cut to a word boundary.
        if begin and (blank := text.find(" ", begin, begin + _WORD)) >= 0:
            begin = blank + 1
        if end < len(text) and (blank := text.rfind(" ", end - _WORD, end)) > 0:
            end = blank
        if pieces and begin <= pieces[-1][1]:
            last_begin, last_end = pieces.pop()
            begin, end = last_begin, max(last_end, end)
        pieces.append((begin, end))
    return {
        "pieces": [_cut_at_marks(text, *piece, marks) for piece in pieces],
        "is_cut_before": pieces[0][0] > 0,
        "is_cut_after": pieces[-1][1] < len(text),
    }


def _ordered(marks: Sequence[Mark]) -> list[Mark]:
    return sorted(mark for mark in marks if mark.start < mark.end)


def _cut_at_marks(
    text: str, begin: int, end: int, marks: Sequence[Mark]
) -> list[Stretch]:
    """Splits text[begin:end], which contains each mark fully or not at all."""
    inside = [mark for mark in marks if begin <= mark.start < end]
    edges = sorted({begin, end, *(x for mark in inside for x in mark[:2])})
    found = []
    for first, last in itertools.pairwise(edges):
        covering = [m for m in inside if m.start <= first < m.end]
        found.append(
            Stretch(
                text[first:last],
                tuple(mark for mark in covering if mark.start == first),
                tuple(dict.fromkeys(mark.style for mark in covering)),
            )
        )
    return found
