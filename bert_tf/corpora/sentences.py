"""Splitting running text into sentences, in any language that marks their end.

A sentence ends
- after a stop of a script that writes no blanks or has stops of its own (。！？
  । ؟ ۔ and others), with the closing quotes and brackets behind it; after ！ or
  ？ in quotes only if no letter follows at once, as the quoting sentence goes
  on;
- after . ! ? … and ; in Greek, with what closes behind it, if a blank follows
  and then no small letter, leaving opening quotes, brackets and dashes aside;
  so not in a decimal, in "he said", or in an ellipsis inside a sentence.
A full stop does not end one
- after a single letter (initials) or letters with full stops between (U.S.,
  z.B., т.е.);
- after a word in small letters without vowels (Mr, Dr, bzw, Hrsg, млрд);
- after a number from 1 to 31 before a letter: ordinals and days, as many
  languages write them;
- after the abbreviations listed below, which have vowels.
In doubt nothing is split: a long sentence does less harm than two halves.
"""

import re
import unicodedata
from collections.abc import Iterator

# A sentence of more characters is cut at its blanks: a language that does not
# mark the ends of sentences, or no running text.
LONGEST_SENTENCE = 1000

# Stops after which no blank needs to follow. Full-width, Indic, Arabic,
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
    # « Quoi ? » has a blank before what closes.
    rf"|[{_CLOSING_AFTER_LATIN}]*(?: [»›](?=[ .,;:!?…]|$))*"
    # Marks of footnotes, as web pages have them.
    r"(?:\[[^\s\[\]][^\[\]]{0,40}\])*)"
)
_IS_OWN = re.compile(rf"[{_OWN_STOPS}]")
_QUOTED_CALL = re.compile(rf"[！？﹗][{_CLOSING}]+$")
# A letter or digit of any script that has words of letters.
_LETTER = (
    r"[^\W_\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]"
)
_WORD_BEFORE = re.compile(rf"{_LETTER}+(?:[.'’-]{_LETTER}+)*$")
_NEXT = re.compile(rf" [{re.escape(_OPENING)} ]*(?P<first>.)?")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_DAY = re.compile(r"[1-9]|[12]\d|3[01]")
_VOWELS = frozenset("aeiouyæøœıаеиоуыэюяєіїўαεηιουω")

# With vowels, so that the rule above does not find them. Before a name:
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
    """Splits one paragraph into sentences.

    No character but blanks is lost, sentences have single blanks, and a
    sentence is not split any further when given again.

    Args:
      text: the paragraph; line ends in it are blanks.
    """
    text = " ".join(text.split())
    found = []
    start = 0
    for end in _ends(text):
        found.extend(_pieces(text[start:end].strip()))
        start = end
    rest = text[start:].strip()
    if rest:
        found.extend(_pieces(rest))
    return found


def _pieces(sentence: str) -> list[str]:
    """A sentence, or what is left of it when it is too long."""
    if len(sentence) <= LONGEST_SENTENCE:
        return [sentence]
    cut = sentence.rfind(" ", 0, LONGEST_SENTENCE + 1)
    if cut <= 0:
        cut = LONGEST_SENTENCE
    # What stands behind the cut may end sentences now.
    return [
        *split_sentences(sentence[:cut]),
        *split_sentences(sentence[cut:]),
    ]


def _ends(text: str) -> Iterator[int]:
    """The places in a text at which a sentence ends and another one follows."""
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
        # A day or an ordinal stands right before its noun.
        return not (following.isalpha() and text[match.end() + 1] == following)
    return not _is_abbreviation(before[0], following)


def _is_abbreviation(word: str, following: str) -> bool:
    """Whether the full stop after a word belongs to it."""
    if len(word) == 1 and word.isalpha():
        return True
    if _DOTTED.fullmatch(word):
        return True
    lower = word.lower()
    if lower in _NUMBERED:
        return following.isdigit()
    if lower in _ANYWHERE or (lower in _TITLES and following.isalpha()):
        return True
    in_small = word[1:].islower() or word.islower()
    return word.isalpha() and in_small and not _has_vowel(lower)


def _has_vowel(word: str) -> bool:
    """Whether a word of a cased script has a vowel."""
    return any(
        unicodedata.normalize("NFD", letter)[0] in _VOWELS for letter in word
    )
