"""Tokens that were added to a vocabulary, found in text as TensorFlow ops.

The rules are those of Hugging Face's tokenizers (added_vocabulary.rs,
`find_matches`): from the left, the longest token at each place; a match that
`single_word` forbids is text again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text.tokenizer_files import AddedToken

# Unicode's White_Space, and the word characters of Rust's regex, whose \s and
# \w know more than those of RE2.
_SPACE = (
    r"[\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}]"
)
_WORD = (
    r"[\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}"
    r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]"
)


class Segments(NamedTuple):
    """S stretches of N texts in order: added tokens, and the text between.

    Attributes:
      texts: string [S], the text; empty for an added token.
      row: int64 [S], the text that each is of.
      start: int64 [S], its first byte there.
      end: int64 [S], its exclusive end.
      ids: int32 [S], the id of an added token; -1 for text.
    """

    texts: tf.Tensor
    row: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    ids: tf.Tensor


def whole(texts: tf.Tensor) -> Segments:
    """Texts [N] without added tokens, each a segment."""
    lengths = tf.strings.length(texts)
    return Segments(
        texts,
        tf.range(tf.size(texts, tf.int64)),
        tf.zeros_like(lengths, tf.int64),
        tf.cast(lengths, tf.int64),
        -tf.ones_like(lengths),
    )


class AddedTokenFinder(tf.Module):
    """Finds some added tokens in texts.

    Args:
      tokens: the tokens, at least one; of two that are spelled alike the first
        is found.
      spelled: how each is spelled in the texts.
      ids: their ids.
      apart: runs of characters that are words of their own, so that what
        stands beside one does not stand inside a word.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        spelled: Sequence[str],
        ids: Sequence[int],
        apart: Sequence[tuple[int, int]],
    ):
        super().__init__()
        by_length = sorted(spelled, key=lambda text: -len(text.encode()))
        self._pattern = "|".join(
            "".join(rf"\x{{{ord(char):X}}}" for char in text)
            for text in by_length
        )
        runs = "".join(rf"\x{{{a:X}}}-\x{{{b:X}}}" for a, b in apart)
        self._apart = f"[{runs}]" if runs else ""
        self._spelled = tf.constant(spelled)
        self._ids = tf.constant(ids, tf.int32)
        self._single_word = tf.constant([t.single_word for t in tokens])
        self._lstrip = tf.constant([t.lstrip for t in tokens])
        self._rstrip = tf.constant([t.rstrip for t in tokens])

    def __call__(self, texts: tf.Tensor) -> Segments:
        """Divides valid UTF-8, string [N], at the added tokens."""
        split = tf_text.regex_split_with_offsets(
            texts, self._pattern, self._pattern
        )
        parts, starts, ends = (values.flat_values for values in split)
        row = split[0].value_rowids()
        follows = _shifted(row, 1, -1) == row
        precedes = _shifted(row, -1, -1) == row
        token, matched = self._tokens(parts)
        glued = self._is_word(_shifted(parts, 1, ""), "(?s).*{}") & follows
        glued |= self._is_word(_shifted(parts, -1, ""), "(?s){}.*") & precedes
        found = matched & ~(tf.gather(self._single_word, token) & glued)
        # Blanks of the text beside a token that go to the token.
        length = ends - starts
        after = found & tf.gather(self._rstrip, token)
        after = _shifted(after, 1, False) & follows & ~found
        lead = tf.where(after, _blanks(parts, f"^{_SPACE}+"), 0)
        before = found & tf.gather(self._lstrip, token)
        before = _shifted(before, -1, False) & precedes & ~found
        trail = tf.where(before, _blanks(parts, f"{_SPACE}+$"), 0)
        trail = tf.minimum(trail, length - lead)
        starts += tf.where(found & follows, -_shifted(trail, 1, 0), lead)
        ends += tf.where(found & precedes, _shifted(lead, -1, 0), -trail)
        parts = tf.strings.substr(
            parts,
            lead,
            tf.where(found, tf.zeros_like(length), length - lead - trail),
        )
        # Text that a match which does not count has divided is one again.
        begins = ~follows | found | _shifted(found, 1, False)
        first = tf.where(begins)[:, 0]
        last = tf.concat([first[1:], [tf.size(row, tf.int64)]], 0)
        last = last[: tf.size(first)] - 1
        joined = tf.RaggedTensor.from_row_starts(parts, first, validate=False)
        ids = tf.where(found, tf.gather(self._ids, token), -1)
        return Segments(
            tf.strings.reduce_join(joined, axis=-1),
            tf.gather(row, first),
            tf.gather(starts, first),
            tf.gather(ends, last),
            tf.gather(ids, first),
        )

    def _is_word(self, parts: tf.Tensor, place: str) -> tf.Tensor:
        """Whether a letter or figure is at a place of each part."""
        is_word = _matches(parts, place.format(_WORD))
        if self._apart:
            is_word &= ~_matches(parts, place.format(self._apart))
        return is_word

    def _tokens(self, parts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Which token each part is, or 0, and whether it is one."""
        matched = _matches(parts, self._pattern)
        places = tf.where(matched)
        same = tf.gather_nd(parts, places)[:, tf.newaxis] == self._spelled
        which = tf.argmax(tf.cast(same, tf.int32), 1, tf.int32)
        return tf.scatter_nd(places, which, tf.shape(parts, tf.int64)), matched


def _matches(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    return tf.strings.regex_full_match(texts, pattern)


def _blanks(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    """The bytes of the blanks that a pattern finds, int64."""
    rest = tf.strings.regex_replace(texts, pattern, "", replace_global=False)
    removed = tf.strings.length(texts) - tf.strings.length(rest)
    return tf.cast(removed, tf.int64)


def _shifted(
    values: tf.Tensor, by: int, outside: bool | int | str
) -> tf.Tensor:
    """At each place the value `by` places before it, by one place."""
    fill = tf.constant([outside], values.dtype)
    if by > 0:
        return tf.concat([fill, values], 0)[: tf.size(values)]
    return tf.concat([values, fill], 0)[-tf.size(values) :]
