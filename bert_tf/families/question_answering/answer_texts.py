"""From spans of tokens to answers cut from their contexts, in TensorFlow.

The rules are those of google-research/bert, run_squad.py, `write_predictions`
and `get_final_text`: the n best answers have different texts. The characters
of the tokens are paired one by one with those of the words that they are of,
blanks aside; where these words have another number of characters than their
tokens, or a token is unknown, the answer is whole words. Tokens are searched
in their words from the left, and may so be found before their own place.
"""

import functools
from typing import NamedTuple, Self

import tensorflow as tf

from bert_tf.families.question_answering.config import BLANKS
from bert_tf.families.requests import Tensors
from bert_tf.text.layout import ragged_range, text_of
from bert_tf.text.tokenizer_protocol import Tokenizer

# Candidates whose texts are made at first, as a multiple of n; more only where
# these have fewer than n different texts.
_SEARCHED = 2


class Candidates(NamedTuple):
    """Spans of tokens, by question and the best first.

    Attributes:
      question: int32 [V].
      first: int32 [V], tokens of the flat list of all contexts.
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
        """Start and end logit together, float64 [V]."""
        return score_of(self.start_logit, self.end_logit)

    def take(self, chosen: tf.Tensor) -> Self:
        """Some of them by number, int32 [K]."""
        return type(self)(*(tf.gather(values, chosen) for values in self))


def score_of(start_logit: tf.Tensor, end_logit: tf.Tensor) -> tf.Tensor:
    """The score of answers, float64, which float32 would round."""
    return tf.cast(start_logit, tf.float64) + tf.cast(end_logit, tf.float64)


class Words(NamedTuple):
    """The characters and words of C contexts, counted through all of them.

    Attributes:
      codes: int32 [characters].
      row_begin: int32 [C], where each context begins among them.
      is_blank: bool [characters], which of them divide words.
      begins: bool [characters], with which of them words begin.
      number: int32 [characters], the word of each; of a blank, the last one.
      texts: string [C], the contexts with a space for each range of blanks.
      text_begin: int32 [characters], the byte of its text each begins with.
      text_end: int32 [characters], its exclusive end there.
    """

    codes: tf.Tensor
    row_begin: tf.Tensor
    is_blank: tf.Tensor
    begins: tf.Tensor
    number: tf.Tensor
    texts: tf.Tensor
    text_begin: tf.Tensor
    text_end: tf.Tensor


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
    size = 1 + tf.add_n(
        [tf.cast(codes >= first, tf.int32) for first in (0x80, 0x800, 0x10000)]
    )
    is_space = is_blank & (~after_blank | begins_row)
    size = tf.where(is_blank, tf.cast(is_space, tf.int32), size)
    end = _cumulated(size)
    text_begin, text_end = (
        values - tf.gather(end, tf.gather(row_begin, rows))
        for values in (end[:-1], end[1:])
    )
    blanks = "".join(f"\\x{{{ord(blank):X}}}" for blank in BLANKS)
    return Words(
        codes=codes,
        row_begin=row_begin,
        is_blank=is_blank,
        begins=begins,
        number=tf.cumsum(tf.cast(begins, tf.int32)) - 1,
        texts=tf.strings.regex_replace(contexts, f"[{blanks}]+", " "),
        text_begin=text_begin,
        text_end=text_end,
    )


class Characters(NamedTuple):
    """The characters of C contexts beside those of their T tokens.

    Contexts, words, characters and tokens are counted through all contexts.

    Attributes:
      words: of the contexts.
      places: int32 [N], which characters are no blanks.
      word_counts: int32 [words + 1], how many of those are before each word.
      word: int32 [T], the word that a token is of.
      token_codes: int32 [M], the characters of the tokens.
      token_begin: int32 [T + 1], where each token's begin.
      spaced: bool [M], whether a space stands before a character.
      unknown: int32 [T + 1], how many tokens before are unknown.
    """

    words: Words
    places: tf.Tensor
    word_counts: tf.Tensor
    word: tf.Tensor
    token_codes: tf.Tensor
    token_begin: tf.Tensor
    spaced: tf.Tensor
    unknown: tf.Tensor


class Places(NamedTuple):
    """Where V answers stand, in characters that are no blanks.

    Attributes:
      first: int32 [V], the first one.
      last: int32 [V], the last one.
      searched: int32 [V], the characters of its words before it, where it may
        be found, too; 0 for whole words.
      token: int32 [V], where the answer begins among the tokens' characters.
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
    """The best answers of B questions.

    Args:
      candidates: V spans.
      null: start and end logit of no answer, float32 [B].
      characters: of C contexts.
      context: int32 [B], the context of each question.
      n_best_size: n, how many answers are kept.
      with_null: whether no answer is one of them.

    Returns:
      n_best_answers, string [B, n], the best first; n_best_scores, float64
      [B, n], their shares; n_best_start_logits and n_best_end_logits, float32
      [B, n]; n_best_starts and n_best_ends, int32 [B, n], their places in
      the context. Unused places hold "", 0 and -1. null_odds, float64 [B], is
      how much better no answer scores than the best one;
      no_answer_probability, float64 [B], its share.
    """
    rows = tf.size(context)
    null_score = score_of(*null)
    candidates, first, last, texts = _distinct(
        candidates, characters, context, n_best_size
    )
    rank = _ranks(candidates.question, rows)
    limit = tf.fill([rows], n_best_size)
    if with_null:
        # No answer stands behind what scores the same, and takes a place if
        # one is left there.
        before = candidates.score >= tf.gather(null_score, candidates.question)
        limit -= tf.cast(
            _counts(tf.boolean_mask(candidates.question, before), rows)
            < n_best_size,
            tf.int32,
        )
    kept = tf.where(rank < tf.gather(limit, candidates.question))[:, 0]
    candidates, score = candidates.take(kept), candidates.take(kept).score
    question = candidates.question
    index = tf.stack([question, tf.gather(rank, kept)], 1)
    # The lowest number where there is none.
    best = tf.math.unsorted_segment_max(score, question, rows)
    most, exp_null = best, tf.zeros_like(best)
    if with_null:
        most = tf.maximum(best, null_score)
        exp_null = tf.exp(null_score - most)
    # The softmax over the best.
    exp_scores = tf.exp(score - tf.gather(most, question))
    total = tf.math.unsorted_segment_sum(exp_scores, question, rows) + exp_null
    row_begin = tf.gather(
        characters.words.row_begin, tf.gather(context, question)
    )

    def placed(values: tf.Tensor, unused: str | int | float) -> tf.Tensor:
        table = tf.fill([rows, n_best_size], tf.cast(unused, values.dtype))
        return tf.tensor_scatter_nd_update(table, index, values)

    begin, end = (
        tf.gather(characters.places, tf.gather(places, kept)) - row_begin
        for places in (first, last)
    )
    return {
        "n_best_answers": placed(tf.gather(texts, kept), ""),
        "n_best_scores": placed(exp_scores / tf.gather(total, question), 0),
        "n_best_start_logits": placed(candidates.start_logit, 0),
        "n_best_end_logits": placed(candidates.end_logit, 0),
        "n_best_starts": placed(begin, -1),
        "n_best_ends": placed(end + 1, -1),
        "null_start_logit": null[0],
        "null_end_logit": null[1],
        "null_odds": null_score - tf.where(best > best.dtype.min, best, 0),
        "no_answer_probability": tf.math.divide_no_nan(exp_null, total),
    }


def _distinct(
    candidates: Candidates,
    characters: Characters,
    context: tf.Tensor,
    n_best_size: int,
) -> tuple[Candidates, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The first candidates of each text, n or more, or all that there are.

    Returns:
      The candidates, the first and last characters of their answers, int32
      [K], and their texts, string [K].
    """
    rows = tf.size(context)
    rank = _ranks(candidates.question, rows)
    counts = _counts(candidates.question, rows)

    def search(limit: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        chosen = tf.cast(tf.where(rank < limit)[:, 0], tf.int32)
        tried = candidates.take(chosen)
        places = found_first(
            characters, places_of(characters, tried.first, tried.last)
        )
        texts = answer_texts(
            characters,
            tf.gather(context, tried.question),
            places.first,
            places.last,
        )
        _, text = tf.unique(texts, tf.int64)
        # Equal for equal texts of one question.
        keys = text * tf.cast(rows, tf.int64) + tf.cast(
            tried.question, tf.int64
        )
        number = tf.range(tf.size(keys))
        _, same = tf.unique(keys)
        of_key = tf.math.unsorted_segment_min(number, same, tf.size(keys))
        kept = tf.boolean_mask(number, tf.gather(of_key, same) == number)
        num_found = _counts(tf.gather(tried.question, kept), rows)
        short = (num_found < n_best_size) & (counts > limit)
        return (
            tf.where(tf.reduce_any(short), 2 * limit, 0),
            *(
                tf.gather(values, kept)
                for values in (chosen, places.first, places.last, texts)
            ),
        )

    none, some = tf.zeros([0], tf.int32), tf.TensorShape([None])
    _, chosen, first, last, texts = tf.while_loop(
        lambda limit, *_: limit > 0,
        search,
        [_SEARCHED * n_best_size, none, none, none, tf.zeros([0], tf.string)],
        shape_invariants=[tf.TensorShape([]), *([some] * 4)],
    )
    return candidates.take(chosen), first, last, texts


def _counts(question: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """How many candidates each of the `rows` questions has, int32."""
    return tf.math.unsorted_segment_sum(tf.ones_like(question), question, rows)


def _ranks(question: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The ranks of candidates among those of their question."""
    return ragged_range(_counts(question, rows))[1]


class ContextCharacters(tf.Module):
    """Pairs the characters of contexts with those of their tokens.

    Args:
      tokenizer: what makes the tokens.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        vocabulary = tokenizer.vocabulary
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
        """Pairs contexts, valid UTF-8, string [C], with their tokens.

        These are int32 [C, tokens], with their first characters and their
        exclusive ends.
        """
        words = find_words(contexts)
        token_begins = first_characters(words, begins)
        full = _cumulated(tf.cast(~words.is_blank, tf.int32))
        token_codes, token_begin, spaced = self._token_characters(
            words.codes, ids.flat_values, token_begins, ends - begins
        )
        return Characters(
            words=words,
            places=tf.cast(tf.where(~words.is_blank)[:, 0], tf.int32),
            word_counts=tf.concat(
                [tf.boolean_mask(full[:-1], words.begins), full[-1:]], 0
            ),
            word=tf.gather(words.number, token_begins),
            token_codes=token_codes,
            token_begin=token_begin,
            spaced=spaced,
            unknown=_cumulated(
                tf.cast(ids.flat_values == self._unknown, tf.int32)
            ),
        )

    def _token_characters(
        self,
        codes: tf.Tensor,
        ids: tf.Tensor,
        begins: tf.Tensor,
        lengths: tf.RaggedTensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The last but one attributes of `Characters`.

        What is unknown has the characters that it has when normalised.
        """
        unknown = tf.where(ids == self._unknown)
        texts = text_of(
            codes,
            tf.gather_nd(begins, unknown),
            tf.gather_nd(lengths.flat_values, unknown),
        )
        pieces = tf.tensor_scatter_nd_update(
            tf.gather(self._texts, ids),
            unknown,
            self._normalize(texts),
        )
        decoded = tf.strings.unicode_decode(pieces, "UTF-8")
        counts = tf.cast(decoded.row_lengths(), tf.int32)
        token, number = ragged_range(counts)
        spaced = (number == 0) & tf.gather(
            self._starts_word, tf.gather(ids, token)
        )
        return decoded.flat_values, _cumulated(counts), spaced


def first_characters(words: Words, begins: tf.RaggedTensor) -> tf.Tensor:
    """The first characters of tokens, int32 [T], of those in their contexts.

    Args:
      words: of the contexts.
      begins: int32 [C, tokens], in each context.
    """
    return begins.flat_values + tf.gather(
        words.row_begin, begins.value_rowids()
    )


def _cumulated(counts: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(counts)], 0)


def places_of(
    characters: Characters, first: tf.Tensor, last: tf.Tensor
) -> Places:
    """Where the answers from token `first` to `last`, int32 [V], stand."""
    word, token_begin = characters.word, characters.token_begin
    begin, end = tf.gather(word, first), tf.gather(word, last) + 1
    token = tf.searchsorted(word, begin)
    token_end = tf.searchsorted(word, end)
    before = tf.gather(token_begin, token)
    inside = tf.gather(token_begin, token_end) - before
    counts = characters.word_counts
    whole_begin, whole_end = tf.gather(counts, begin), tf.gather(counts, end)
    unknown = characters.unknown
    paired = (whole_end - whole_begin == inside) & (
        tf.gather(unknown, last + 1) == tf.gather(unknown, first)
    )
    own = tf.gather(token_begin, first)
    own_end = tf.gather(token_begin, last + 1)
    shift = whole_begin - before
    return Places(
        tf.where(paired, own + shift, whole_begin),
        tf.where(paired, own_end + shift, whole_end) - 1,
        tf.where(paired, own - before, 0),
        own,
    )


def found_first(characters: Characters, places: Places) -> Places:
    """Moves answers to where they are found first in their words."""
    codes, spaced = characters.token_codes, characters.spaced
    size = places.last - places.first + 1
    answer, number = ragged_range(places.searched)
    place = tf.gather(places.token - places.searched, answer) + number

    def own(values: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, answer)

    likely = tf.where(
        tf.gather(codes, place) == tf.gather(codes, own(places.token))
    )[:, 0]
    answer, place = tf.gather(answer, likely), tf.gather(place, likely)
    trial, number = ragged_range(own(size))
    there = tf.gather(place, trial) + number
    here = tf.gather(own(places.token), trial) + number
    same = (tf.gather(codes, there) == tf.gather(codes, here)) & (
        (number == 0) | (tf.gather(spaced, there) == tf.gather(spaced, here))
    )
    is_found = tf.math.unsorted_segment_min(
        tf.cast(same, tf.int32), trial, tf.size(place)
    )
    shift = tf.math.unsorted_segment_min(
        tf.where(is_found > 0, place - own(places.token), 0),
        answer,
        tf.size(size),
    )
    # Answers that were searched for nowhere have no entry.
    shift = tf.where(places.searched > 0, tf.minimum(shift, 0), 0)
    return places._replace(first=places.first + shift, last=places.last + shift)


def answer_texts(
    characters: Characters,
    context: tf.Tensor,
    first: tf.Tensor,
    last: tf.Tensor,
) -> tf.Tensor:
    """The answers, string [V], words joined by single spaces."""
    words = characters.words
    begin = tf.gather(words.text_begin, tf.gather(characters.places, first))
    end = tf.gather(words.text_end, tf.gather(characters.places, last))
    return tf.strings.substr(
        tf.gather(words.texts, context), begin, end - begin
    )
