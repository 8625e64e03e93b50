"""Predicts the tokens at the [MASK]s of a text."""

import os
from typing import NamedTuple, Self

import tensorflow as tf

from bert_tf.checkpoints import MASKED_LM, load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, whole_number
from bert_tf.families.model_folder import text_tokenizer
from bert_tf.families.pretrained.answers import PretrainedModel, open_pretrained
from bert_tf.families.requests import refusal_of
from bert_tf.inference.cells import check_text
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.tokenizer_protocol import Tokenizer


class Candidate(NamedTuple):
    """A predicted token and its probability."""

    token: str
    probability: float


class MaskFiller:
    """Predicts masked tokens with a pre-trained model.

    Args:
      model: a model with a masked-LM head.
      tokenizer: the model's tokenizer.

    Raises:
      UserError: the model is causal, or the tokenizer does not fit it.
    """

    def __init__(self, model: BertPretrainer, tokenizer: Tokenizer):
        _refuse_causal(f"the model {model.name!r}", model.config)
        tokenizer.vocabulary.require_mask()
        self.model = model
        self.tokenizer = tokenizer
        self._served = PretrainedModel(
            model, tokenizer, max_masks=model.config.longest_input
        )

    @classmethod
    def from_checkpoint(cls, source: str | os.PathLike) -> Self:
        """Loads model and tokenizer; see `load_checkpoint` for `source`.

        Raises:
          UserError: the source is no model, is causal, or has no masked-LM
            head or no vocabulary.
        """
        checkpoint = load_checkpoint(source)
        if MASKED_LM not in checkpoint.heads:
            raise UserError(
                f"{source}: has no masked-LM head; use a pre-trained model "
                "with one."
            )
        _refuse_causal(source, checkpoint.config)
        tokenizer = text_tokenizer(checkpoint)
        opened = open_pretrained(checkpoint, tokenizer, fills_masks=True)
        return cls(opened.model, tokenizer)

    def __call__(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        """Returns the `top_k` most likely tokens for each [MASK] of a text.

        Args:
          text: a text with at least one mask token of the vocabulary, for a
            BERT "[MASK]".
          top_k: number of candidates per mask.

        Returns:
          For each mask, in order, its candidates, best first.

        Raises:
          UserError: there is no mask, the text is too long, or top_k is out of
            range.
        """
        top_k = whole_number("top_k", top_k, 1, len(self.tokenizer.vocabulary))
        text = check_text(text, "`text`")
        try:
            tensors = self._served.fill_mask(tf.constant([text]), top_k)
        except tf.errors.InvalidArgumentError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            raise UserError(f"`{refusal.column}` {refusal.why}") from None
        outputs = {name: value.numpy() for name, value in tensors.items()}
        (answer,) = self._served.to_answers(outputs, [{"text": text}])
        return [
            [Candidate(**best) for best in mask] for mask in answer["masks"]
        ]


def _refuse_causal(source: object, config: BertConfig) -> None:
    if config.causal:
        raise UserError(
            f"{source}: reads from left to right (causal is true), so tokens "
            "after a mask are not visible; use a masked LM."
        )


def fill_mask(
    model: str | os.PathLike | MaskFiller, text: str, top_k: int = 5
) -> list[list[Candidate]]:
    """Predicts the masked tokens of a text; see `MaskFiller.__call__`.

    Args:
      model: a model folder, or a `MaskFiller`, which is loaded once.
      text: a text with at least one mask.
      top_k: number of candidates per mask.

    Returns:
      For each mask, in order, its candidates, best first.
    """
    if not isinstance(model, MaskFiller):
        model = MaskFiller.from_checkpoint(model)
    return model(text, top_k)
