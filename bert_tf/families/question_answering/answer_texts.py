"""Cuts the best answers out of their contexts, in TensorFlow operations.

The rules are those of google-research/bert, run_squad.py, `write_predictions`:
the n best answers have different texts. An answer has the characters of its
tokens, without blanks at its ends (google-research/albert, squad_utils.py).

The tokens of WordPiece are aligned with the context by their texts instead
(run_squad.py, `get_final_text`). The non-blank characters of an answer's tokens
are aligned one by one with those of the words that contain them. If the numbers
of characters differ, or a token is unknown, the answer is whole words. The
tokens are searched in their words from the left and may be found before their
own position.
"""

import functools
from typing import NamedTuple, Self

import tensorflow as tf

from bert_tf.families.question_answering.config import BLANKS
from bert_tf.families.requests import Tensors
from bert_tf.text.layout import ragged_range, text_of
from bert_tf.text.tokenizer_protocol import Tokenizer

# Candidates whose texts are computed first, as a multiple of n; more follow
# only for questions with fewer than n different texts.
_FIRST_CANDIDATES = 2
_BLANKS = "".join(f"\\x{{{ord(blank):X}}}" for blank in BLANKS)


class Candidates(NamedTuple):
    """V spans of tokens, grouped by question and best first.

    Attributes:
      question: int32 [V].
      first: int32 [V], index into the concatenated tokens of all contexts.
      last: int32 [V], likewise.
      start_logit: float32 [V].
      end_logit: float32 [V].
    """

    question: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    start_logit: tf.Tensor
    end_logit: tf.Tensor

    @property
    def score(self) -> tf.Tensor:
        """Sum of start and end logit, float64 [V]."""
        return score_of(self.start_logit, self.end_logit)

    def take(self, chosen: tf.Tensor) -> Self:
        """Selects candidates by index, int32 [K]."""
        return type(self)(*(tf.gather(values, chosen) for values in self))


def score_of(start_logit: tf.Tensor, end_logit: tf.Tensor) -> tf.Tensor:
    """Adds start and end logits in float64, without rounding."""
    return tf.cast(start_logit, tf.float64) + tf.cast(end_logit, tf.float64)


class Words(NamedTuple):
    """The characters and words of C contexts, concatenated.

    Attributes:
      codes: int32 [characters].
      row_begin: int32 [C], the first character of each context.
      is_blank: bool [characters], whether a character separates words.
      begins: bool [characters], whether a word begins with a character.
      number: int32 [characters], the word of each; of a blank, the last one.
    """

    codes: tf.Tensor
    row_begin: tf.Tensor
    is_blank: tf.Tensor
    begins: tf.Tensor
    number: tf.Tensor


def find_words(contexts: tf.Tensor) -> Words:
    """Finds the words of contexts, valid UTF-8, string [C]."""
    decoded = tf.strings.unicode_decode(contexts, "UTF-8")
    codes = decoded.flat_values
    row_begin = tf.cast(decoded.row_starts(), tf.int32)
    is_blank = functools.reduce(
        tf.logical_or, (codes == ord(blank) for blank in BLANKS)
    )
    after_blank = tf.concat([[True], is_blank], 0)[: tf.size(codes)]
    rows = tf.cast(decoded.value_rowids(), tf.int32)
    begins_row = tf.range(tf.size(codes)) == tf.gather(row_begin, rows)
    begins = ~is_blank & (after_blank | begins_row)
    number = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    return Words(codes, row_begin, is_blank, begins, number)


class Characters(NamedTuple):
    """The characters of C contexts and of their T tokens.

    Contexts, words, characters and tokens are concatenated.

    Attributes:
      words: words of the contexts.
      solid: int32 [N], the characters that are not blanks.
      begin: int32 [T], solid characters before each token.
      end: int32 [T], solid characters up to the end of each token.
      alignment: the texts of the tokens, if they are aligned.
    """

    words: Words
    solid: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    alignment: "Alignment | None"

    def with_text(self, candidates: Candidates) -> Candidates:
        """Selects the candidates that do not consist of blanks."""
        begin = tf.gather(self.begin, candidates.first)
        has_text = tf.gather(self.end, candidates.last) > begin
        return candidates.take(tf.where(has_text)[:, 0])

    def spans(
        self, first: tf.Tensor, last: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The first and last solid characters of tokens [V] to tokens [V]."""
        if self.alignment is None:
            begin, end = tf.gather(self.begin, first), tf.gather(self.end, last)
            return begin, end - 1
        found = first_matches(
            self.alignment, character_spans(self.alignment, first, last)
        )
        return found.first, found.last


class Alignment(NamedTuple):
    """The texts of T tokens beside the words of their contexts.

    Attributes:
      word_counts: int32 [words + 1], solid characters before each word.
      word: int32 [T], the word of each token.
      token_codes: int32 [M], the characters of the tokens.
      token_begin: int32 [T + 1], the first of them of each token.
      spaced: bool [M], whether a space precedes a character.
      unknown: int32 [T + 1], unknown tokens before each token.
    """

    word_counts: tf.Tensor
    word: tf.Tensor
    token_codes: tf.Tensor
    token_begin: tf.Tensor
    spaced: tf.Tensor
    unknown: tf.Tensor


class CharacterSpans(NamedTuple):
    """V answers as spans of solid characters.

    Attributes:
      first: int32 [V], the first character.
      last: int32 [V], the last character.
      searched: int32 [V], characters of its words before the answer, where its
        text may occur earlier; 0 for whole words.
      token: int32 [V], the first of its characters in `token_codes`.
    """

    first: tf.Tensor
    last: tf.Tensor
    searched: tf.Tensor
    token: tf.Tensor


def best_answers(
    candidates: Candidates,
    null: tuple[tf.Tensor, tf.Tensor],
    characters: Characters,
    context: tf.Tensor,
    n_best_size: int,
    with_null: bool,
) -> Tensors:
    """Selects the best answers to B questions.

    Args:
      candidates: V spans.
      null: start and end logit of no answer, float32 [B].
      characters: characters of C contexts.
      context: int32 [B], the context of each question.
      n_best_size: n, the number of answers to each question.
      with_null: whether no answer is one of them.

    Returns:
      n_best_answers, string [B, n], best first; n_best_scores, float64 [B, n],
      their softmax; n_best_start_logits and n_best_end_logits, float32 [B, n];
      n_best_starts and n_best_ends, int32 [B, n], characters of the context.
      Padding is "", 0 and -1. null_start_logit and null_end_logit, float32 [B];
      null_odds, float64 [B], the score of no answer minus that of the best
      answer; no_answer_probability, float64 [B].
    """
    rows = tf.size(context)
    null_score = score_of(*null)
    candidates = characters.with_text(candidates)
    candidates, first, last, texts = _distinct(
        candidates, characters, n_best_size, rows
    )
    rank = _ranks(candidates.question, rows)
    limit = tf.fill([rows], n_best_size)
    if with_null:
        # No answer comes after candidates of the same score, and takes the
        # place of the last candidate if it is among the n best.
        before = candidates.score >= tf.gather(null_score, candidates.question)
        limit -= tf.cast(
            _counts(tf.boolean_mask(candidates.question, before), rows)
            < n_best_size,
            tf.int32,
        )
    best = tf.where(rank < tf.gather(limit, candidates.question))[:, 0]
    candidates = candidates.take(best)
    question, score = candidates.question, candidates.score
    index = tf.stack([question, tf.gather(rank, best)], 1)
    # The softmax over the best. The maximum of no candidates is the lowest
    # number.
    highest = tf.math.unsorted_segment_max(score, question, rows)
    shift, exp_null = highest, tf.zeros_like(highest)
    if with_null:
        shift = tf.maximum(highest, null_score)
        exp_null = tf.exp(null_score - shift)
    exp_scores = tf.exp(score - tf.gather(shift, question))
    total = tf.math.unsorted_segment_sum(exp_scores, question, rows) + exp_null

    def padded(values: tf.Tensor, padding: str | int) -> tf.Tensor:
        table = tf.fill([rows, n_best_size], tf.cast(padding, values.dtype))
        return tf.tensor_scatter_nd_update(table, index, values)

    row_begin = tf.gather(
        characters.words.row_begin, tf.gather(context, question)
    )
    begin, end = (
        tf.gather(characters.solid, tf.gather(each, best)) - row_begin
        for each in (first, last)
    )
    return {
        "n_best_answers": padded(tf.gather(texts, best), ""),
        "n_best_scores": padded(exp_scores / tf.gather(total, question), 0),
        "n_best_start_logits": padded(candidates.start_logit, 0),
        "n_best_end_logits": padded(candidates.end_logit, 0),
        "n_best_starts": padded(begin, -1),
        "n_best_ends": padded(end + 1, -1),
        "null_start_logit": null[0],
        "null_end_logit": null[1],
        "null_odds": null_score
        - tf.where(highest > highest.dtype.min, highest, 0),
        "no_answer_probability": tf.math.divide_no_nan(exp_null, total),
    }


def _distinct(
    candidates: Candidates,
    characters: Characters,
    n_best_size: int,
    rows: tf.Tensor,
) -> tuple[Candidates, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Selects the first candidate of each text, n or more if there are.

    Returns:
      The candidates, and the first characters, last characters and texts [K]
      of their answers.
    """
    rank = _ranks(candidates.question, rows)
    counts = _counts(candidates.question, rows)

    def search(limit: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        chosen = tf.cast(tf.where(rank < limit)[:, 0], tf.int32)
        tried = candidates.take(chosen)
        first, last = characters.spans(tried.first, tried.last)
        texts = answer_texts(characters, first, last)
        _, text = tf.unique(texts, tf.int64)
        # Equal for equal texts of one question.
        keys = text * tf.cast(rows, tf.int64) + tf.cast(
            tried.question, tf.int64
        )
        number = tf.range(tf.size(keys))
        _, same = tf.unique(keys)
        least = tf.math.unsorted_segment_min(number, same, tf.size(keys))
        kept = tf.boolean_mask(number, tf.gather(least, same) == number)
        num_kept = _counts(tf.gather(tried.question, kept), rows)
        is_short = (num_kept < n_best_size) & (counts > limit)
        return (
            tf.where(tf.reduce_any(is_short), 2 * limit, 0),
            *(
                tf.gather(values, kept)
                for values in (chosen, first, last, texts)
            ),
        )

    empty, any_size = tf.zeros([0], tf.int32), tf.TensorShape([None])
    limit = _FIRST_CANDIDATES * n_best_size
    _, chosen, first, last, texts = tf.while_loop(
        lambda limit, *_: limit > 0,
        search,
        [limit, empty, empty, empty, tf.zeros([0], tf.string)],
        shape_invariants=[tf.TensorShape([]), *([any_size] * 4)],
    )
    return candidates.take(chosen), first, last, texts


def _counts(question: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Counts the candidates of each of `rows` questions, int32."""
    return tf.math.unsorted_segment_sum(tf.ones_like(question), question, rows)


def _ranks(question: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return ragged_range(_counts(question, rows))[1]


class ContextCharacters(tf.Module):
    """Aligns the characters of contexts with those of their tokens."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        vocabulary = tokenizer.vocabulary
        self._aligns_texts = vocabulary.aligns_texts
        self._unknown, self._normalize = vocabulary.unk_id, tokenizer.normalize
        with tf.init_scope(), tf.device("/CPU:0"):
            self._texts = tf.constant(vocabulary.texts)
            self._starts_word = tf.constant(vocabulary.starts_word)

    def __call__(
        self,
        contexts: tf.Tensor,
        ids: tf.RaggedTensor,
        begins: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> Characters:
        """Aligns contexts with their tokens.

        Args:
          contexts: valid UTF-8, string [C].
          ids: int32 [C, tokens].
          begins: int32 [C, tokens], the first character of each token.
          ends: int32 [C, tokens], the exclusive end of each token.
        """
        words = find_words(contexts)
        token_begins = in_all_contexts(words, begins)
        counts = _cumulative(tf.cast(~words.is_blank, tf.int32))
        alignment = None
        if self._aligns_texts:
            alignment = self._align(words, token_begins, counts, ids, ends)
        return Characters(
            words,
            tf.cast(tf.where(~words.is_blank)[:, 0], tf.int32),
            tf.gather(counts, token_begins),
            tf.gather(counts, in_all_contexts(words, ends)),
            alignment,
        )

    def _align(
        self,
        words: Words,
        token_begins: tf.Tensor,
        counts: tf.Tensor,
        ids: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> Alignment:
        is_unknown = ids.flat_values == self._unknown
        # An unknown token has the characters of its normalised text.
        unknown = tf.where(is_unknown)
        texts = text_of(
            words.codes,
            tf.gather_nd(token_begins, unknown),
            tf.gather_nd(in_all_contexts(words, ends) - token_begins, unknown),
        )
        texts = tf.tensor_scatter_nd_update(
            tf.gather(self._texts, ids.flat_values),
            unknown,
            self._normalize(texts),
        )
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        lengths = tf.cast(decoded.row_lengths(), tf.int32)
        token, number = ragged_range(lengths)
        starts_word = tf.gather(self._starts_word, ids.flat_values)
        return Alignment(
            word_counts=tf.concat(
                [tf.boolean_mask(counts[:-1], words.begins), counts[-1:]], 0
            ),
            word=tf.gather(words.number, token_begins),
            token_codes=decoded.flat_values,
            token_begin=_cumulative(lengths),
            spaced=(number == 0) & tf.gather(starts_word, token),
            unknown=_cumulative(tf.cast(is_unknown, tf.int32)),
        )


def in_all_contexts(words: Words, characters: tf.RaggedTensor) -> tf.Tensor:
    """Converts characters of contexts, int32 [C, tokens], to those of all."""
    rows = characters.value_rowids()
    return characters.flat_values + tf.gather(words.row_begin, rows)


def _cumulative(counts: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(counts)], 0)


def character_spans(
    alignment: Alignment, first: tf.Tensor, last: tf.Tensor
) -> CharacterSpans:
    """Converts answers from token `first` to `last`, int32 [V]."""
    word, token_begin = alignment.word, alignment.token_begin
    begin, end = tf.gather(word, first), tf.gather(word, last) + 1
    before, after = (
        tf.gather(token_begin, tf.searchsorted(word, each))
        for each in (begin, end)
    )
    whole_begin, whole_end = (
        tf.gather(alignment.word_counts, each) for each in (begin, end)
    )
    unknown = alignment.unknown
    is_aligned = (whole_end - whole_begin == after - before) & (
        tf.gather(unknown, last + 1) == tf.gather(unknown, first)
    )
    own = tf.gather(token_begin, first)
    own_end = tf.gather(token_begin, last + 1)
    shift = whole_begin - before
    return CharacterSpans(
        tf.where(is_aligned, own + shift, whole_begin),
        tf.where(is_aligned, own_end + shift, whole_end) - 1,
        tf.where(is_aligned, own - before, 0),
        own,
    )


def first_matches(
    alignment: Alignment, spans: CharacterSpans
) -> CharacterSpans:
    """Moves answers to the first occurrence of their text in their words."""
    codes, spaced = alignment.token_codes, alignment.spaced
    size = spans.last - spans.first + 1
    answer, number = ragged_range(spans.searched)
    start = tf.gather(spans.token - spans.searched, answer) + number
    # Only where the first character is equal are the others compared.
    first_code = tf.gather(codes, tf.gather(spans.token, answer))
    likely = tf.where(tf.gather(codes, start) == first_code)[:, 0]
    answer, start = tf.gather(answer, likely), tf.gather(start, likely)
    own_start = tf.gather(spans.token, answer)
    trial, number = ragged_range(tf.gather(size, answer))
    there, here = (
        tf.gather(each, trial) + number for each in (start, own_start)
    )
    same = (tf.gather(codes, there) == tf.gather(codes, here)) & (
        (number == 0) | (tf.gather(spaced, there) == tf.gather(spaced, here))
    )
    is_match = tf.math.unsorted_segment_min(
        tf.cast(same, tf.int32), trial, tf.size(start)
    )
    shift = tf.math.unsorted_segment_min(
        tf.where(is_match > 0, start - own_start, 0), answer, tf.size(size)
    )
    # The minimum of no trials is the highest number.
    shift = tf.where(spans.searched > 0, tf.minimum(shift, 0), 0)
    return spans._replace(first=spans.first + shift, last=spans.last + shift)


def answer_texts(
    characters: Characters, first: tf.Tensor, last: tf.Tensor
) -> tf.Tensor:
    """Returns the texts of solid characters `first` to `last`, string [V].

    Words are joined by single spaces.
    """
    begin, end = (tf.gather(characters.solid, each) for each in (first, last))
    texts = text_of(characters.words.codes, begin, end + 1 - begin)
    return tf.strings.regex_replace(texts, f"[{_BLANKS}]+", " ")
