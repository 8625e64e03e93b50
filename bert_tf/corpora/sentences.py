"""Splits running text into sentences, in any language with punctuation.

A sentence ends
- after a stop of a script without spaces or with its own stops (。！？ । ؟ ۔
  ...) and the closing quotes and brackets after it; after a quoted ！ or ？
  only if no letter follows directly, since the quoting sentence continues;
- after . ! ? … (and ; in Greek) and closing punctuation, if a space follows and
  then no lower-case letter, ignoring opening quotes, brackets and dashes; so
  not in a decimal, in "he said", or in an ellipsis inside a sentence.
A full stop does not end a sentence
- after a single letter (initials) or letters with full stops between (U.S.,
  z.B., т.е.);
- after a lower-case word without vowels (Mr, Dr, bzw, Hrsg, млрд);
- after a number from 1 to 31 before a letter: ordinals and dates in many
  languages;
- after the abbreviations with vowels listed below.
In doubt the text is not split: a long sentence does less harm than two halves.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator

# Longer sentences are cut at spaces: the language does not mark the ends of
# sentences, or it is no running text.
LONGEST_SENTENCE = 1000

# Stops that need no space after them. Full-width, Indic, Arabic,
# Armenian, Ethiopic, Tibetan, Khmer, Burmese and others, from the characters
# with the property Sentence_Terminal of Unicode.
_OWN_STOPS = (
    "。｡！？︒﹒﹗।॥۔؟܀܁܂։።፧፨࠷࠹࠽།༎។៕᙮᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫၊။"
)
_LATIN_STOPS = ".!?…‼⁇⁈⁉‽．;\u037e"
_CLOSING = "\"'”’»)\\]}」』）】》〉］｝＂＇›"
# „ German quotes “, and »German« ones, end with what opens elsewhere.
_CLOSING_AFTER_LATIN = _CLOSING + "“‘«‹"
_OPENING = "\"'“”„‚‘’«»‹›([{¿¡「『（【《〈［｛-–—―•·*†"
_STOPS = re.compile(
    rf"[{_OWN_STOPS}]+[{_OWN_STOPS}{_LATIN_STOPS}]*[{_CLOSING}]*"
    rf"|[{_LATIN_STOPS}]+"
    rf"(?:[{_OWN_STOPS}][{_OWN_STOPS}{_LATIN_STOPS}]*[{_CLOSING}]*"
    # « Quoi ? » has a space before the closing quote.
    rf"|[{_CLOSING_AFTER_LATIN}]*(?: [»›](?=[ .,;:!?…]|$))*"
    # Footnote marks of web pages.
    r"(?:\[[^\s\[\]][^\[\]]{0,40}\])*)"
)
_IS_OWN = re.compile(rf"[{_OWN_STOPS}]")
_QUOTED_CALL = re.compile(rf"[！？﹗][{_CLOSING}]+$")
# A letter or digit of any script that separates words.
_LETTER = (
    r"[^\W_\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]"
)
_WORD_BEFORE = re.compile(rf"{_LETTER}+(?:[.'’-]{_LETTER}+)*$")
_NEXT = re.compile(rf" [{re.escape(_OPENING)} ]*(?P<first>.)?")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_DAY = re.compile(r"[1-9]|[12]\d|3[01]")
_VOWELS = frozenset("aeiouyæøœıаеиоуыэюяєіїўαεηιουω")

# Abbreviations with vowels. Before a name:
_TITLES = frozenset(
    "prof gen col capt rev hon gov sen rep adm maj fr sra srta dra mme mlle "
    "ing lic univ св им ул акад проф тов".split()
)
# Before anything:
_ANYWHERE = frozenset("approx ca esp al inc co ed eds hl sog usw".split())
# Before a number:
_NUMBERED = frozenset(
    "no vol fig figs art sec ch pag núm num jan feb mar apr jun jul aug sep "
    "sept oct okt nov dec abb tab kap".split()
)


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences.

    Only white space changes, to single spaces, and splitting a returned
    sentence again returns it unchanged.

    Args:
      text: the paragraph; line ends in it are white space.
    """
    text = " ".join(text.split())
    bounds = [0, *_ends(text), len(text)]
    return [
        piece
        for start, end in itertools.pairwise(bounds)
        for piece in _pieces(text[start:end].strip())
    ]


def _pieces(sentence: str) -> list[str]:
    """Cuts a sentence that is too long, and splits the parts."""
    if not sentence:
        return []
    if len(sentence) <= LONGEST_SENTENCE:
        return [sentence]
    cut = sentence.rfind(" ", 0, LONGEST_SENTENCE + 1)
    if cut <= 0:
        cut = LONGEST_SENTENCE
    return split_sentences(sentence[:cut]) + split_sentences(sentence[cut:])


def _ends(text: str) -> Iterator[int]:
    """Yields the offsets where a sentence ends and another one follows."""
    for match in _STOPS.finditer(text):
        if match.end() == len(text):
            return
        stop = match[0]
        if _IS_OWN.search(stop):
            ends = _own_stop_ends(stop, text[match.end()])
        elif text[match.end()] != " ":
            ends = False
        else:
            ends = _latin_stop_ends(text, match)
        if ends:
            yield match.end()


def _own_stop_ends(stop: str, following: str) -> bool:
    # Unlike an opening bracket or a letter, these continue the sentence.
    if unicodedata.category(following) in ("Po", "Pe", "Pf", "Mn", "Mc"):
        return False
    return not (_QUOTED_CALL.search(stop) and following.isalpha())


def _latin_stop_ends(text: str, match: re.Match) -> bool:
    rest = _NEXT.match(text, match.end())
    assert rest is not None, "the pattern matches the empty string too"
    following = rest["first"]
    if following is None or following.islower():
        return False
    if following in _LATIN_STOPS or following in ",:)]}":
        return False
    stop = match[0]
    begin = max(text.rfind(" ", 0, match.start()) + 1, match.start() - 60)
    before = _WORD_BEFORE.search(text[begin : match.start()])
    if stop[0] in ";\u037e":
        return before is not None and "GREEK" in unicodedata.name(
            before[0][-1], ""
        )
    if stop != "." or not before:
        return True
    if _DAY.fullmatch(before[0]):
        # A day or an ordinal comes directly before its noun.
        return not (following.isalpha() and text[match.end() + 1] == following)
    return not _is_abbreviation(before[0], following)


def _is_abbreviation(word: str, following: str) -> bool:
    if _DOTTED.fullmatch(word) or (len(word) == 1 and word.isalpha()):
        return True
    lower = word.lower()
    if lower in _NUMBERED:
        return following.isdigit()
    if lower in _ANYWHERE or (lower in _TITLES and following.isalpha()):
        return True
    is_lower = word[1:].islower() or word.islower()
    return (word.isalpha() and is_lower) and not any(
        unicodedata.normalize("NFD", letter)[0] in _VOWELS for letter in lower
    )
