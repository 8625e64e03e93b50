"""What is explained of a masked LM: the log odds of a token at a [MASK]."""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, did_you_mean, excerpt
from bert_tf.families.explained import (
    LOG_ODDS,
    Place,
    Subject,
    Target,
    TokenizedTexts,
    log_odds,
)
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.text_model import Answer, InputRow
from bert_tf.features import MASKED_LM_POSITIONS
from bert_tf.text.layout import pack_rows


def subject_of(
    served: PretrainedModel, row: InputRow, answer: Answer, target: Target
) -> Subject:
    """Returns the token at the first [MASK] to explain, by default the best.

    Raises:
      UserError: the target is no token.
    """
    tokenizer = served.tokenizer
    vocabulary, packing = tokenizer.vocabulary, tokenizer.packing
    token = answer["masks"][0][0]["token"] if target is None else str(target)
    if token not in vocabulary.ids:
        hint = did_you_mean(token.lower(), vocabulary.ids.keys(), repr)
        raise UserError(
            f"`target`={excerpt(target)}: is no token of this model's "
            f"vocabulary, and a {vocabulary.special.mask} stands for one.{hint}"
        )
    text, mask = row["text"], vocabulary.require_mask()
    parts = text.split(mask)
    # Where each part begins in the text.
    sizes = [len(part) + len(mask) for part in parts]
    offsets = [0, *itertools.accumulate(sizes)]
    if vocabulary.mask_takes_blanks:
        parts = [*(part.rstrip() for part in parts[:-1]), parts[-1]]
    found = TokenizedTexts.of(
        served, {str(number): part for number, part in enumerate(parts)}
    )
    words = tuple(
        Place(
            "text",
            word.start + offsets[int(word.column)],
            word.end + offsets[int(word.column)],
        )
        for word in found.words
    )
    ids, positions, _ = served.with_mask_ids(tf.constant([text]))
    inputs = pack_rows(ids, None, packing).padded()
    inputs[MASKED_LM_POSITIONS.name] = positions[:, :1]
    # Special tokens and masks belong to no word.
    is_word = np.ones(inputs["input_ids"].shape, bool)
    is_word[:, : len(packing.begin)] = False
    is_word[:, is_word.shape[1] - len(packing.end) :] = False
    is_word[:, positions[0]] = False
    owner = np.full(is_word.shape, -1)
    owner[is_word] = found.owner
    number, known = vocabulary.ids[token], len(vocabulary)

    def measure(logits: tf.Tensor) -> tf.Tensor:
        # Some models pad the vocabulary to a round number.
        return log_odds(logits[:, 0, 0, :known], number)

    return Subject(
        {"text": text}, words, inputs, owner, token, LOG_ODDS, measure
    )
