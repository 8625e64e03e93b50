"""BERT's tokenization as TensorFlow operations, exact for every string."""

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.errors import UserError
from bert_tf.sources import local_folder, transformer_folder
from bert_tf.text import unicode_tables
from bert_tf.text.added_tokens import AddedTokens, Pieces
from bert_tf.text.normalizer import (
    BertNormalizer,
    CodePoints,
    characters_before,
)
from bert_tf.text.token_table import SPECIAL_TOKENS, Packing, TokenTable
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.tokenizer_protocol import no_vocabulary
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    Vocabulary,
)
from bert_tf.text.wordpiece import WordPiece

# The version of TF Text whose rules the tests check; another is checked when a
# process builds its first tokenizer.
TESTED = "2.21.1"
_MAX_CHARACTER_BYTES = 4
# TF Text's own limit (fast_wordpiece_tokenizer_utils.h), without the "##".
MAX_PIECE_BYTES = 256
# Strings that need no normalization table.
_PLAIN_ASCII = r"[\t\n\r -~]*"
# Strings that may contain a word over the limit.
_LONG_RUN = rf"(?s).*[^\x00-\x20]{{{MAX_WORD_CHARACTERS + 1}}}.*"
CHECK_TOKENS = (
    *SPECIAL_TOKENS.present,
    *("a", "##a", "b", "##b", "A", "e", "##e", "é", "##é", "i", "σ", "##σ"),
    *("##ς", "中", "!", "[", "]", "\u1100", "##\u1161"),
    *("\u302e", "##\u302e", "\U00016ff0", "##\U00016ff0"),
)

# Texts for which the rules of TF Text and BERT differ: a text, its tokens with
# lower-casing, and its tokens without.
CHECKS = (
    ("Ab", "a ##b", "A ##b"),
    ("a\tb\r\na", "a b a", "a b a"),
    # Accents are stripped, composed or not, only with lower-casing.
    ("É", "e", "[UNK]"),
    ("e\u0301!", "e !", "[UNK] !"),
    # Control and format characters are removed.
    ("a\x01b", "a ##b", "a ##b"),
    ("a\x00b\ufffd", "a ##b", "a ##b"),
    ("a\u200bb\u00ad", "a ##b", "a ##b"),
    # All white space separates; U+0085 is a control character.
    ("a\u00a0b\u3000a\u2028b\u0085a", "a b a b ##a", "a b a b ##a"),
    # No compatibility folding: sharp s, a ligature, an ellipsis, a wide A.
    ("ß \ufb01", "[UNK] [UNK]", "[UNK] [UNK]"),
    ("\u2026 \uff21", "[UNK] [UNK]", "[UNK] [UNK]"),
    # A capital sigma is final after a letter, unless a letter follows.
    ("aΣ aΣa Σ", "a ##ς a ##σ ##a σ", "[UNK] [UNK] [UNK]"),
    ("a\u0301Σ\u200d!", "a ##ς !", "[UNK] !"),
    ("\u0130", "i", "[UNK]"),
    # Hangul is decomposed; marks that are kept are ordered.
    ("\uac00", "\u1100 ##\u1161", "[UNK]"),
    ("\u302e\U00016ff0", "\U00016ff0 ##\u302e", "\u302e ##\U00016ff0"),
    # Ideographs and punctuation are split off, also in special tokens.
    ("a中b![A]", "a 中 b ! [ a ]", "a 中 b ! [ A ]"),
    # An unassigned character belongs to its word.
    ("a\U000e0fffb", "[UNK]", "[UNK]"),
    # The limit of a word is 200 characters, not bytes.
    ("a" * 200, "a" + 199 * " ##a", "a" + 199 * " ##a"),
    ("b" + "a" * 200, "[UNK]", "[UNK]"),
    ("é" * 200, "e" + 199 * " ##e", "é" + 199 * " ##é"),
    ("é" * 201 + "!", "[UNK] !", "[UNK] !"),
)


class GraphTokenizer(tf.Module):
    """The shared methods of tokenizers of TensorFlow operations.

    Subclasses set `data`, `vocabulary` and `_tokens`, and trace `_tokenize` and
    `_tokenize_with_offsets`.
    """

    data: Any
    vocabulary: Any
    _tokens: tf.Tensor
    _tokenize: Any
    _tokenize_with_offsets: Any

    def __init__(self) -> None:
        super().__init__()
        self._known_traces: set[Any] = set()

    def __call__(self, texts: tf.Tensor | str | Sequence[str]):
        """The same as `tokenize`."""
        return self.tokenize(texts)

    @property
    def packing(self) -> Packing:
        """How special tokens frame the texts of a row."""
        return self.vocabulary.packing

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes the files of the tokenizer into a folder."""
        self.data.save(folder)

    def tokenize(self, texts: tf.Tensor | str | Sequence[str]):
        """Splits texts into ids.

        Args:
          texts: string [B] or a scalar; also Python strings or lists.

        Returns:
          int32 ids, ragged [B, tokens], or [tokens] for a scalar.

        Raises:
          UserError: `texts` has another type or shape.
        """
        texts, is_scalar = as_batch(texts)
        ids, splits = self._traced(self._tokenize)(texts)[:2]
        return ids if is_scalar else ragged(ids, splits)

    def tokenize_with_offsets(self, texts: tf.Tensor | str | Sequence[str]):
        """Splits texts into ids with character offsets.

        A token spans its characters in the text and the following characters
        that the rules remove (combining accents, control characters). If one
        character becomes several pieces, each piece spans the character.

        Args:
          texts: as for `tokenize`.

        Returns:
          The ids, their starts and their exclusive ends, each int32, ragged
          [B, tokens] or [tokens]. Starts and ends count Unicode characters;
          in bytes that are not UTF-8, those of `decode(errors="replace")`.

        Raises:
          UserError: `texts` has another type or shape.
        """
        texts, is_scalar = as_batch(texts)
        run = self._traced(self._tokenize_with_offsets)
        ids, splits, starts, ends = run(texts)
        if is_scalar:
            return ids, starts, ends
        return tuple(ragged(values, splits) for values in (ids, starts, ends))

    def _traced(self, function: Any) -> Any:
        """Traces a method before its first call.

        TensorFlow counts the calls of all instances together and would warn of
        retracing.
        """
        if function not in self._known_traces:
            function.get_concrete_function()
            self._known_traces.add(function)
        return function

    def id_to_token(self, ids):
        """Maps int32 ids of any shape, dense or ragged, to tokens."""
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.id_to_token(ids.flat_values))
        with tf.device("/CPU:0"):
            return tf.gather(self._tokens, ids)


class BertTokenizer(GraphTokenizer):
    """Splits text into WordPiece ids like google-research/bert.

    Runs eagerly, in tf.data and in SavedModels, and returns the ids of
    tokenization.py's FullTokenizer for every Unicode string. Bytes that are not
    UTF-8 are dropped. `strip_accents` and `tokenize_chinese_chars` are those of
    Hugging Face's BertTokenizer, and added tokens are recognized in text as by
    its fast tokenizers. [PAD], [UNK], [CLS], [SEP] and [MASK] in text are split
    like other text, as in Google's code, unless `split_special_tokens` is
    False.
    """

    def __init__(
        self,
        vocab: str | pathlib.Path | Sequence[str] | Vocabulary,
        lower_case: bool | None = None,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        added_tokens: Sequence[AddedToken] = (),
        split_special_tokens: bool = True,
    ):
        """Builds the tables.

        Args:
          vocab: a vocab.txt, a list of tokens or a `Vocabulary`.
          lower_case: whether to lower-case; None does unless the vocabulary has
            tokens with capital letters.
          strip_accents: whether to strip accents; None means `lower_case`.
          tokenize_chinese_chars: whether every ideograph is a separate word;
            otherwise ideographs are letters.
          added_tokens: tokens of the vocabulary that are recognized in text
            before it is split into words.
          split_special_tokens: whether [PAD], [UNK], [CLS], [SEP] and [MASK]
            in text are split like other text; False recognizes them, as
            transformers does by default.

        Raises:
          UserError: the vocabulary is invalid, contains a token of more than
            the 256 bytes of TF Text, or lacks an added token; or the installed
            TF Text breaks the rules.
        """
        super().__init__()
        if isinstance(vocab, str | pathlib.Path):
            vocab = Vocabulary.from_file(vocab)
        elif not isinstance(vocab, Vocabulary):
            vocab = Vocabulary(vocab)
        self.vocabulary = vocab
        if lower_case is None:
            lower_case = not vocab.looks_cased()
        self.config = TokenizerConfig.of(
            bool(lower_case),
            strip_accents,
            bool(tokenize_chinese_chars),
            added_tokens,
        )
        self.split_special_tokens = bool(split_special_tokens)
        recognized = list(self.config.added_tokens)
        if not split_special_tokens:
            recognized += [
                AddedToken(token, normalized=False, special=True)
                for token in vocab.special.present
            ]
        # The check builds a tokenizer of these tokens.
        if tf_text.__version__ != TESTED and vocab.tokens != CHECK_TOKENS:
            check_rules(self.lower_case)
        known = frozenset(map(ord, set("".join(vocab.tokens))))
        unassigned = frozenset(
            c for c in known if unicode_tables.unassigned()[c]
        )
        # A word with a character that neither Python's tables nor the
        # vocabulary contain is [UNK], even if it is punctuation for TF Text.
        unknown = chr(
            next(c for c in unicode_tables.NONCHARACTERS if c not in unassigned)
        )
        letters = {}
        if not tokenize_chinese_chars:
            letters = unicode_tables.ideographs_as_letters(known, unknown)
        replaced = dict(letters)
        if any(token.normalized for token in recognized):
            # So that added tokens that contain a blank match.
            replaced |= dict.fromkeys(unicode_tables.spaces(), " ")
        added = {token.content for token in self.config.added_tokens}
        # TF Text would match a token that contains a blank across two words.
        pieces = [
            token.translate(letters)
            if vocab.in_words[number] and token not in added
            else f"[{unknown}{number}]"
            for number, token in enumerate(vocab.tokens)
        ]
        for token, piece in zip(vocab.tokens, pieces, strict=True):
            if len(piece.removeprefix(CONTINUATION).encode()) > MAX_PIECE_BYTES:
                raise UserError(
                    f"vocabulary: token {token[:20]!r}... has more than "
                    f"{MAX_PIECE_BYTES} bytes in UTF-8."
                )
        with tf.init_scope(), tf.device("/CPU:0"):
            self._normalizer = BertNormalizer(
                self.config,
                CodePoints(unassigned, unknown, tuple(replaced.items())),
            )
            self._wordpiece = tf_text.FastWordpieceTokenizer(
                vocab=pieces,
                max_bytes_per_word=MAX_WORD_CHARACTERS * _MAX_CHARACTER_BYTES,
                token_out_type=tf.int32,
                unknown_token=vocab.tokens[vocab.unk_id],
            )
            self._tokens = tf.constant(vocab.tokens)
            self._is_continuation = tf.constant(vocab.is_continuation)
            self._added_tokens = None
            if recognized:
                # transformers first inserts blanks around ideographs.
                isolated = unicode_tables.character_class(
                    unicode_tables.IDEOGRAPHS
                )
                self._added_tokens = AddedTokens(
                    recognized,
                    vocab,
                    self._normalizer,
                    isolated if tokenize_chinese_chars else "",
                )

    def __repr__(self) -> str:
        case = "uncased" if self.lower_case else "cased"
        return f"BertTokenizer({len(self.vocabulary):,} tokens, {case})"

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""
        return self.config.lower_case

    @classmethod
    def from_data(
        cls, data: WordPiece, split_special_tokens: bool = True
    ) -> "BertTokenizer":
        """Builds the tokenizer of a vocabulary and its rules."""
        config = data.rules
        return cls(
            data.vocabulary,
            config.lower_case,
            config.strip_accents,
            config.tokenize_chinese_chars,
            config.added_tokens,
            split_special_tokens,
        )

    @classmethod
    def from_checkpoint(
        cls,
        source: str | os.PathLike,
        lower_case: bool | None = None,
        split_special_tokens: bool = True,
    ) -> "BertTokenizer":
        """Builds the tokenizer of a model.

        Args:
          source: a model folder of any family, or a hub's name of one; see
            `bert_tf.load_checkpoint`.
          lower_case: whether to lower-case; None means as the folder states
            (see `read_tokenizer_config`).
          split_special_tokens: whether special tokens in text are split like
            other text; added tokens are recognized in both cases.

        Raises:
          UserError: the source or its vocabulary is missing or damaged, or its
            files state rules that this tokenizer does not support.
        """
        folder = transformer_folder(local_folder(source))
        data = WordPiece.read(folder, lower_case)
        if data is None:
            raise no_vocabulary(folder, WordPiece)
        return cls.from_data(data, split_special_tokens)

    @property
    def data(self) -> WordPiece:
        """The vocabulary and the rules."""
        return WordPiece(self.vocabulary, self.config)

    @property
    def stand_alone(self) -> frozenset[int]:
        """The code points that always are separate words."""
        return unicode_tables.stand_alone(self.config.tokenize_chinese_chars)

    @property
    def added_ids(self) -> tuple[int, ...]:
        """The ids of tokens that are recognized in text before it is split."""
        return self._added_tokens.ids if self._added_tokens else ()

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes texts, string [B], as before splitting."""
        return self._letters.normalize(texts)

    @functools.cached_property
    def _letters(self) -> BertNormalizer:
        # Unlike `_normalizer`, it keeps characters outside of the vocabulary.
        with tf.init_scope(), tf.device("/CPU:0"):
            return BertNormalizer(self.config)

    def detokenize(self, ids) -> tf.Tensor:
        """Joins pieces to words, and words by spaces.

        [PAD], [CLS] and [SEP] are omitted.

        Args:
          ids: int32 [B, tokens], dense or ragged, or [tokens].

        Returns:
          string [B], or a scalar.
        """
        ids, is_single = text_ids(ids, self.vocabulary)
        with tf.device("/CPU:0"):
            joined = tf.strings.reduce_join(
                self.id_to_token(ids), axis=-1, separator=" "
            )
            texts = tf.strings.regex_replace(joined, f" {CONTINUATION}", "")
        return texts[0] if is_single else texts

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def _tokenize(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The flat ids of a batch and their row splits."""
        with tf.device("/CPU:0"):
            if self._added_tokens is not None:
                return self._added_tokens.split(texts, self._pieces)[:2]
            normalized = tf.cond(
                _all_plain_ascii(texts),
                lambda: tf.strings.lower(texts) if self.lower_case else texts,
                lambda: self._normalizer.normalize(texts),
            )
            ids, splits, _, _ = self._pieces(normalized)
            return ids, splits

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Flat ids, row splits, and flat character offsets of a batch."""

        def of_ascii() -> Pieces:
            lowered = tf.strings.lower(texts) if self.lower_case else texts
            ids, splits, *offsets = self._pieces(lowered)
            starts, ends = (tf.cast(values, tf.int32) for values in offsets)
            return ids, splits, starts, ends

        def of_others() -> Pieces:
            normalized, sources, repaired = (
                self._normalizer.normalize_with_offsets(texts)
            )
            ids, splits, starts, ends = self._pieces(normalized)
            rows = tf.ragged.row_splits_to_segment_ids(splits)
            starts, ends = self._normalizer.character_offsets(
                sources, repaired, rows, starts, ends
            )
            return ids, splits, starts, ends

        with tf.device("/CPU:0"):
            if self._added_tokens is not None:
                return self._added_tokens.split(texts, self._pieces)
            return tf.cond(_all_plain_ascii(texts), of_ascii, of_others)

    def _pieces(self, normalized: tf.Tensor) -> Pieces:
        """WordPiece of normalized texts: ids, splits, byte starts and ends."""
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(normalized)
        pieces = (ids.values, ids.row_splits, starts.values, ends.values)
        lengths = tf.strings.length(normalized, unit="UTF8_CHAR")
        suspects = tf.boolean_mask(normalized, lengths > MAX_WORD_CHARACTERS)
        return tf.cond(
            tf.reduce_any(tf.strings.regex_full_match(suspects, _LONG_RUN)),
            lambda: self._limit_words(normalized, *pieces),
            lambda: pieces,
        )

    def _limit_words(
        self,
        normalized: tf.Tensor,
        ids: tf.Tensor,
        splits: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
    ) -> Pieces:
        """Replaces the pieces of words of more than 200 characters by [UNK].

        TF Text limits words to 800 bytes (200 characters of four bytes), so
        words between the two limits have pieces.
        """
        is_first = ~tf.gather(self._is_continuation, ids)
        firsts = tf.where(is_first)[:, 0]
        # One fewer than the boundaries; none if there is no word.
        boundaries = tf.concat([firsts, [tf.size(ids, tf.int64)]], 0)
        lasts = boundaries[1:] - 1
        begins = tf.gather(starts, firsts)
        word_ends = tf.gather(ends, lasts)
        rows = tf.searchsorted(splits, firsts, side="right") - 1
        # Extracting words from long texts would copy the text per word.
        before, through = characters_before(normalized, rows, begins, word_ends)
        is_long = through - before > MAX_WORD_CHARACTERS
        indices = tf.boolean_mask(firsts, is_long)[:, tf.newaxis]
        ids = tf.tensor_scatter_nd_update(
            ids,
            indices,
            tf.fill(tf.shape(indices)[:1], self.vocabulary.unk_id),
        )
        ends = tf.tensor_scatter_nd_update(
            ends, indices, tf.boolean_mask(word_ends, is_long)
        )
        word_of_token = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
        keep = is_first | ~tf.gather(is_long, word_of_token)
        num_before = tf.concat([[0], tf.cumsum(tf.cast(keep, tf.int64))], 0)
        return (
            tf.boolean_mask(ids, keep),
            tf.gather(num_before, splits),
            tf.boolean_mask(starts, keep),
            tf.boolean_mask(ends, keep),
        )


def _all_plain_ascii(texts: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(tf.strings.regex_full_match(texts, _PLAIN_ASCII))


def as_batch(texts) -> tuple[tf.Tensor, bool]:
    """Converts texts to string [B]; returns whether they were a scalar."""
    try:
        texts = tf.convert_to_tensor(texts, tf.string)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"texts: pass a string or a list of strings ({error})."
        ) from None
    if texts.shape.rank not in (0, 1):
        raise UserError(
            f"texts: has shape {texts.shape}; pass a scalar or [B]."
        )
    is_scalar = texts.shape.rank == 0
    return (texts[tf.newaxis] if is_scalar else texts), is_scalar


def text_ids(ids: Any, table: TokenTable) -> tuple[tf.RaggedTensor, bool]:
    """Removes [PAD], [CLS] and [SEP] from ids.

    Args:
      ids: int32 [B, tokens], dense or ragged, or [tokens].
      table: the vocabulary.

    Returns:
      int32, ragged [B, tokens], and whether `ids` were those of one text.
    """
    is_single = False
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids, tf.int32)
        is_single = ids.shape.rank == 1
        ids = tf.RaggedTensor.from_tensor(ids[tf.newaxis] if is_single else ids)
    omitted = [table.pad_id, table.cls_id, table.sep_id]
    keep = tf.reduce_all(ids.flat_values[:, tf.newaxis] != omitted, -1)
    return tf.ragged.boolean_mask(ids, ids.with_flat_values(keep)), is_single


def ragged(values: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
    """Builds a ragged tensor from flat values and row splits."""
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


@functools.cache
def check_rules(lower_case: bool) -> None:
    """Checks the tokens of the texts in `CHECKS`, once per process.

    Raises:
      UserError: the installed TF Text returns other tokens.
    """
    with tf.init_scope():
        tokenizer = BertTokenizer(CHECK_TOKENS, lower_case)
        texts = tf.constant([text for text, *_ in CHECKS])
        # Eagerly, because tracing takes longer.
        ids = ragged(*tokenizer._tokenize.python_function(texts))
        all_tokens = tokenizer.id_to_token(ids).to_list()
    for (text, *expected), tokens in zip(CHECKS, all_tokens, strict=True):
        correct = expected[0 if lower_case else 1].split()
        tokens = [token.decode() for token in tokens]
        if tokens != correct:
            raise UserError(
                f"TensorFlow Text {tf_text.__version__} breaks BERT's rules: "
                f"{text!r} gives {tokens}, not {correct}; install the version "
                "in requirements.txt."
            )
