"""Steps of a unigram tokenizer.json, for programs without TensorFlow."""

import unicodedata

from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Regex, normalizers

from bert_tf.text import unicode_tables
from bert_tf.text.unicode_tables import GAP, WALL

# The first, second and third letters of Hangul's syllables; some have no third.
_HANGUL = "\u1100-\u1112", "\u1161-\u1175", "\u11a8-\u11c2"
# Characters that the library's step looks up with those before them: marks,
# joiners, vowels of Thai and Lao, colours of emoji and tags.
_EXTENDING = (
    "\\p{M}\u200c\u200d\uff9e\uff9f\u0e33\u0eb3\U0001f3fb-\U0001f3ff"
    "\U000e0020-\U000e007f"
)
# Replaces the characters that keep others apart, where a text has them.
_NEITHER = "\ufff2"


def table_steps(
    model: ModelProto, table: SentencePieceProcessor
) -> list[normalizers.Normalizer]:
    """The table of a model's normaliser as steps of the tokenizers library.

    The table replaces single characters, and letters with all their marks by
    one character. The library's step looks clusters of characters up: it loses
    marks behind a character in the table, and does not compose all letters. So
    it gets characters one by one, and NFC composes what the table does. Walls
    stop NFC elsewhere, where it would compose or sort marks.

    Args:
      model: the model.
      table: a model with only the same table, which normalizes faster.
    """
    normalize = table.normalize
    chars = [chr(code) for code in sorted(unicode_tables.assigned() - {0})]
    forms = {
        unicodedata.normalize("NFD", char): unicodedata.normalize("NFC", char)
        for char in chars
    }
    texts = zip(forms.items(), normalize(list(forms)), strict=True)
    composed = [
        form for (form, char), text in texts if text == char and len(form) > 1
    ]
    # The letters before some marks and the last mark of a sequence.
    letters: dict[tuple[str, str], str] = {}
    for form in composed:
        if not "\u1100" <= form[0] <= "\u1112":
            ends = form[1:-1], form[-1]
            letters[ends] = letters.get(ends, "") + form[0]
    nowhere = "(?!)"
    inside = [nowhere]
    inside += [
        f"(?<=[{first}]{marks})(?={last})"
        for (marks, last), first in letters.items()
    ]
    lasts = "".join({last for _, last in letters})
    if "\u1100\u1161\u11a8" in composed:
        lead, vowel, trail = _HANGUL
        inside.append(f"(?<=[{lead}])(?=[{vowel}])")
        inside.append(f"(?<=[{lead}][{vowel}])(?=[{trail}])")
        lasts += vowel + trail
    expanded = unicode_tables.ranges(
        ord(char)
        for char, text in zip(chars, normalize(chars), strict=True)
        if len(text) != 1
    )
    # No text has the gap yet.
    alone = GAP + "".join(f"{chr(a)}-{chr(b)}" for a, b in expanded)
    # The library fails at what is inserted before a text.
    behind = f"(?<=[^{GAP}])"
    return [
        normalizers.Replace(Regex(f"[{WALL}{GAP}]"), _NEITHER),
        normalizers.Replace(
            Regex(f"(?<=[{alone}])|{behind}(?=[{alone}])"), WALL
        ),
        normalizers.Replace(Regex(f"{behind}(?=[{_EXTENDING}])"), GAP),
        normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
        normalizers.Replace(GAP, ""),
        normalizers.Replace(
            Regex(f"{behind}(?=[\\p{{M}}{lasts}])(?!{'|'.join(inside)})"),
            WALL,
        ),
        normalizers.NFC(),
        normalizers.Replace(WALL, ""),
    ]
