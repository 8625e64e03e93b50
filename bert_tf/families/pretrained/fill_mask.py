"""What belongs where a text says [MASK]."""

import os
from typing import NamedTuple, Self

import numpy as np

from bert_tf.checkpoints import (
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    head_shapes,
    load_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, whole_number
from bert_tf.models import restore
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.packing import TokenIds, pack_rows, tokenize_texts
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_protocol import Tokenizer


class Candidate(NamedTuple):
    """A token that may stand at a mask, with its probability."""

    token: str
    probability: float


class MaskFiller:
    """Fills masks with a pre-trained model.

    Args:
      model: the model with its masked-LM head.
      tokenizer: the tokenizer it was trained with.

    Raises:
      UserError: the model is causal, or the tokenizer is another one's.
    """

    def __init__(self, model: BertPretrainer, tokenizer: Tokenizer):
        _refuse_causal(f"the model {model.name!r}", model.config)
        # Some models have rows to spare, to make a round number.
        if len(tokenizer.vocabulary) > model.config.vocab_size:
            raise UserError(
                f"the vocabulary has {len(tokenizer.vocabulary)} tokens and "
                f"the model {model.config.vocab_size} (vocab_size); they do "
                "not belong together."
            )
        self.model = model
        self.tokenizer = tokenizer

    @classmethod
    def from_checkpoint(cls, source: str | os.PathLike) -> Self:
        """Loads the model and the tokenizer of a model folder.

        Args:
          source: what `load_checkpoint` takes.

        Raises:
          UserError: the source is no model, is causal, or has no masked-LM
            head or no vocabulary.
        """
        checkpoint = load_checkpoint(source)
        if MASKED_LM not in checkpoint.heads:
            raise UserError(
                f"{source}: has no masked-LM head; filling masks takes a "
                "pre-trained model with it."
            )
        _refuse_causal(source, checkpoint.config)
        model = BertPretrainer(checkpoint.config)
        # Of no use here, so it is no matter whether they are fresh.
        unread = {POOLER, NEXT_SENTENCE} & set(head_shapes(model.config))
        restore(model, checkpoint, fresh=sorted(unread))
        return cls(model, BertTokenizer.from_checkpoint(source))

    def __call__(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        """Returns the `top_k` best tokens for each [MASK] of a text.

        Args:
          text: any text with at least one "[MASK]" in it, or what the
            vocabulary calls it.
          top_k: candidates for each mask.

        Returns:
          For each mask, in order, its candidates, best first.

        Raises:
          UserError: no mask, a text too long, or top_k out of range.
        """
        vocabulary = self.tokenizer.vocabulary
        top_k = whole_number("top_k", top_k, 1, len(vocabulary))
        inputs = self._encode(text)
        is_mask = inputs["input_ids"][0] == vocabulary.mask_id
        positions = np.flatnonzero(is_mask)[None].astype(np.int32)
        outputs = self.model(
            {**inputs, "masked_lm_positions": positions}, training=False
        )
        logits = np.asarray(outputs["masked_lm_logits"], np.float64)[0]
        logits = logits[:, : len(vocabulary)]
        logits -= logits.max(-1, keepdims=True)
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(-1, keepdims=True)
        best = np.argsort(-probabilities, -1, kind="stable")[:, :top_k]
        return [
            [Candidate(vocabulary.tokens[i], float(p[i])) for i in order]
            for order, p in zip(best, probabilities, strict=True)
        ]

    def _encode(self, text: str) -> dict[str, np.ndarray]:
        """The encoder's inputs, with the mask's own id at each [MASK]."""
        vocabulary = self.tokenizer.vocabulary
        if not isinstance(text, str):
            raise UserError(f"text is {text!r}; it takes one string.")
        mask = vocabulary.special.mask
        parts = text.split(mask)
        if len(parts) == 1:
            raise UserError(f"{text!r}: holds no {mask}.")
        pieces = tokenize_texts(parts, self.tokenizer)
        ids = np.insert(pieces.ids, pieces.begin[1:], vocabulary.mask_id)
        length = len(ids) + self.tokenizer.packing.num_special(1)
        longest = self.model.config.max_position_embeddings
        if length > longest:
            raise UserError(
                f"the text has {length} tokens with special ones; this model "
                f"takes {longest} (max_position_embeddings)."
            )
        first = np.zeros(1, np.int64)
        whole = TokenIds(ids, first, np.array([len(ids)]))
        return pack_rows(first, whole, None, 1, self.tokenizer).batch(first)


def _refuse_causal(source: object, config: BertConfig) -> None:
    if config.causal:
        raise UserError(
            f"{source}: reads from left to right (causal is true), so nothing "
            "behind a mask is seen; filling masks takes a masked LM."
        )


def fill_mask(
    model: str | os.PathLike | MaskFiller, text: str, top_k: int = 5
) -> list[list[Candidate]]:
    """Fills the masks of a text; see `MaskFiller` for many texts.

    Args:
      model: a model folder, or a `MaskFiller` made from one.
      text: any text with at least one "[MASK]" in it, or what the vocabulary
        calls it.
      top_k: candidates for each mask.

    Returns:
      For each mask, in order, its candidates, best first.
    """
    if not isinstance(model, MaskFiller):
        model = MaskFiller.from_checkpoint(model)
    return model(text, top_k)
