"""Which tokens are masked, and by what: the rule, and its NumPy form.

The rule is create_masked_lm_predictions of google-research/bert
(create_pretraining_data.py) and section 3.1 of Devlin et al. 2019. Tokens form
groups: single tokens, or whole words. Groups are visited in random order; one
that would exceed the number of predictions is passed over. A chosen token
becomes [MASK] with 80 %, stays with 10 % and becomes any entry of the
vocabulary with 10 %. `dynamic_masking` is the same rule in TensorFlow.
"""

import dataclasses
from typing import Self

import numpy as np

from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.vocabulary import Vocabulary

MASK_SHARE = 0.8
KEEP_SHARE = 0.1


def predictions_by_length(recipe: RecordsRecipe) -> np.ndarray:
    """How many tokens of a sequence are predicted, by its length.

    Returns:
      int32 [S + 1].
    """
    # Python's round is the original's: half goes to the even number.
    wanted = [
        max(1, round(length * recipe.masked_lm_prob))
        for length in range(recipe.max_seq_length + 1)
    ]
    most = recipe.max_predictions_per_seq
    return np.minimum(wanted, most).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """What the choice of masks depends on, besides chance.

    Attributes:
      max_predictions_per_seq: P.
      vocab_size: V, random tokens are drawn from 0 to V - 1.
      mask_id: the id of [MASK].
      num_to_predict: number of predictions by sequence length, specials
        included; int32 [S + 1].
      is_special: tokens that are never masked ([CLS] and [SEP]); bool [V].
      joins_previous: tokens that belong to the word before them; bool [V], all
        false unless whole words are masked.
    """

    max_predictions_per_seq: int
    vocab_size: int
    mask_id: int
    num_to_predict: np.ndarray
    is_special: np.ndarray
    joins_previous: np.ndarray

    @classmethod
    def from_recipe(cls, recipe: RecordsRecipe, vocabulary: Vocabulary) -> Self:
        """The rule of a recipe over a vocabulary."""
        is_special = np.zeros(len(vocabulary), dtype=bool)
        is_special[[vocabulary.cls_id, vocabulary.sep_id]] = True
        joins_previous = np.zeros(len(vocabulary), dtype=bool)
        if recipe.whole_word_mask:
            joins_previous[:] = vocabulary.is_continuation
        return cls(
            max_predictions_per_seq=recipe.max_predictions_per_seq,
            vocab_size=len(vocabulary),
            mask_id=vocabulary.mask_id,
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


def choose_tokens(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    order_noise: np.ndarray,
    rule: MaskingRule,
) -> np.ndarray:
    """Chooses the tokens to predict.

    Args:
      input_ids: int32 [B, S], zero after the sequence's end.
      lengths: sequence lengths with specials, int [B].
      order_noise: float32 [B, S] in [0, 1); groups are visited in its order.
      rule: the masking rule.

    Returns:
      True where a token is to be predicted, bool [B, S].
    """
    rows, width = input_ids.shape
    candidate = (np.arange(width) < lengths[:, None]) & ~rule.is_special[
        input_ids
    ]
    # A first token has no word before it, whatever it looks like.
    first = candidate & (np.cumsum(candidate, axis=1) == 1)
    starts = candidate & (first | ~rule.joins_previous[input_ids])
    group = np.maximum(np.cumsum(starts, axis=1) - 1, 0)
    flat_group = (np.arange(rows)[:, None] * width + group)[candidate]
    sizes = np.bincount(flat_group, minlength=rows * width)
    sizes = sizes.reshape(rows, width)
    order = np.argsort(
        np.where(sizes > 0, order_noise, np.float32(2)), axis=1, kind="stable"
    )
    sizes = np.take_along_axis(sizes, order, axis=1)

    remaining = rule.num_to_predict[lengths].astype(np.int64)
    taken = np.zeros_like(candidate)
    while True:
        # Groups too large for what remains are passed over for good, since
        # what remains only shrinks; of the others the longest run of groups
        # that fits is taken at once.
        open_groups = (sizes > 0) & (sizes <= remaining[:, None]) & ~taken
        if not open_groups.any():
            break
        total = np.cumsum(np.where(open_groups, sizes, 0), axis=1)
        fits = open_groups & (total <= remaining[:, None])
        taken |= fits
        remaining -= np.sum(np.where(fits, sizes, 0), axis=1)
    taken_group = np.zeros_like(taken)
    np.put_along_axis(taken_group, order, taken, axis=1)
    return candidate & np.take_along_axis(taken_group, group, axis=1)


def replace_tokens(
    input_ids: np.ndarray,
    chosen: np.ndarray,
    action_noise: np.ndarray,
    random_ids: np.ndarray,
    rule: MaskingRule,
) -> MaskedRows:
    """Replaces the chosen tokens and gathers what is to be predicted.

    Args:
      input_ids: int32 [B, S].
      chosen: tokens to predict, bool [B, S].
      action_noise: float32 [B, P] in [0, 1); decides mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
      rule: the masking rule.
    """
    predictions = rule.max_predictions_per_seq
    positions = np.argsort(~chosen, axis=1, kind="stable")[:, :predictions]
    used = np.arange(predictions) < np.sum(chosen, axis=1, keepdims=True)
    # Unused predictions point at position 0, which is never chosen.
    positions = np.where(used, positions, 0)
    labels = np.take_along_axis(input_ids, positions, axis=1)
    replaced = np.where(
        action_noise < np.float32(MASK_SHARE),
        rule.mask_id,
        np.where(
            action_noise < np.float32(MASK_SHARE + KEEP_SHARE),
            labels,
            random_ids,
        ),
    )
    masked = input_ids.copy()
    np.put_along_axis(
        masked, positions, np.where(used, replaced, labels), axis=1
    )
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
    """Draws masks for sequences.

    Args:
      input_ids: int32 [B, S], zero after the sequence's end.
      lengths: sequence lengths with specials, int [B].
      rule: the masking rule.
      rng: source of chance.
    """
    noise = (len(input_ids), rule.max_predictions_per_seq)
    chosen = choose_tokens(
        input_ids,
        lengths,
        rng.random(input_ids.shape, dtype=np.float32),
        rule,
    )
    return replace_tokens(
        input_ids,
        chosen,
        rng.random(noise, dtype=np.float32),
        rng.integers(rule.vocab_size, size=noise, dtype=np.int32),
        rule,
    )
