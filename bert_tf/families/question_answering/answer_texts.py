"""From spans of tokens to answers cut from their contexts, in the graph.

The rules are those of `finetuning.question_answering.decoding`: the n best
answers have different texts, and having no answer is one of them where it may
be. The characters of the tokens are paired one by one with those of the words
that they are of, blanks aside; where these words have another number of
characters than their tokens, or a token is unknown, the answer is whole words.
Tokens are looked for in their words from the left, and may so be found before
their own place.
"""

from typing import NamedTuple, TypeVar

import tensorflow as tf

from bert_tf.families.question_answering.windows import BLANKS
from bert_tf.families.row_computer import Tensors
from bert_tf.text.layout import ragged_range, text_of
from bert_tf.text.normalizer import BertNormalizer
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.vocabulary import CONTINUATION

# For how many times n candidates their words are searched; more of one text
# than the rest of these would leave fewer than n.
_SEARCHED = 4


class Candidates(NamedTuple):
    """Spans of tokens, by question and the best first.

    Attributes:
      question: int32 [V].
      first: int32 [V], tokens of the flat list of all contexts.
      last: int32 [V], likewise.
      score: float64 [V], start logit and end logit together.
    """

    question: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    score: tf.Tensor


class Characters(NamedTuple):
    """The characters of B contexts beside those of their T tokens.

    Contexts, words, characters and tokens are counted through all contexts.

    Attributes:
      codes: int32 [C], the characters.
      row_begin: int32 [B], where each context begins among them.
      places: int32 [N], which characters are no blanks.
      word_counts: int32 [words + 1], how many of those are before each word.
      word: int32 [T], the word that a token is of.
      token_codes: int32 [M], the characters of the tokens.
      token_begin: int32 [T + 1], where each token's begin.
      spaced: bool [M], whether a space stands before a character.
      unknown: int32 [T + 1], how many tokens before are unknown.
    """

    codes: tf.Tensor
    row_begin: tf.Tensor
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


_Columns = TypeVar("_Columns", Candidates, Places)


def best_answers(
    candidates: Candidates,
    null: tf.Tensor,
    characters: Characters,
    n_best_size: int,
    null_threshold: float | None,
) -> Tensors:
    """The outputs of the signature; see `SpanModel`.

    Args:
      candidates: V spans of B questions.
      null: float64 [B], the scores of no answer.
      characters: of the contexts.
      n_best_size: how many answers are kept.
      null_threshold: see `SpanModel`.
    """
    rows = tf.size(null)
    candidates, places = _found(candidates, characters, n_best_size, rows)
    texts = answer_texts(characters, places)
    kept = _distinct(candidates.question, texts)
    question = tf.gather(candidates.question, kept)
    rank = _ranks(question, rows)
    limit = tf.fill([rows], n_best_size)
    if null_threshold is not None:
        # No answer stands behind what scores the same, and takes a place if
        # one is left there.
        before = tf.gather(candidates.score, kept) >= tf.gather(null, question)
        before = tf.math.unsorted_segment_sum(
            tf.cast(before, tf.int32), question, rows
        )
        limit -= tf.cast(before < n_best_size, tf.int32)
    stays = rank < tf.gather(limit, question)
    kept, rank = tf.boolean_mask(kept, stays), tf.boolean_mask(rank, stays)
    question, _, _, score = _taken(candidates, kept)
    places = _taken(places, kept)
    index = tf.stack([question, rank], 1)
    texts = tf.tensor_scatter_nd_update(
        tf.fill([rows, n_best_size], ""), index, tf.gather(texts, kept)
    )
    # The lowest number where there is none.
    best = tf.math.unsorted_segment_max(score, question, rows)
    answered, most = best > best.dtype.min, best
    exp_null = tf.zeros_like(null)
    if null_threshold is not None:
        answered &= null - best <= null_threshold
        most = tf.maximum(best, null)
        exp_null = tf.exp(null - most)
    # The softmax over the best.
    exp_scores = tf.exp(score - tf.gather(most, question))
    total = tf.math.unsorted_segment_sum(exp_scores, question, rows) + exp_null
    null_share = tf.math.divide_no_nan(exp_null, total)
    shares = exp_scores / tf.gather(total, question)
    shares = tf.scatter_nd(index, shares, [rows, n_best_size])
    before = tf.gather(characters.row_begin, question)
    # Unused places stay at -1.
    begin, end = (
        tf.tensor_scatter_nd_update(
            tf.fill([rows, n_best_size], -1), index, values - before
        )
        for values in (
            tf.gather(characters.places, places.first),
            tf.gather(characters.places, places.last) + 1,
        )
    )
    return {
        "answer": tf.where(answered, texts[:, 0], ""),
        "score": tf.cast(
            tf.where(answered, shares[:, 0], null_share), tf.float32
        ),
        "start": tf.where(answered, begin[:, 0], -1),
        "end": tf.where(answered, end[:, 0], -1),
        "no_answer_probability": tf.cast(null_share, tf.float32),
        "n_best_answers": texts,
        "n_best_scores": tf.cast(shares, tf.float32),
        "n_best_starts": begin,
        "n_best_ends": end,
    }


def _taken(values: _Columns, chosen: tf.Tensor) -> _Columns:
    """Some of what several tensors hold in parallel."""
    return type(values)(*(tf.gather(value, chosen) for value in values))


def _found(
    candidates: Candidates,
    characters: Characters,
    n_best_size: int,
    rows: tf.Tensor,
) -> tuple[Candidates, Places]:
    """The likeliest candidates, and where they are found first."""
    places = places_of(characters, candidates.first, candidates.last)
    # Only those that are found at their own place are surely the same.
    moves = tf.where(
        places.searched > 0, tf.strings.as_string(places.token), ""
    )
    texts = answer_texts(characters, places)
    kept = _distinct(candidates.question, texts, moves)
    rank = _ranks(tf.gather(candidates.question, kept), rows)
    kept = tf.boolean_mask(kept, rank < _SEARCHED * n_best_size)
    places = found_first(characters, _taken(places, kept))
    return _taken(candidates, kept), places


def _distinct(question: tf.Tensor, *texts: tf.Tensor) -> tf.Tensor:
    """Which candidates are the first of their question with their texts."""
    keys = tf.strings.join([tf.strings.as_string(question), *texts], ":")
    number = tf.range(tf.size(keys))
    _, same = tf.unique(keys)
    first = tf.math.unsorted_segment_min(number, same, tf.size(keys))
    return tf.boolean_mask(number, tf.gather(first, same) == number)


def _ranks(question: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The ranks of candidates of the `rows` questions in their own."""
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(question), question, rows
    )
    return ragged_range(counts)[1]


class ContextCharacters(tf.Module):
    """Pairs the characters of contexts with those of their tokens.

    Args:
      tokenizer: what makes the tokens.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        vocabulary = tokenizer.vocabulary
        self._unknown = vocabulary.unk_id
        with tf.init_scope(), tf.device("/CPU:0"):
            self._normalizer = BertNormalizer(tokenizer.config)
            self._pieces = tf.constant(
                [token.replace(CONTINUATION, "") for token in vocabulary.tokens]
            )
            self._is_continuation = tf.constant(vocabulary.is_continuation)

    def __call__(
        self,
        contexts: tf.Tensor,
        ids: tf.RaggedTensor,
        begins: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> Characters:
        """Pairs contexts, valid UTF-8, string [B], with their tokens.

        These are int32 [B, tokens], with their first characters and their
        exclusive ends.
        """
        decoded = tf.strings.unicode_decode(contexts, "UTF-8")
        codes = decoded.flat_values
        row_begin = tf.cast(decoded.row_starts(), tf.int32)
        shift = tf.gather(row_begin, ids.value_rowids())
        is_blank = tf.reduce_any(
            codes[:, tf.newaxis] == [ord(blank) for blank in BLANKS], 1
        )
        after_blank = tf.concat([[True], is_blank], 0)[: tf.size(codes)]
        rows = tf.cast(decoded.value_rowids(), tf.int32)
        begins_row = tf.range(tf.size(codes)) == tf.gather(row_begin, rows)
        begins_word = ~is_blank & (after_blank | begins_row)
        words = tf.cumsum(tf.cast(begins_word, tf.int32)) - 1
        full = _cumulated(tf.cast(~is_blank, tf.int32))
        token_codes, token_begin, spaced = self._token_characters(
            codes, ids.flat_values, shift + begins.flat_values, ends - begins
        )
        return Characters(
            codes=codes,
            row_begin=row_begin,
            places=tf.cast(tf.where(~is_blank)[:, 0], tf.int32),
            word_counts=tf.concat(
                [tf.boolean_mask(full[:-1], begins_word), full[-1:]], 0
            ),
            word=tf.gather(words, shift + begins.flat_values),
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
            tf.gather(self._pieces, ids),
            unknown,
            self._normalizer.normalize(texts),
        )
        decoded = tf.strings.unicode_decode(pieces, "UTF-8")
        counts = tf.cast(decoded.row_lengths(), tf.int32)
        token, number = ragged_range(counts)
        spaced = (number == 0) & ~tf.gather(
            self._is_continuation, tf.gather(ids, token)
        )
        return decoded.flat_values, _cumulated(counts), spaced


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


def answer_texts(characters: Characters, places: Places) -> tf.Tensor:
    """The answers, string [V], words joined by single spaces."""
    begin = tf.gather(characters.places, places.first)
    end = tf.gather(characters.places, places.last) + 1
    text = text_of(characters.codes, begin, end - begin)
    blanks = "".join(f"\\x{{{ord(blank):X}}}" for blank in BLANKS)
    return tf.strings.regex_replace(text, f"[{blanks}]+", " ")
