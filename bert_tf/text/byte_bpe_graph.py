"""Byte-level BPE as TensorFlow operations, exact for every string.

Words begin at positions that depend only on the classes of the adjacent
characters. The bytes of a word are decoded as ISO-8859-1, and SentencePiece's
BPE merges these letters. It looks up the result of a merge, GPT-2's the pair.
Both agree on every text for merges that `ByteLevelBpe` takes.

Few words reach that operation: words are also divided between bytes that no
token holds side by side, and those that are tokens are looked up.
"""

import functools
import unicodedata
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
import tokenizers
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import normalizers, pre_tokenizers

from bert_tf.text import unicode_tables
from bert_tf.text.added_tokens import Pieces
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.normalizer import Normalizer
from bert_tf.text.subword_graph import (
    NUL,
    SubwordTokenizer,
    with_replacements,
)

# Classes of code points.
_OTHER, _LETTER, _NUMBER, _BLANK, _SPACE = range(5)
# Planes 4 to 16 of Unicode have no letters, marks, numbers or blanks.
_LAST_LETTER = 0x3FFFF
_CONTRACTIONS = ("s", "t", "m", "d", "re", "ve", "ll")
_NUL_BYTES = len(NUL[0].encode())
# Prefixes and names that no text contains, for tokens that are not merged.
_UNSPELLED, _UNKNOWN = "\u0101", "\u0102"


@functools.cache
def _classes() -> np.ndarray:
    """The class of each code point in the regex engine of tokenizers, int32."""
    codes = [
        code
        for code in range(_LAST_LETTER + 1)
        if code not in unicode_tables.SURROGATES
    ]
    text, code_of = "".join(map(chr, codes)), np.array(codes)
    classes = np.full(unicode_tables.CODE_POINTS, _OTHER, np.int32)
    for kind, pattern in (
        (_LETTER, r"\p{L}+"),
        (_NUMBER, r"\p{N}+"),
        (_BLANK, r"\s+"),
    ):
        split = pre_tokenizers.Split(
            tokenizers.Regex(pattern), "removed", invert=True
        )
        for _, (begin, end) in split.pre_tokenize_str(text):
            classes[code_of[begin:end]] = kind
    classes[ord(" ")] = _SPACE
    return classes


class _Composed(Normalizer):
    """A normalizer to NFC.

    A text and its NFC are the same in NFD, where marks are sorted. As in the
    library tokenizers, a character of the NFC consumes the characters of the
    text whose first parts in NFD are among its own parts. Its source is the
    first that it consumes or, without any, the last that was consumed.
    """

    def __init__(self) -> None:
        super().__init__()
        kinds, classes = _classes_in_nfd()
        self._kinds = tf.constant(kinds)
        self._classes = tf.ragged.constant(classes, dtype=tf.int32)

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        return tf_text.normalize_utf8(texts, "NFC")

    def normalize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.RaggedTensor, tf.Tensor]:
        composed = self.normalize(texts)
        lengths = tf.cast(tf.strings.length(composed), tf.int64)
        sources = tf.ragged.range(lengths + 1)
        # Of composed texts, as most are, each byte is its own source.
        changed = composed != texts
        places = tf.where(tf.repeat(changed, lengths + 1))
        found = self._sources(
            tf.boolean_mask(composed, changed), tf.boolean_mask(texts, changed)
        )
        values = tf.tensor_scatter_nd_update(sources.flat_values, places, found)
        return composed, sources.with_flat_values(values), texts

    def _sources(self, composed: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """The byte offset in `texts` of each byte and end of their NFC."""
        result = tf.strings.unicode_decode(composed, "UTF-8")
        given, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        parts, order = self._parts(given)
        is_first = tf.concat([[-1], parts[:-1]], 0) != parts
        sorted_firsts = tf.gather(tf.cast(is_first, tf.int64), order)
        parts, order = self._parts(result)
        consumed = tf.math.unsorted_segment_sum(
            sorted_firsts,
            tf.gather(parts, order),
            tf.size(result.flat_values, tf.int64),
        )
        origin = tf.cumsum(consumed, exclusive=True)
        origin -= tf.cast(consumed == 0, tf.int64)
        codes = result.flat_values
        wider = codes[:, tf.newaxis] >= [0x80, 0x800, 0x10000]
        num_bytes = 1 + tf.reduce_sum(tf.cast(wider, tf.int32), 1)
        of_bytes = tf.RaggedTensor.from_row_splits(
            tf.repeat(tf.gather(offsets.flat_values, origin), num_bytes),
            tf.concat([[0], tf.cumsum(tf.strings.length(composed))], 0),
            validate=False,
        )
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        text_ends = tf.RaggedTensor.from_tensor(lengths[:, tf.newaxis])
        text_ends = text_ends.with_row_splits_dtype(of_bytes.row_splits.dtype)
        return tf.concat([of_bytes, text_ends], 1).flat_values

    def _parts(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The parts of characters in NFD.

        Returns:
          The character of each part, int64 [P], and the order in which the
          parts are sorted, int32 [P].
        """
        kinds = tf.gather(self._kinds, codes.flat_values)
        classes = tf.gather(self._classes, kinds)
        parts = classes.value_rowids()
        starters = tf.cast(classes.flat_values == 0, tf.int64)
        run = tf.cumsum(starters) + tf.gather(codes.value_rowids(), parts)
        keys = 256 * run + tf.cast(classes.flat_values, tf.int64)
        return parts, tf.argsort(keys, stable=True)


@functools.cache
def _classes_in_nfd() -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """The combining classes of each code point in NFD.

    Returns:
      The kind of each code point, int32, and the classes of each kind.
    """
    codes = np.array(
        [
            code
            for code in range(_LAST_LETTER + 1)
            if code not in unicode_tables.SURROGATES and code != ord("\n")
        ]
    )
    text = normalizers.NFD().normalize_str("\n".join(map(chr, codes)))
    numbers: dict[tuple[int, ...], int] = {(0,): 0}
    kinds = np.zeros(unicode_tables.CODE_POINTS, np.int32)
    kinds[codes] = [
        numbers.setdefault(
            tuple(map(unicodedata.combining, form)), len(numbers)
        )
        for form in text.split("\n")
    ]
    return kinds, list(numbers)


class ByteBpeTokenizer(SubwordTokenizer):
    """Splits text into the ids of byte-level BPE; see `SubwordTokenizer`.

    Offsets exclude blanks if `ByteLevelBpe.trim_offsets` is set.
    """

    data: ByteLevelBpe

    def __init__(self, data: ByteLevelBpe, split_special_tokens: bool = True):
        """Builds the tables.

        Args:
          data: tokens, merges and rules.
          split_special_tokens: see the class.
        """
        super().__init__(data, split_special_tokens)
        lengths, leads, trails = (
            np.zeros(len(data), np.int64) for _ in range(3)
        )
        for number, raw in enumerate(data.raw):
            if raw is not None:
                # NUL is replaced by a longer character.
                more = raw.count(0) * (_NUL_BYTES - 1)
                lengths[number] = len(raw) + more
                leads[number] = len(raw) - len(raw.lstrip(b" "))
                trails[number] = len(raw) - len(raw.rstrip(b" "))
        recognized = data.recognized_tokens(split_special_tokens)
        # The length of added tokens that absorb the blanks before them.
        own = np.zeros(len(data), np.int32)
        for token in recognized:
            number, content = data.ids[token.content], token.content
            leads[number] = len(content) - len(content.lstrip())
            trails[number] = len(content) - len(content.rstrip())
            own[number] = len(content) * token.lstrip
        self._model = _sentencepiece_model(data)
        letters = [(raw or b"").decode("latin-1") for raw in data.raw]
        with tf.init_scope(), tf.device("/CPU:0"):
            self._classes = tf.constant(_classes())
            self._lengths = tf.constant(lengths)
            self._own = tf.constant(own)
            self._leads = tf.constant(leads, tf.int32)
            self._trails = tf.constant(trails, tf.int32)
            self._adjacent = tf.constant(_adjacent(data))
            self._letters = tf.constant(letters)
            self._tokens_by_hash = tf.constant(self._table())

    def _make_normalizer(self) -> Normalizer:
        return _Composed() if self.data.nfc else Normalizer()

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Flat ids, row splits, and flat character offsets of a batch."""
        with tf.device("/CPU:0"):
            ids, splits, starts, ends = self._added_tokens.split(
                texts, self._pieces
            )
            if not self.data.trim_offsets:
                return ids, splits, starts, ends
            own, leads = tf.gather(self._own, ids), tf.gather(self._leads, ids)
            starts = tf.where(own > 0, ends - own, starts)
            if self.data.add_prefix_space:
                is_first = tf.cast(starts == 0, tf.int32)
                leads = tf.maximum(leads - is_first, 0)
            starts = tf.minimum(starts + leads, ends)
            trails = tf.gather(self._trails, ids)
            return ids, splits, starts, tf.maximum(ends - trails, starts)

    def _table(self) -> np.ndarray:
        """A token of each hash value, of several the first, int32."""
        hashes = self._hashes(self._letters).numpy()
        table = np.zeros(self._num_hashes, np.int32)
        # Of an index that occurs more than once, the last value stays.
        table[hashes[::-1]] = np.arange(len(hashes))[::-1]
        return table

    @property
    def _num_hashes(self) -> int:
        return 2 * len(self.data)

    def _hashes(self, parts: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_hash_bucket_fast(parts, self._num_hashes)

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """BPE of normalized texts: ids, row splits, byte starts and ends."""
        shift = tf.zeros([tf.size(texts)], tf.int64)
        if self.data.add_prefix_space:
            bare = (texts != "") & (tf.strings.substr(texts, 0, 1) != " ")
            texts = tf.where(bare, tf.strings.join([" ", texts]), texts)
            shift = tf.cast(bare, tf.int64)
        parts, splits = self._parts(texts)
        pieces = self._merge_once(parts)
        ids = pieces.flat_values
        splits = tf.gather(pieces.row_splits, splits)
        ends = tf.cumsum(tf.gather(self._lengths, ids))
        rows = tf.ragged.row_splits_to_segment_ids(splits)
        row_begins = tf.gather(tf.concat([[0], ends], 0), splits)
        first = tf.gather(row_begins[:-1] + shift, rows)
        starts = ends - tf.gather(self._lengths, ids) - first
        return ids, splits, tf.maximum(starts, 0), tf.maximum(ends - first, 1)

    def _parts(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Divides texts where no merge crosses: bytes as letters, row splits.

        A merge stays inside a word, and inside bytes of which every two
        neighbours are neighbours in some token.
        """
        begins = self._begins(tf.strings.unicode_decode(texts, "UTF-8"))
        raw = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        codes = tf.cast(raw, tf.int32)
        heads = tf.bitwise.bitwise_and(codes, 0xC0) != 0x80
        character = tf.cumsum(tf.cast(heads, tf.int32)) - 1
        starts = heads & tf.gather(begins, character)
        before = tf.concat([[0], codes], 0)[:-1]
        starts |= ~tf.gather(self._adjacent, 256 * before + codes)
        total = tf.size(codes, tf.int64)
        parts = tf.RaggedTensor.from_row_splits(
            codes,
            tf.concat([tf.where(starts)[:, 0], [total]], 0),
            validate=False,
        )
        counts = tf.concat([[0], tf.cumsum(tf.cast(starts, tf.int64))], 0)
        ends = tf.concat([[0], tf.cumsum(tf.strings.length(texts))], 0)
        return tf.strings.unicode_encode(parts, "UTF-8"), tf.gather(
            counts, ends
        )

    def _merge_once(self, parts: tf.Tensor) -> tf.RaggedTensor:
        """The same as `_merge`; looks tokens up and merges the others once."""
        distinct, number = tf.unique(parts)
        token = tf.gather(self._tokens_by_hash, self._hashes(distinct))
        known = tf.gather(self._letters, token) == distinct
        merged = self._merge(tf.boolean_mask(distinct, ~known))
        found = tf.boolean_mask(token, known)[:, tf.newaxis]
        pieces = tf.concat([tf.RaggedTensor.from_tensor(found), merged], 0)
        # The place of each in `pieces`.
        first = tf.cumsum(tf.cast(known, tf.int32))
        second = tf.cumsum(tf.cast(~known, tf.int32)) + tf.shape(found)[0]
        place = tf.where(known, first, second) - 1
        return tf.gather(pieces, tf.gather(place, number))

    def _merge(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The ids of words, string [W], whose letters are bytes."""
        return self._operation(self._model).tokenize(words)

    def _begins(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """The beginnings of words by GPT-2's regular expression, bool [C].

        's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|
        \\s+(?!\\S)|\\s+
        """
        flat = codes.flat_values
        size = tf.size(flat)
        kinds = tf.gather(self._classes, flat)
        marks = tf.scatter_nd(
            tf.cast(codes.row_splits, tf.int32)[:, tf.newaxis],
            tf.ones_like(codes.row_splits, tf.int32),
            [size + 1],
        )
        first, last = marks[:-1] > 0, marks[1:] > 0

        def before(values: tf.Tensor, outside: Any = -1) -> tf.Tensor:
            fill = tf.constant([outside], values.dtype)
            moved = tf.concat([fill, values], 0)[:size]
            return tf.where(first, fill, moved)

        def after(values: tf.Tensor, outside: Any = -1) -> tf.Tensor:
            fill = tf.constant([outside], values.dtype)
            moved = tf.concat([values, fill], 0)[1:]
            return tf.where(last, fill, moved)

        previous, following = before(kinds), after(kinds)
        one = after(flat)
        two = after(one)
        # Apostrophes that follow no other symbol and no space.
        heads = (flat == ord("'")) & (previous != _OTHER) & (previous != _SPACE)
        ends_in_one, ends_in_two = (
            heads
            & functools.reduce(
                tf.logical_or,
                (
                    functools.reduce(
                        tf.logical_and,
                        (
                            c == ord(x)
                            for c, x in zip((one, two), text, strict=False)
                        ),
                    )
                    for text in _CONTRACTIONS
                    if len(text) == length
                ),
            )
            for length in (1, 2)
        )
        inside_one = before(ends_in_one, False)
        inside_two = before(ends_in_two, False)
        last_of_two = before(inside_two, False)
        inside = inside_one | inside_two | last_of_two
        follows = before(inside_one, False) | before(last_of_two, False)
        blank = kinds >= _BLANK
        blank_before = previous >= _BLANK
        text_after = (following >= 0) & (following < _BLANK)
        plain = ~blank & (previous != _SPACE) & (kinds != previous)
        space = blank & (~blank_before | text_after)
        return (
            first
            | ends_in_one
            | ends_in_two
            | follows
            | ((plain | space) & ~inside)
        )


def _adjacent(data: ByteLevelBpe) -> np.ndarray:
    """Whether some token has bytes a and b side by side, at 256 a + b, bool."""
    found = np.zeros(256 * 256, bool)
    for raw in data.raw:
        codes = np.frombuffer(raw or b"", np.uint8).astype(np.int32)
        found[256 * codes[:-1] + codes[1:]] = True
    return found


def _sentencepiece_model(data: ByteLevelBpe) -> bytes:
    """The merges as a BPE model of SentencePiece over ISO-8859-1's letters."""
    model = ModelProto()
    for token, raw in zip(data.tokens, data.raw, strict=True):
        piece = model.pieces.add()
        if raw is None:
            piece.piece, piece.type = _UNSPELLED + token, piece.CONTROL
        else:
            # Bytes are not the result of a merge.
            piece.piece = raw.decode("latin-1")
            piece.score = -float(data.ranks.get(token, len(data)))
    model.pieces.add(piece=_UNKNOWN, type=ModelProto.SentencePiece.UNKNOWN)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type = trainer.BPE
    trainer.unk_id, trainer.unk_piece = len(data), _UNKNOWN
    trainer.bos_id = trainer.eos_id = trainer.pad_id = -1
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = False
    return with_replacements(model)
