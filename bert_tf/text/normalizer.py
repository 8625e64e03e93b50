"""BERT's text normalisation as TensorFlow operations.

TF Text's `FastBertNormalizer` replaces every code point by a string from a
table. Its default table does not follow the rules of google-research/bert (it
case-folds with NFKC and replaces control characters by spaces), so this module
builds one that does. Three rules depend on more than one code point and are
applied before or after: bytes that are not UTF-8, the final sigma, and the
canonical order of marks that are not accents.
"""

import functools
import types
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import flatbuffers
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import unicode_tables
from bert_tf.text.tokenizer_config import TokenizerConfig

# The table's format (tensorflow/text, fast_bert_normalizer.h and
# fast_bert_normalizer_model.fbs): a Darts-clone trie over UTF-8 bytes, whose
# values are CHANGED | offset << LENGTH_BITS | length, pointing into a pool.
_CHANGED = 1 << 30
_LENGTH_BITS = 6
# A unit of a Darts-clone trie: bits 0-7 its byte, bit 8 whether it has a value,
# bits 10-31 its offset: child = index ^ offset ^ byte. A value is a unit with
# bit 31 set.
_HAS_VALUE = 1 << 8
_OFFSET_SHIFT = 10
_IS_VALUE = np.uint32(1 << 31)


class CodePoints(NamedTuple):
    """Replacements of code points in addition to the rules.

    Attributes:
      kept: unassigned code points that are kept.
      unassigned: the replacement of other code points that are unassigned in
        Python's Unicode tables; None keeps them.
      replaced: pairs of a code point and its replacement in normalized text.
    """

    kept: frozenset[int] = frozenset()
    unassigned: str | None = None
    replaced: tuple[tuple[int, str], ...] = ()


UNCHANGED = CodePoints()


def _replacements(
    lower_case: bool, strip_accents: bool, code_points: CodePoints
) -> tuple[np.ndarray, str]:
    """The trie value of each code point, int64, and the string pool."""
    replaced = dict(code_points.replaced)
    rules = unicode_tables.replacements(lower_case, strip_accents)
    mapping = replaced | {
        code: text.translate(replaced) for code, text in rules.mapping.items()
    }
    mapping.update(dict.fromkeys(unicode_tables.dropped(), ""))
    if code_points.unassigned is None:
        return _packed(mapping)
    unknown = unicode_tables.unassigned().copy()
    unknown[list(code_points.kept)] = False
    return _packed(mapping, unknown, code_points.unassigned)


def _packed(
    mapping: Mapping[int, str],
    others: np.ndarray | None = None,
    replacement: str = "",
) -> tuple[np.ndarray, str]:
    """The values of `_trie` and the pool that they point into.

    Args:
      mapping: replacements by code point.
      others: code points that have the same replacement, bool, unless they are
        in the mapping.
      replacement: the replacement of `others`.
    """
    values = np.zeros(unicode_tables.CODE_POINTS, np.int64)
    numbers: dict[str, int] = {}
    length = 0
    for text in dict.fromkeys([replacement, *mapping.values()]):
        size = len(text.encode())
        numbers[text] = _CHANGED | length << _LENGTH_BITS | size
        length += size
    if others is not None:
        values[others] = numbers[replacement]
    values[list(mapping)] = [numbers[text] for text in mapping.values()]
    return values, "".join(numbers)


def _trie(values: np.ndarray) -> np.ndarray:
    """Builds the Darts-clone trie of code points in UTF-8, uint32 [units].

    It consists of blocks of 256 units. The index of a child is the base of its
    block plus its byte, so no search for free units is needed; equal blocks of
    values are stored once.
    """
    blocks: list[np.ndarray] = [np.zeros(256, np.uint32)]
    known: dict[bytes, int] = {}

    def append(block: np.ndarray) -> int:
        blocks.append(block)
        return 256 * (len(blocks) - 1)

    def block_of_values(row: np.ndarray) -> int:
        """Adds a block whose children, bytes 0x80 to 0xBF, have values."""
        key = row.tobytes()
        if key not in known:
            block = np.zeros(256, np.uint32)
            used = np.flatnonzero(row)
            # The value of the child at base + byte is at base + byte - 0x80.
            block[0x80 + used] = (
                0x80 << _OFFSET_SHIFT | _HAS_VALUE | 0x80 + used
            )
            block[used] = row[used].astype(np.uint32) | _IS_VALUE
            known[key] = append(block)
        return known[key]

    def block_of_children(first: int, bases: Sequence[int]) -> int:
        """Adds a block of links for the bytes from `first`; 0 if none."""
        if not any(bases):
            return 0
        block = np.zeros(256, np.uint32)
        base = append(block)
        for byte, target in enumerate(bases, first):
            if target:
                block[byte] = ((base + byte) ^ target) << _OFFSET_SHIFT | byte
        return base

    # One block per 64 code points, the range of the last byte.
    rows = values.reshape(-1, 64)
    last = [0] * len(rows)
    for number in np.flatnonzero(rows.any(axis=1)):
        last[number] = block_of_values(rows[number])
    # Below U+0800 two bytes suffice, below U+10000 three.
    middle = [block_of_children(0xA0, last[32:64])]
    for start in range(64, len(last), 64):
        middle.append(block_of_children(0x80, last[start : start + 64]))
    third = [block_of_children(0x90, middle[16:64])]
    for start in range(64, len(middle), 64):
        third.append(block_of_children(0x80, middle[start : start + 64]))
    lead = [0, 0, *last[2:32], *middle[:16], *third]
    root = block_of_children(0xC0, lead) or append(np.zeros(256, np.uint32))
    ascii_values = np.zeros(256, np.uint32)
    below = append(ascii_values)
    for byte in np.flatnonzero(values[:128]):
        blocks[root // 256][byte] = (
            (root ^ below) << _OFFSET_SHIFT | _HAS_VALUE | int(byte)
        )
        ascii_values[byte] = np.uint32(values[byte]) | _IS_VALUE
    blocks[0][0] = root << _OFFSET_SHIFT
    return np.concatenate(blocks)


@functools.lru_cache(maxsize=8)
def _table(
    lower_case: bool, strip_accents: bool, code_points: CodePoints
) -> np.ndarray:
    """The table of BERT's rules, uint8 [bytes]."""
    values, pool = _replacements(lower_case, strip_accents, code_points)
    return _built(values, pool, strip_accents)


def _built(values: np.ndarray, pool: str, splits_hangul: bool) -> np.ndarray:
    """The table in `FastBertNormalizer`'s format, uint8 [bytes]."""
    builder = flatbuffers.Builder(1 << 20)
    trie = builder.CreateNumpyVector(_trie(values))
    strings = builder.CreateNumpyVector(np.frombuffer(pool.encode(), np.uint8))
    builder.StartObject(4)
    # Whether syllables of Hangul are decomposed.
    builder.PrependBoolSlot(0, splits_hangul, False)
    builder.PrependUOffsetTRelativeSlot(1, trie, 0)
    builder.PrependInt32Slot(2, int(values[0]), 0)
    builder.PrependUOffsetTRelativeSlot(3, strings, 0)
    builder.Finish(builder.EndObject())
    return np.frombuffer(bytes(builder.Output()), np.uint8)


class FinalSigma(tf.Module):
    """Replaces each capital sigma at the end of a word by a final sigma.

    As in `str.lower`, a sigma is final after a cased letter and before none,
    skipping case-ignorable characters. All other lower-casing depends on single
    code points.

    Args:
      forms: what replaces code points before the rule applies.
    """

    def __init__(self, forms: Mapping[int, str] = types.MappingProxyType({})):
        super().__init__()
        kinds = np.zeros(unicode_tables.CODE_POINTS, np.int32)
        for bit, codes in enumerate(unicode_tables.sigma_classes(forms)):
            kinds[list(codes)] += 1 << bit
        # The first code point of each range of one kind.
        firsts = np.flatnonzero(np.diff(kinds, prepend=-1))
        self._firsts = tf.constant(firsts, tf.int32)
        self._kind_of_run = tf.constant(kinds[firsts])

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Replaces the final capital sigmas of valid UTF-8, string [B]."""
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        runs = tf.searchsorted(self._firsts, codes.flat_values, side="right")
        kinds = tf.gather(self._kind_of_run, runs - 1)
        *_, skipped = _bits(kinds)
        indices = tf.where(~skipped)[:, 0]
        is_sigma, ends, begins, _ = _bits(tf.gather(kinds, indices))
        rows = tf.gather(codes.value_rowids(), indices)
        same_row = rows[1:] == rows[:-1]
        size = tf.size(rows)
        after_cased = tf.concat([[False], ends[:-1] & same_row], 0)[:size]
        before_cased = tf.concat([begins[1:] & same_row, [False]], 0)[:size]
        final = tf.boolean_mask(indices, is_sigma & after_cased & ~before_cased)
        changed = tf.tensor_scatter_nd_update(
            codes.flat_values,
            final[:, tf.newaxis],
            tf.fill(tf.shape(final), unicode_tables.FINAL_SIGMA),
        )
        return tf.strings.unicode_encode(codes.with_values(changed), "UTF-8")


def _bits(kinds: tf.Tensor) -> list[tf.Tensor]:
    """The classes of `SigmaClasses` that code points are in, each bool."""
    return [tf.bitwise.bitwise_and(kinds, 1 << bit) > 0 for bit in range(4)]


class Normalizer(tf.Module):
    """Normalizes text before it is split; this class leaves it unchanged."""

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes strings [B]."""
        return texts

    def normalize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.RaggedTensor, tf.Tensor]:
        """Normalizes strings [B] and returns the sources of their bytes.

        Returns:
          The normalized strings [B]; the byte offset in the repaired texts of
          each of their bytes and of their ends, ragged int64 [B, bytes + 1];
          the repaired texts [B], valid UTF-8 with as many characters as
          `texts`.
        """
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        return texts, tf.ragged.range(lengths + 1), texts

    def character_offsets(
        self,
        sources: tf.RaggedTensor,
        texts: tf.Tensor,
        rows: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps byte offsets in normalized texts to character offsets.

        Args:
          sources, texts: see `source_characters`.
          rows: the row of each token, int64 [tokens].
          starts: byte starts in the normalized texts, int64 [tokens].
          ends: exclusive byte ends, int64 [tokens].

        Returns:
          Starts and exclusive ends in characters of `texts`, int32 [tokens].
        """
        is_empty = starts == ends
        last = tf.where(is_empty, starts, ends - 1)
        first, last = source_characters(sources, texts, rows, starts, last)
        return first, tf.where(is_empty, first, last + 1)


class _Replacing(Normalizer):
    """The base of normalizers that may remove characters."""

    def character_offsets(
        self,
        sources: tf.RaggedTensor,
        texts: tf.Tensor,
        rows: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Normalizer`; ends include the removed characters that follow."""
        # The blank that is added before a text may be a piece without bytes.
        last = tf.maximum(starts, ends - 1)
        first, last, end = source_characters(
            sources, texts, rows, starts, last, ends
        )
        end = tf.maximum(end, last + 1)
        return first, tf.where(starts == ends, first, end)


class BertNormalizer(_Replacing):
    """Cleans text and optionally lower-cases it or strips its accents.

    The result has the words of google-research/bert's BasicTokenizer, before
    the split at white space, punctuation and ideographs. Bytes that are not
    UTF-8 are dropped, because they decode to U+FFFD, which the rules drop.
    """

    # A mark that the rules drop and that does not affect canonical ordering.
    _PLACEHOLDER = "\u0300"

    def __init__(
        self,
        config: TokenizerConfig,
        code_points: CodePoints = UNCHANGED,
    ):
        super().__init__()
        self._strips = config.strip_accents
        rules = unicode_tables.replacements(
            config.lower_case, config.strip_accents
        )
        special = set(rules.reordered)
        if config.lower_case:
            special.add(unicode_tables.CAPITAL_SIGMA)
        plain = unicode_tables.other_ranges(special)
        dropped = unicode_tables.ranges(unicode_tables.dropped())
        self._plain = unicode_tables.character_class(plain) + "*"
        self._dropped = unicode_tables.character_class(dropped)
        self._final_sigma = None
        if config.lower_case:
            forms = dict.fromkeys(unicode_tables.dropped(), "")
            self._final_sigma = FinalSigma(forms)
        table = _table(config.lower_case, config.strip_accents, code_points)
        self._by_code_point = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(table)
        )

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes strings [B]."""
        plain = tf.strings.regex_full_match(texts, self._plain)

        def with_repairs() -> tf.Tensor:
            repaired = self._repair(texts, plain)
            normalized = self._by_code_point.normalize(repaired)
            return self._order(repaired, plain, normalized)

        return tf.cond(
            tf.reduce_all(plain),
            lambda: self._by_code_point.normalize(texts),
            with_repairs,
        )

    def normalize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.RaggedTensor, tf.Tensor]:
        """See `Normalizer`; sources of reordered marks are not reordered."""
        plain = tf.strings.regex_full_match(texts, self._plain)
        all_plain = tf.reduce_all(plain)
        repaired = tf.cond(
            all_plain, lambda: texts, lambda: self._repair(texts, plain)
        )
        normalized, sources = self._by_code_point.normalize_with_offsets(
            repaired
        )
        normalized = tf.cond(
            all_plain,
            lambda: normalized,
            lambda: self._order(repaired, plain, normalized),
        )
        return normalized, sources, repaired

    def _repair(self, texts: tf.Tensor, plain: tf.Tensor) -> tf.Tensor:
        """Makes texts plain by replacing single characters."""
        rows = tf.where(~plain)
        repaired = tf.strings.unicode_transcode(
            tf.gather_nd(texts, rows), "UTF-8", "UTF-8", errors="replace"
        )
        if self._final_sigma is not None:
            repaired = self._final_sigma(repaired)
        if self._strips:
            repaired = tf.strings.regex_replace(
                repaired, self._dropped, self._PLACEHOLDER
            )
        return tf.tensor_scatter_nd_update(texts, rows, repaired)

    def _order(
        self, repaired: tf.Tensor, plain: tf.Tensor, normalized: tf.Tensor
    ) -> tf.Tensor:
        """Puts the remaining marks into canonical order."""
        if not self._strips:
            return normalized
        rows = tf.where(~plain)
        unordered = tf.gather_nd(normalized, rows)
        ordered = self._by_code_point.normalize(
            tf_text.normalize_utf8(tf.gather_nd(repaired, rows), "NFD")
        )
        # Ordering preserves lengths; if they differ, TF Text decomposed a
        # character that is unassigned in Python's tables.
        same = tf.strings.length(ordered) == tf.strings.length(unordered)
        return tf.tensor_scatter_nd_update(
            normalized, rows, tf.where(same, ordered, unordered)
        )


class CodePointNormalizer(_Replacing):
    """Replaces code points one by one, and lower-cases as `str.lower`.

    Args:
      replacements: what becomes of each code point that changes.
      forms: what `replacements` makes of code points before it lower-cases
        them, if capital sigmas become final where `str.lower` makes them so.
    """

    def __init__(
        self, replacements: Mapping[int, str], forms: Mapping[int, str] | None
    ):
        super().__init__()
        self._final_sigma = None
        if forms is not None:
            sigmas = unicode_tables.sigma_classes(forms).sigmas
            others = unicode_tables.other_ranges(sigmas)
            self._plain = unicode_tables.character_class(others) + "*"
            self._final_sigma = FinalSigma(forms)
        table = _built(*_packed(replacements), False)
        self._by_code_point = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(table)
        )

    def _repair(self, texts: tf.Tensor) -> tf.Tensor:
        if self._final_sigma is None:
            return texts
        rows = tf.where(~tf.strings.regex_full_match(texts, self._plain))
        repaired = self._final_sigma(tf.gather_nd(texts, rows))
        return tf.tensor_scatter_nd_update(texts, rows, repaired)

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes valid UTF-8, string [B]."""
        return self._by_code_point.normalize(self._repair(texts))

    def normalize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.RaggedTensor, tf.Tensor]:
        """See `Normalizer`."""
        repaired = self._repair(texts)
        found, sources = self._by_code_point.normalize_with_offsets(repaired)
        return found, sources, repaired


def characters_before(
    texts: tf.Tensor, rows: tf.Tensor, *offsets: tf.Tensor
) -> list[tf.Tensor]:
    """Counts the characters before byte offsets of texts.

    Args:
      texts: valid UTF-8, string [B].
      rows: the text of each offset, int64 [S].
      *offsets: byte offsets, each int64 [S].

    Returns:
      For each of `offsets` int32 [S].
    """
    lengths = tf.cast(tf.strings.length(texts), tf.int64)
    row_begins = tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    counts = tf.concat([[0], _character_counts(texts)], 0)
    first = tf.gather(counts, row_begins)
    return [tf.gather(counts, row_begins + each) - first for each in offsets]


def _character_counts(texts: tf.Tensor) -> tf.Tensor:
    """The number of characters up to each byte of all texts, int32."""
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    begins_character = tf.bitwise.bitwise_and(all_bytes, 0xC0) != 0x80
    return tf.cumsum(tf.cast(begins_character, tf.int32))


def source_characters(
    sources: tf.RaggedTensor,
    texts: tf.Tensor,
    rows: tf.Tensor,
    *offsets: tf.Tensor,
) -> list[tf.Tensor]:
    """Maps byte offsets of normalized texts to characters of the texts.

    Args:
      sources: the byte offset in `texts` of each byte of the normalized texts
        and of their ends; ragged int64 [B, bytes + 1].
      texts: valid UTF-8, string [B].
      rows: the row of each offset, int64 [S].
      *offsets: byte offsets in the normalized texts, each int64 [S].

    Returns:
      For each of `offsets` int32 [S].
    """
    lengths = tf.cast(tf.strings.length(texts), tf.int64)
    row_begins = tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    source_begins = tf.gather(sources.row_starts(), rows)
    counts = _character_counts(texts)
    # The index of the character of each byte of all texts, and of the end of
    # the last text.
    indices = tf.concat([counts - 1, [tf.reduce_sum(counts[-1:])]], 0)
    first = tf.gather(indices, row_begins)
    characters = []
    for offset in offsets:
        source = tf.gather(sources.values, source_begins + offset)
        characters.append(tf.gather(indices, row_begins + source) - first)
    return characters
