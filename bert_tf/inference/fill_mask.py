"""Predicts the tokens at the [MASK]s of a text."""

import os
from typing import NamedTuple

import tensorflow as tf

from bert_tf.checkpoints import MASKED_LM, load_checkpoint
from bert_tf.errors import UserError, whole_number
from bert_tf.families.model_folder import text_tokenizer
from bert_tf.families.pretrained.answers import PretrainedModel, open_pretrained
from bert_tf.families.requests import refusal_of
from bert_tf.inference.cells import check_text


class Candidate(NamedTuple):
    """A predicted token and its probability."""

    token: str
    probability: float


def open_masked_lm(source: str | os.PathLike) -> PretrainedModel:
    """Opens a model with a masked-LM head; see `load_checkpoint` for `source`.

    Raises:
      UserError: the source is no model, is causal, or has no masked-LM head or
        no vocabulary.
    """
    checkpoint = load_checkpoint(source)
    if MASKED_LM not in checkpoint.heads:
        raise UserError(
            f"{source}: has no masked-LM head; use a pre-trained model with "
            "one."
        )
    if checkpoint.config.causal:
        raise UserError(
            f"{source}: reads from left to right (causal is true), so tokens "
            "after a mask are not visible; use a masked LM."
        )
    tokenizer = text_tokenizer(checkpoint)
    longest = checkpoint.config.longest_input
    return open_pretrained(checkpoint, tokenizer, True, max_masks=longest)


def fill_mask(
    model: str | os.PathLike | PretrainedModel, text: str, top_k: int = 5
) -> list[list[Candidate]]:
    """Predicts the masked tokens of a text.

    For many texts, `bert_tf.load` opens the model once.

    Args:
      model: a model folder, or the result of `open_masked_lm`.
      text: a text with at least one mask token of the vocabulary, for a BERT
        "[MASK]".
      top_k: number of candidates per mask.

    Returns:
      For each mask, in order, its candidates, best first.

    Raises:
      UserError: see `open_masked_lm`; or the text has no mask, or is too long,
        or top_k is out of range.
    """
    if not isinstance(model, PretrainedModel):
        model = open_masked_lm(model)
    known = len(model.tokenizer.vocabulary)
    top_k = whole_number("top_k", top_k, 1, known)
    text = check_text(text, "`text`")
    try:
        tensors = model.fill_mask(tf.constant([text]), top_k)
    except tf.errors.InvalidArgumentError as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise UserError(f"`{refusal.column}` {refusal.why}") from None
    outputs = {name: value.numpy() for name, value in tensors.items()}
    (answer,) = model.to_answers(outputs, [{"text": text}])
    return [[Candidate(**best) for best in mask] for mask in answer["masks"]]
