"""Selects and replaces masked tokens, in NumPy.

The algorithm is create_masked_lm_predictions of google-research/bert
(create_pretraining_data.py) and section 3.1 of Devlin et al. 2019. Tokens form
groups: single tokens, or whole words. Groups are selected in random order; one
that would exceed the number of predictions is skipped.

With `masked_ngram_length` it is that of google-research/albert (Lan et al.
2020, section 4.1): each group in random order begins an n-gram of up to that
many groups, with a probability proportional to 1/n, or of those that are left
in the sequence. If it exceeds the number of predictions, it becomes shorter; if
one group is too long, or if any is selected already, it is skipped.

Of the selected tokens
80 % are replaced by [MASK], 10 % are kept and 10 % are replaced by random
tokens of the vocabulary, or other shares, as in table 8 of the paper
(`mask_token_rate`, `random_token_rate`). `dynamic_masking` implements the same
algorithm in TensorFlow.
"""

import dataclasses
import math
from typing import Self

import numpy as np

from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.token_table import TokenTable

# Sort keys of groups have this many bits; the keys of other positions are
# larger.
KEY_BITS = 30
NO_GROUP = 1 << KEY_BITS


def predictions_by_length(recipe: RecordsRecipe) -> np.ndarray:
    """Returns the number of predictions by sequence length, int32 [S + 1]."""
    # Rounds halves to even, as the original does.
    counts = [
        max(1, round(length * recipe.masked_lm_prob))
        for length in range(recipe.max_seq_length + 1)
    ]
    most = recipe.max_predictions_per_seq
    return np.minimum(counts, most).astype(np.int32)


def most_predictions(recipe: RecordsRecipe, sequences: int) -> int:
    """Returns a bound on the predictions of a row of several sequences."""
    # Rounding adds up to 0.5 to the share of a sequence; a share below 0.5 is
    # raised to 1.
    added = max(0.5, 1 - recipe.shortest_sequence * recipe.masked_lm_prob)
    share = recipe.max_seq_length * recipe.masked_lm_prob
    return min(
        math.ceil(share + sequences * added),
        sequences * recipe.max_predictions_per_seq,
        recipe.max_seq_length,
    )


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """How tokens are masked.

    Attributes:
      max_predictions_per_seq: P.
      vocab_size: V; random tokens are drawn from 0 to V - 1.
      mask_id: the id of [MASK].
      mask_token_rate: share of the selected tokens replaced by [MASK].
      random_token_rate: share of them replaced by random tokens.
      num_to_predict: number of predictions by sequence length, special tokens
        included, int32 [S + 1].
      is_special: tokens that are never masked ([CLS] and [SEP]), bool [V].
      joins_previous: tokens that continue the word before them, bool [V]; all
        false unless whole words are masked.
      masked_ngram_length: N, the maximum number of groups of an n-gram.
    """

    max_predictions_per_seq: int
    vocab_size: int
    mask_id: int
    mask_token_rate: float
    random_token_rate: float
    num_to_predict: np.ndarray
    is_special: np.ndarray
    joins_previous: np.ndarray
    masked_ngram_length: int

    @property
    def has_groups(self) -> bool:
        """Whether several tokens may be selected together."""
        return self.masked_ngram_length > 1 or bool(self.joins_previous.any())

    @property
    def ngram_bounds(self) -> np.ndarray:
        """Noise from the n-th bound on selects more than n groups, [N - 1]."""
        shares = np.cumsum(1 / np.arange(1, self.masked_ngram_length + 1))
        return (shares[:-1] / shares[-1]).astype(np.float32)

    @property
    def noise_bits(self) -> int:
        """Bits of a sort key that are noise; the others are the position."""
        return KEY_BITS - len(self.num_to_predict).bit_length()

    @classmethod
    def from_recipe(cls, recipe: RecordsRecipe, vocabulary: TokenTable) -> Self:
        """Returns the rule of a recipe for a vocabulary.

        Raises:
          UserError: the vocabulary has no [MASK].
        """
        vocabulary.require_mask()
        is_special = np.zeros(len(vocabulary), dtype=bool)
        packing = vocabulary.packing
        is_special[[*packing.begin, *packing.middle, *packing.end]] = True
        joins_previous = np.zeros(len(vocabulary), dtype=bool)
        if recipe.whole_word_mask:
            joins_previous[:] = ~vocabulary.starts_word
        return cls(
            max_predictions_per_seq=recipe.max_predictions_per_seq,
            vocab_size=len(vocabulary),
            mask_id=vocabulary.mask_id,
            mask_token_rate=recipe.mask_token_rate,
            random_token_rate=recipe.random_token_rate,
            num_to_predict=predictions_by_length(recipe),
            is_special=is_special,
            joins_previous=joins_previous,
            masked_ngram_length=recipe.masked_ngram_length,
        )


def noise_keys(order_noise: np.ndarray, rule: MaskingRule) -> np.ndarray:
    """Combines noise and position to distinct integers, which sort fast.

    Returns:
      int32 [B, S], below 2**KEY_BITS, ordered by noise, then by position.
    """
    noise = (order_noise * np.float32(1 << rule.noise_bits)).astype(np.int32)
    position = np.arange(order_noise.shape[1], dtype=np.int32)
    return (noise << KEY_BITS - rule.noise_bits) + position


def choose_tokens(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    order_noise: np.ndarray,
    ngram_noise: np.ndarray,
    rule: MaskingRule,
) -> np.ndarray:
    """Selects the tokens to predict.

    Args:
      input_ids: int32 [B, S], any ids after the end of a sequence.
      lengths: sequence lengths with special tokens, int [B].
      order_noise: float32 [B, S] in [0, 1), the order in which groups are
        selected: that of a token is at its position, that of the n-th word of a
        sequence at position n.
      ngram_noise: float32 [B, S] in [0, 1), the length of the n-gram that the
        word of the same place begins; unused if N is 1.
      rule: the masking rule.

    Returns:
      The positions of the selected tokens in increasing order, padded by S,
      int64 [B, P].
    """
    width = input_ids.shape[1]
    candidate = np.arange(width) < lengths[:, None]
    for special in np.flatnonzero(rule.is_special):
        candidate &= input_ids != special
    num_to_select = rule.num_to_predict[lengths].astype(np.int64)
    keys = noise_keys(order_noise, rule)
    if rule.has_groups:
        starts = ~rule.joins_previous[input_ids]
        sizes = 1 + np.searchsorted(rule.ngram_bounds, ngram_noise, "right")
        chosen = _choose_groups(starts, candidate, num_to_select, keys, sizes)
    else:
        chosen = _choose_single_tokens(candidate, num_to_select, keys, rule)
    chosen = chosen[:, : rule.max_predictions_per_seq]
    missing = rule.max_predictions_per_seq - chosen.shape[1]
    return np.pad(chosen, [(0, 0), (0, missing)], constant_values=width)


def _choose_single_tokens(
    candidate: np.ndarray,
    num_to_select: np.ndarray,
    keys: np.ndarray,
    rule: MaskingRule,
) -> np.ndarray:
    """`choose_tokens` if every candidate is a group."""
    width = candidate.shape[1]
    predictions = min(rule.max_predictions_per_seq, width)
    counts = np.sum(candidate, axis=1)
    keys = np.where(candidate, keys, np.iinfo(keys.dtype).max)
    if predictions < width:
        keys = np.partition(keys, predictions - 1, axis=1)[:, :predictions]
    positions = np.sort(keys, axis=1) % (1 << KEY_BITS - rule.noise_bits)
    selected = (
        np.arange(predictions) < np.minimum(num_to_select, counts)[:, None]
    )
    return np.sort(np.where(selected, positions, width), axis=1).astype(
        np.int64
    )


def _choose_groups(
    starts: np.ndarray,
    candidate: np.ndarray,
    num_to_select: np.ndarray,
    keys: np.ndarray,
    ngrams: np.ndarray,
) -> np.ndarray:
    """`choose_tokens` if groups are words, or n-grams of groups.

    Args:
      starts: tokens that begin a word, bool [B, S].
      candidate: tokens that may be selected, bool [B, S].
      num_to_select: the number of tokens to select, int64 [B].
      keys: the order of the words, int32 [B, S].
      ngrams: the length of the n-gram that each word begins, [B, S].
    """
    rows, width = candidate.shape
    longest, row = ngrams.max(), np.arange(rows)
    # The first candidate always starts a word.
    first = candidate & (np.cumsum(candidate, axis=1) == 1)
    starts = candidate & (first | starts)
    group = np.maximum(np.cumsum(starts, axis=1) - 1, 0)
    flat_group = (row[:, None] * width + group)[candidate]
    sizes = np.bincount(flat_group, minlength=rows * width)
    sizes = sizes.reshape(rows, width)
    order = np.argsort(np.where(sizes > 0, keys, keys + NO_GROUP), axis=1)
    # Groups behind the last one have no tokens.
    sizes = np.pad(sizes, [(0, 0), (0, longest)])

    remaining = num_to_select
    selected = np.zeros((rows, width + longest), dtype=bool)
    for number in range(starts.sum(axis=1).max(initial=0)):
        if not remaining.any():
            break
        head = order[:, number]
        inside = head[:, None] + np.arange(longest)
        tokens = np.cumsum(sizes[row[:, None], inside], axis=1)
        fits = tokens <= remaining[:, None]
        fits &= np.arange(longest) < ngrams[row, head, None]
        fits &= ~(selected[row[:, None], inside] & fits).any(1, keepdims=True)
        selected[row[:, None], inside] |= fits
        remaining = remaining - np.max(tokens * fits, axis=1)
    chosen = candidate & np.take_along_axis(selected, group, axis=1)
    positions = np.where(chosen, np.arange(width), width)
    return np.sort(positions, axis=1)


def replace_tokens(
    input_ids: np.ndarray,
    positions: np.ndarray,
    action_noise: np.ndarray,
    random_ids: np.ndarray,
    rule: MaskingRule,
) -> dict[str, np.ndarray]:
    """Replaces the selected tokens and gathers the labels.

    Args:
      input_ids: int32 [B, S].
      positions: the result of `choose_tokens`, int64 [B, P].
      action_noise: float32 [B, P] in [0, 1): mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights; see
      `bert_tf.features`.
    """
    used = positions < input_ids.shape[1]
    # Padding predicts position 0 with weight 0.
    positions = np.where(used, positions, 0)
    labels = np.take_along_axis(input_ids, positions, axis=1)
    replaced = np.where(
        action_noise < np.float32(rule.mask_token_rate),
        rule.mask_id,
        np.where(
            action_noise < np.float32(1 - rule.random_token_rate),
            labels,
            random_ids,
        ),
    )
    masked = input_ids.copy()
    masked[np.nonzero(used)[0], positions[used]] = replaced[used]
    return {
        "input_ids": masked,
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": np.where(used, labels, 0).astype(np.int32),
        "masked_lm_weights": used.astype(np.float32),
    }


def mask_rows(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    rule: MaskingRule,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Masks sequences at random; see `choose_tokens` for the arguments."""
    shape = (len(input_ids), rule.max_predictions_per_seq)
    order_noise = rng.random(input_ids.shape, dtype=np.float32)
    ngram_noise = order_noise
    if rule.masked_ngram_length > 1:
        ngram_noise = rng.random(input_ids.shape, dtype=np.float32)
    chosen = choose_tokens(input_ids, lengths, order_noise, ngram_noise, rule)
    action_noise = rng.random(shape, dtype=np.float32)
    random_ids = rng.integers(rule.vocab_size, size=shape, dtype=np.int32)
    return replace_tokens(input_ids, chosen, action_noise, random_ids, rule)
