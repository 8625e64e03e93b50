"""Which tokens are masked, and by what: the rule, and its NumPy form.

The rule is create_masked_lm_predictions of google-research/bert
(create_pretraining_data.py) and section 3.1 of Devlin et al. 2019. Tokens form
groups: single tokens, or whole words. Groups are tried in random order; one
that would exceed the number of predictions is skipped. A chosen token
becomes [MASK] with 80 %, stays with 10 % and becomes any entry of the
vocabulary with 10 %, or by other shares, as in table 8 of the paper
(`mask_token_rate`, `random_token_rate`). `dynamic_masking` is the same rule in
TensorFlow.
"""

import dataclasses
import math
from typing import Self

import numpy as np

from bert_tf.records.recipe import SHORTEST_SEQUENCE, RecordsRecipe
from bert_tf.text.token_table import TokenTable

# Keys that order the groups are below this many bits; what is no group
# comes after all of them.
KEY_BITS = 30
NO_GROUP = 1 << KEY_BITS


def predictions_by_length(recipe: RecordsRecipe) -> np.ndarray:
    """How many tokens of a sequence are predicted, by length, int32 [S + 1]."""
    # Python's round is the original's: half goes to the even number.
    counts = [
        max(1, round(length * recipe.masked_lm_prob))
        for length in range(recipe.max_seq_length + 1)
    ]
    most = recipe.max_predictions_per_seq
    return np.minimum(counts, most).astype(np.int32)


def most_predictions(recipe: RecordsRecipe, sequences: int) -> int:
    """A bound on the predictions of a row that holds so many sequences."""
    # Rounding adds up to a half to the share of a sequence, and to a share
    # below a half what is missing to one.
    added = max(0.5, 1 - SHORTEST_SEQUENCE * recipe.masked_lm_prob)
    share = recipe.max_seq_length * recipe.masked_lm_prob
    return min(
        math.ceil(share + sequences * added),
        sequences * recipe.max_predictions_per_seq,
        recipe.max_seq_length,
    )


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """What the choice of masks depends on, besides chance.

    Attributes:
      max_predictions_per_seq: P.
      vocab_size: V, random tokens are drawn from 0 to V - 1.
      mask_id: the id of [MASK].
      mask_token_rate: share of the chosen tokens that become [MASK].
      random_token_rate: share of them that become any token; others stay.
      num_to_predict: number of predictions by sequence length, specials
        included; int32 [S + 1].
      is_special: tokens that are never masked ([CLS] and [SEP]); bool [V].
      joins_previous: tokens that belong to the word before them; bool [V], all
        false unless whole words are masked.
    """

    max_predictions_per_seq: int
    vocab_size: int
    mask_id: int
    mask_token_rate: float
    random_token_rate: float
    num_to_predict: np.ndarray
    is_special: np.ndarray
    joins_previous: np.ndarray

    @property
    def noise_bits(self) -> int:
        """Bits of the noise that count; the others of a key are the place."""
        return KEY_BITS - len(self.num_to_predict).bit_length()

    @classmethod
    def from_recipe(cls, recipe: RecordsRecipe, vocabulary: TokenTable) -> Self:
        """The rule of a recipe over a vocabulary.

        Raises:
          UserError: the vocabulary has no mask.
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
        )


@dataclasses.dataclass(frozen=True)
class MaskedRows:
    """Masked sequences; the names, axes and dtypes of `bert_tf.features`."""

    input_ids: np.ndarray
    masked_lm_positions: np.ndarray
    masked_lm_ids: np.ndarray
    masked_lm_weights: np.ndarray


def noise_keys(order_noise: np.ndarray, rule: MaskingRule) -> np.ndarray:
    """Noise and place in one number: all differ, and sort fast.

    Returns:
      int32 [B, S], below 2**KEY_BITS, in the order of the noise; of equal
      noise the place on the left comes first.
    """
    noise = (order_noise * np.float32(1 << rule.noise_bits)).astype(np.int32)
    place = np.arange(order_noise.shape[1], dtype=np.int32)
    return (noise << KEY_BITS - rule.noise_bits) + place


def choose_tokens(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    order_noise: np.ndarray,
    rule: MaskingRule,
) -> np.ndarray:
    """Chooses the tokens to predict.

    Args:
      input_ids: int32 [B, S], any ids after the sequence's end.
      lengths: sequence lengths with specials, int [B].
      order_noise: float32 [B, S] in [0, 1); groups are tried in its order: a
        token has the noise of its place, a whole word that of its number,
        counted from the left.
      rule: the masking rule.

    Returns:
      The positions of the tokens to be predicted in increasing order, then S;
      int64 [B, P].
    """
    width = input_ids.shape[1]
    candidate = np.arange(width) < lengths[:, None]
    for special in np.flatnonzero(rule.is_special):
        candidate &= input_ids != special
    num_to_take = rule.num_to_predict[lengths].astype(np.int64)
    keys = noise_keys(order_noise, rule)
    if rule.joins_previous.any():
        starts = ~rule.joins_previous[input_ids]
        chosen = _choose_words(starts, candidate, num_to_take, keys, rule)
    else:
        chosen = _choose_single_tokens(candidate, num_to_take, keys, rule)
    missing = rule.max_predictions_per_seq - chosen.shape[1]
    return np.pad(chosen, [(0, 0), (0, missing)], constant_values=width)


def _choose_single_tokens(
    candidate: np.ndarray,
    num_to_take: np.ndarray,
    keys: np.ndarray,
    rule: MaskingRule,
) -> np.ndarray:
    """`choose_tokens` where every candidate is a group."""
    width = candidate.shape[1]
    predictions = min(rule.max_predictions_per_seq, width)
    counts = np.sum(candidate, axis=1)
    keys = np.where(candidate, keys, np.iinfo(keys.dtype).max)
    if predictions < width:
        keys = np.partition(keys, predictions - 1, axis=1)[:, :predictions]
    places = np.sort(keys, axis=1) % (1 << KEY_BITS - rule.noise_bits)
    taken = np.arange(predictions) < np.minimum(num_to_take, counts)[:, None]
    return np.sort(np.where(taken, places, width), axis=1).astype(np.int64)


def _choose_words(
    starts: np.ndarray,
    candidate: np.ndarray,
    num_to_take: np.ndarray,
    keys: np.ndarray,
    rule: MaskingRule,
) -> np.ndarray:
    """`choose_tokens` where tokens that start no word join the one before."""
    rows, width = candidate.shape
    # A first token has no word before it, whatever it looks like.
    first = candidate & (np.cumsum(candidate, axis=1) == 1)
    starts = candidate & (first | starts)
    group = np.maximum(np.cumsum(starts, axis=1) - 1, 0)
    flat_group = (np.arange(rows)[:, None] * width + group)[candidate]
    sizes = np.bincount(flat_group, minlength=rows * width)
    sizes = sizes.reshape(rows, width)
    order = np.argsort(np.where(sizes > 0, keys, keys + NO_GROUP), axis=1)
    sizes = np.take_along_axis(sizes, order, axis=1)

    remaining = num_to_take
    taken = np.zeros_like(candidate)
    while True:
        # Groups too large for what remains are skipped for good, since
        # what remains only shrinks; of the others the longest run of groups
        # that fits is taken at once.
        open_groups = (sizes > 0) & (sizes <= remaining[:, None]) & ~taken
        if not open_groups.any():
            break
        total = np.cumsum(np.where(open_groups, sizes, 0), axis=1)
        fits = open_groups & (total <= remaining[:, None])
        taken |= fits
        remaining = remaining - np.sum(np.where(fits, sizes, 0), axis=1)
    taken_group = np.zeros_like(taken)
    np.put_along_axis(taken_group, order, taken, axis=1)
    chosen = candidate & np.take_along_axis(taken_group, group, axis=1)
    places = np.where(chosen, np.arange(width), width)
    return np.sort(places, axis=1)[:, : rule.max_predictions_per_seq]


def replace_tokens(
    input_ids: np.ndarray,
    positions: np.ndarray,
    action_noise: np.ndarray,
    random_ids: np.ndarray,
    rule: MaskingRule,
) -> MaskedRows:
    """Replaces the chosen tokens and gathers what is to be predicted.

    Args:
      input_ids: int32 [B, S].
      positions: what `choose_tokens` gives, int64 [B, P].
      action_noise: float32 [B, P] in [0, 1); decides mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
      rule: the masking rule.
    """
    used = positions < input_ids.shape[1]
    # Unused predictions point at position 0.
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
    return MaskedRows(
        input_ids=masked,
        masked_lm_positions=positions.astype(np.int32),
        masked_lm_ids=np.where(used, labels, 0).astype(np.int32),
        masked_lm_weights=used.astype(np.float32),
    )


def mask_rows(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    rule: MaskingRule,
    rng: np.random.Generator,
) -> MaskedRows:
    """Draws masks for sequences; see `choose_tokens`."""
    shape = (len(input_ids), rule.max_predictions_per_seq)
    order_noise = rng.random(input_ids.shape, dtype=np.float32)
    chosen = choose_tokens(input_ids, lengths, order_noise, rule)
    action_noise = rng.random(shape, dtype=np.float32)
    random_ids = rng.integers(rule.vocab_size, size=shape, dtype=np.int32)
    return replace_tokens(input_ids, chosen, action_noise, random_ids, rule)
