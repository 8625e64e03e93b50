"""From spans of tokens to the best answers, in the graph.

The rules are those of `finetuning.question_answering.decoding`: the n best
answers have different texts, and having no answer is one of them where it
may be.
"""

import tensorflow as tf

from bert_tf.serving.rows import Tensors, counted
from bert_tf.serving.span_candidates import Candidates
from bert_tf.serving.span_texts import (
    Characters,
    Places,
    answer_texts,
    found_first,
    places_of,
)

# For how many times n candidates their words are searched; more of one text
# than the rest of these would leave fewer than n.
_SEARCHED = 4


def best_answers(
    candidates: Candidates,
    characters: Characters,
    n_best_size: int,
    null_threshold: float | None,
) -> Tensors:
    """The outputs of the signature; see `SpanModel`.

    Args:
      candidates: V spans of B questions.
      characters: of the contexts.
      n_best_size: how many answers are kept.
      null_threshold: see `SpanModel`.
    """
    rows = tf.size(candidates.null)
    candidates, places = _found(candidates, characters, n_best_size)
    texts = answer_texts(characters, places)
    kept = _unlike(candidates.question, texts)
    rank = _ranks(candidates, kept)
    limit = _limit(candidates, kept, n_best_size, null_threshold is not None)
    stays = rank < tf.gather(limit, tf.gather(candidates.question, kept))
    kept, rank = tf.boolean_mask(kept, stays), tf.boolean_mask(rank, stays)
    places = Places(*(tf.gather(values, kept) for values in places))
    question = tf.gather(candidates.question, kept)
    index = tf.stack([question, rank], 1)
    texts = tf.tensor_scatter_nd_update(
        tf.fill([rows, n_best_size], ""),
        index,
        tf.gather(texts, kept),
    )
    score = tf.gather(candidates.score, kept)
    shares, null_share = _shares(
        score, question, candidates.null, null_threshold is not None
    )
    shares = tf.scatter_nd(index, shares, [rows, n_best_size])
    first = tf.where(rank == 0)
    answered = tf.scatter_nd(
        tf.gather(question, first), tf.ones_like(first[:, 0]), [rows]
    )
    answered = tf.cast(answered, tf.bool)
    best = tf.scatter_nd(
        tf.gather(question, first), tf.gather_nd(score, first), [rows]
    )
    if null_threshold is not None:
        answered &= candidates.null - best <= null_threshold
    # Unused places stay at -1.
    begin, end = (
        tf.tensor_scatter_nd_update(
            tf.fill([rows, n_best_size], -1), index, values
        )
        for values in _character_spans(characters, places, question)
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


def _found(
    candidates: Candidates, characters: Characters, n_best_size: int
) -> tuple[Candidates, Places]:
    """The likeliest candidates, and where they are found first."""
    places = places_of(characters, candidates.first, candidates.last)
    # Alike are for sure only those that are found at their own place.
    moves = tf.where(
        places.searched > 0, tf.strings.as_string(places.token), ""
    )
    texts = answer_texts(characters, places)
    kept = _unlike(candidates.question, texts, moves)
    rank = _ranks(candidates, kept)
    kept = tf.boolean_mask(kept, rank < _SEARCHED * n_best_size)
    return (
        Candidates(
            tf.gather(candidates.question, kept),
            tf.gather(candidates.first, kept),
            tf.gather(candidates.last, kept),
            tf.gather(candidates.score, kept),
            candidates.null,
        ),
        found_first(
            characters, Places(*(tf.gather(value, kept) for value in places))
        ),
    )


def _unlike(question: tf.Tensor, *texts: tf.Tensor) -> tf.Tensor:
    """Which candidates are the first of their question with their texts."""
    keys = tf.strings.join([tf.strings.as_string(question), *texts], ":")
    number = tf.range(tf.size(keys))
    _, same = tf.unique(keys)
    first = tf.math.unsorted_segment_min(number, same, tf.size(keys))
    return tf.boolean_mask(number, tf.gather(first, same) == number)


def _ranks(candidates: Candidates, kept: tf.Tensor) -> tf.Tensor:
    """The ranks of some candidates, int32 [K], in their questions."""
    question = tf.gather(candidates.question, kept)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(question), question, tf.size(candidates.null)
    )
    return counted(counts)[1]


def _limit(
    candidates: Candidates, kept: tf.Tensor, n_best_size: int, with_null: bool
) -> tf.Tensor:
    """How many answers each question may have, int32 [B]."""
    rows = tf.size(candidates.null)
    if not with_null:
        return tf.fill([rows], n_best_size)
    # No answer stands behind what scores the same, and takes a place if one
    # is left there.
    question = tf.gather(candidates.question, kept)
    before = tf.gather(candidates.score, kept) >= tf.gather(
        candidates.null, question
    )
    before = tf.math.unsorted_segment_sum(
        tf.cast(before, tf.int32), question, rows
    )
    return tf.where(before < n_best_size, n_best_size - 1, n_best_size)


def _shares(
    score: tf.Tensor, question: tf.Tensor, null: tf.Tensor, with_null: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """The softmax over the best, float64 [K], and the share of none [B]."""
    rows = tf.size(null)
    most = tf.math.unsorted_segment_max(score, question, rows)
    if with_null:
        most = tf.maximum(most, null)
    odds = tf.exp(score - tf.gather(most, question))
    total = tf.math.unsorted_segment_sum(odds, question, rows)
    null_odds = tf.zeros_like(null)
    if with_null:
        null_odds = tf.exp(null - most)
    total += null_odds
    return (
        odds / tf.gather(total, question),
        tf.math.divide_no_nan(null_odds, total),
    )


def _character_spans(
    characters: Characters, places: Places, question: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Begin and exclusive end of answers in their contexts, int32 [K]."""
    before = tf.gather(characters.row_begin, question)
    return (
        tf.gather(characters.places, places.first) - before,
        tf.gather(characters.places, places.last) - before + 1,
    )
