"""Recognizes added tokens in text, as TensorFlow operations.

The rules are those of Hugging Face's tokenizers (added_vocabulary.rs,
`find_matches`): from the left, the longest token at each position; a match
that violates `single_word` is ordinary text.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.errors import UserError, excerpt
from bert_tf.text.normalizer import Normalizer, characters_before
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_files import AddedToken

# Ids, row splits, and the begin and end of each id.
Pieces = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]

# Unicode's White_Space, and the word characters of Rust's regex, whose \s and
# \w know more than those of RE2.
SPACE = (
    r"[\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}]"
)
_WORD = (
    r"[\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}"
    r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]"
)


class _Segments(NamedTuple):
    """S segments of N texts in order: added tokens, and the text between.

    Attributes:
      texts: string [S], the text; empty for an added token.
      row: int64 [S], the text of each segment.
      start: int64 [S], its first byte.
      end: int64 [S], its exclusive end.
      ids: int32 [S], the id of an added token; -1 for text.
    """

    texts: tf.Tensor
    row: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    ids: tf.Tensor


def _whole(texts: tf.Tensor) -> _Segments:
    """Makes one segment of each text [N]."""
    lengths = tf.strings.length(texts)
    return _Segments(
        texts,
        tf.range(tf.size(texts, tf.int64)),
        tf.zeros_like(lengths, tf.int64),
        tf.cast(lengths, tf.int64),
        -tf.ones_like(lengths),
    )


class AddedTokens(tf.Module):
    """Splits texts at added tokens.

    Args:
      tokens: the added tokens.
      vocabulary: contains the tokens.
      normalizer: normalizes the text between them.
      isolated: a character class of separate words in normalized text; empty
        for none.
      nul: replacements of U+0000 while added tokens are looked for; the first
        that no text contains is used. The text between them has it again.

    Attributes:
      ids: the ids of the added tokens.

    Raises:
      UserError: a token is not in the vocabulary, or empty when normalized.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        vocabulary: TokenTable,
        normalizer: Normalizer,
        isolated: str = "",
        nul: Sequence[str] = ("\x01",),
    ):
        super().__init__()
        self._vocabulary, self._isolated = vocabulary, isolated
        self._normalizer, self._nul = normalizer, nul
        self._find_in_text = self._finder(
            [t for t in tokens if not t.normalized]
        )
        self._find_in_normalized = self._finder(
            [t for t in tokens if t.normalized]
        )
        self.ids = tuple(vocabulary.ids[token.content] for token in tokens)

    def _finder(
        self, tokens: list[AddedToken]
    ) -> Callable[[tf.Tensor], _Segments]:
        """Makes a function that splits texts at some of the tokens."""
        if not tokens:
            return _whole
        spelled = [token.content for token in tokens]
        for content in spelled:
            if content not in self._vocabulary.ids:
                raise UserError(
                    f"`added_tokens`: {excerpt(content)} is not in the "
                    "vocabulary."
                )
        ids = [self._vocabulary.ids[content] for content in spelled]
        isolated = ""
        if tokens[0].normalized:
            isolated = self._isolated
            normalized = self._normalizer.normalize(tf.constant(spelled))
            spelled = [text.decode() for text in normalized.numpy()]
        if "" in spelled:
            empty = tokens[spelled.index("")].content
            raise UserError(
                f"`added_tokens`: nothing is left of {excerpt(empty)} once it "
                "is normalized."
            )
        return _Finder(tokens, spelled, ids, isolated)

    def split(
        self, texts: tf.Tensor, pieces: Callable[[tf.Tensor], Pieces]
    ) -> Pieces:
        """Recognizes the added tokens and splits the text between them.

        Args:
          texts: string [B].
          pieces: splits normalized texts, string [S], into ids, row splits, and
            byte begins and ends.

        Returns:
          The ids of all texts, row splits, and character begins and ends.
        """
        texts = tf.strings.unicode_transcode(
            texts, "UTF-8", "UTF-8", errors="replace"
        )
        # TF Text's regex_split stops at a NUL.
        joined = tf.strings.reduce_join(texts)
        used = [_matches(joined, f"(?s).*{char}.*") for char in self._nul[:-1]]
        unused = tf.argmin(tf.cast([*used, False], tf.int32))
        nul = tf.gather(tf.constant(self._nul), unused)
        texts = tf.strings.regex_replace(texts, r"\x00", nul)
        outer = self._find_in_text(texts)
        normalized, sources, repaired = self._normalizer.normalize_with_offsets(
            outer.texts
        )
        inner = self._find_in_normalized(normalized)
        ids, splits, starts, ends = pieces(
            tf.strings.regex_replace(inner.texts, nul, "\0")
        )
        # The segment of `outer`, and the range in its normalized text, of each
        # token.
        piece = tf.ragged.row_splits_to_segment_ids(splits)
        found = tf.where(inner.ids >= 0)[:, 0]
        of = tf.concat([piece, found], 0)
        segment, shift = tf.gather(inner.row, of), tf.gather(inner.start, piece)
        ids = tf.concat([ids, tf.gather(inner.ids, found)], 0)
        starts = tf.concat([starts + shift, tf.gather(inner.start, found)], 0)
        ends = tf.concat([ends + shift, tf.gather(inner.end, found)], 0)
        first, last = self._normalizer.character_offsets(
            sources, repaired, segment, starts, ends
        )
        begin, end = characters_before(texts, outer.row, outer.start, outer.end)
        first += tf.gather(begin, segment)
        last += tf.gather(begin, segment)
        # Tokens that match before normalization are separate segments.
        matched = tf.where(outer.ids >= 0)[:, 0]
        segment = tf.concat([segment, matched], 0)
        part = tf.concat([of, tf.zeros_like(matched)], 0)
        order = tf.argsort(segment * 2**32 + part, stable=True)
        rows = tf.gather(outer.row, tf.gather(segment, order))
        bounds = tf.range(tf.size(texts, tf.int64) + 1)

        def ordered(values: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
            values = tf.concat([values, tf.gather(others, matched)], 0)
            return tf.gather(values, order)

        return (
            ordered(ids, outer.ids),
            tf.searchsorted(rows, bounds, out_type=tf.int64),
            ordered(first, begin),
            ordered(last, end),
        )


class _Finder(tf.Module):
    """Splits texts at added tokens, all normalized or none.

    Args:
      tokens: at least one; of two with the same spelling the first matches.
      spelled: the spelling of each in the texts.
      ids: their ids.
      isolated: a character class of separate words, which are word boundaries;
        empty for none.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        spelled: Sequence[str],
        ids: Sequence[int],
        isolated: str,
    ):
        super().__init__()
        by_length = sorted(spelled, key=lambda text: -len(text.encode()))
        self._pattern = "|".join(
            "".join(rf"\x{{{ord(char):X}}}" for char in text)
            for text in by_length
        )
        self._isolated = isolated
        self._spelled = tf.constant(spelled)
        self._ids = tf.constant(ids, tf.int32)
        self._single_word = tf.constant([t.single_word for t in tokens])
        self._lstrip = tf.constant([t.lstrip for t in tokens])
        self._rstrip = tf.constant([t.rstrip for t in tokens])

    def __call__(self, texts: tf.Tensor) -> _Segments:
        """Splits valid UTF-8, string [N], at the added tokens."""
        split = tf_text.regex_split_with_offsets(
            texts, self._pattern, self._pattern
        )
        parts, starts, ends = (values.flat_values for values in split)
        row = split[0].value_rowids()
        follows = _previous(row, -1) == row
        precedes = _next(row, -1) == row
        token, matched = self._token_of(parts)
        inside = self._is_word(_previous(parts, ""), "(?s).*{}") & follows
        inside |= self._is_word(_next(parts, ""), "(?s){}.*") & precedes
        found = matched & ~(tf.gather(self._single_word, token) & inside)
        # Blanks next to a token that belong to the token.
        length = ends - starts
        after = found & tf.gather(self._rstrip, token)
        after = _previous(after, False) & follows & ~found
        lead = tf.where(after, _blanks(parts, f"^{SPACE}+"), 0)
        before = found & tf.gather(self._lstrip, token)
        before = _next(before, False) & precedes & ~found
        trail = tf.where(before, _blanks(parts, f"{SPACE}+$"), 0)
        trail = tf.minimum(trail, length - lead)
        starts += tf.where(found & follows, -_previous(trail, 0), lead)
        ends += tf.where(found & precedes, _next(lead, 0), -trail)
        parts = tf.strings.substr(
            parts,
            lead,
            tf.where(found, tf.zeros_like(length), length - lead - trail),
        )
        # Joins text that was split at a match that is not a token.
        begins = ~follows | found | _previous(found, False)
        first = tf.where(begins)[:, 0]
        last = tf.concat([first[1:], [tf.size(row, tf.int64)]], 0)
        last = last[: tf.size(first)] - 1
        joined = tf.RaggedTensor.from_row_starts(parts, first, validate=False)
        ids = tf.where(found, tf.gather(self._ids, token), -1)
        return _Segments(
            tf.strings.reduce_join(joined, axis=-1),
            tf.gather(row, first),
            tf.gather(starts, first),
            tf.gather(ends, last),
            tf.gather(ids, first),
        )

    def _is_word(self, parts: tf.Tensor, position: str) -> tf.Tensor:
        """Whether each part has a word character at a position."""
        is_word = _matches(parts, position.format(_WORD))
        if self._isolated:
            is_word &= ~_matches(parts, position.format(self._isolated))
        return is_word

    def _token_of(self, parts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The index of the token of each part, or 0, and whether it is one."""
        matched = _matches(parts, self._pattern)
        indices = tf.where(matched)
        same = tf.gather_nd(parts, indices)[:, tf.newaxis] == self._spelled
        token = tf.argmax(tf.cast(same, tf.int32), 1, tf.int32)
        return tf.scatter_nd(indices, token, tf.shape(parts, tf.int64)), matched


def _matches(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    return tf.strings.regex_full_match(texts, pattern)


def _blanks(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    """The number of bytes of the blanks that match a pattern, int64."""
    rest = tf.strings.regex_replace(texts, pattern, "", replace_global=False)
    removed = tf.strings.length(texts) - tf.strings.length(rest)
    return tf.cast(removed, tf.int64)


def _previous(values: tf.Tensor, outside: bool | int | str) -> tf.Tensor:
    """The value before each; `outside` before the first."""
    fill = tf.constant([outside], values.dtype)
    return tf.concat([fill, values], 0)[: tf.size(values)]


def _next(values: tf.Tensor, outside: bool | int | str) -> tf.Tensor:
    """The value after each; `outside` after the last."""
    fill = tf.constant([outside], values.dtype)
    return tf.concat([values[1:], fill], 0)[: tf.size(values)]
