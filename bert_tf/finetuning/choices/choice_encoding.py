"""Choices as rows of token ids, one for each, and batches of them."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.choices.choice_file import ChoiceExample
from bert_tf.finetuning.recipe import SHORTEST_CHOICE
from bert_tf.text.rows import (
    EncodedRows,
    TokenIds,
    cut_to_fit,
    pack_rows,
    tokenize_texts,
)
from bert_tf.text.tokenizer import BertTokenizer

CHOICE_MASK = "choice_mask"


@dataclasses.dataclass(frozen=True)
class EncodedChoices:
    """The choices of N examples.

    Attributes:
      rows: a row [CLS] context [SEP] start and choice [SEP] for each choice,
        those of an example one after the other.
      starts: int64 [N + 1], where the rows of each example begin.
      cut_rows: how many rows were too long and are cut.
    """

    rows: EncodedRows
    starts: np.ndarray
    cut_rows: int

    @property
    def counts(self) -> np.ndarray:
        """Choices of each example, int64 [N]."""
        return np.diff(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest row of each example, int64 [N]."""
        return np.maximum.reduceat(self.rows.lengths, self.starts[:-1])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the rows are made of, for digests."""
        return *self.rows.arrays, self.starts

    def batch(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """A batch of some examples.

        Args:
          chosen: int64 [B], examples by number.

        Returns:
          The encoder's inputs, int32 [B, C, S], padded to the longest row and
          to the most choices, and choice_mask, float32 [B, C], 1 for a
          choice. Where an example has fewer, its first choice fills up, for
          the encoder has no answer to a row of padding alone.
        """
        counts = self.counts[chosen]
        number = np.arange(counts.max())
        mask = number < counts[:, None]
        rows = self.starts[chosen, None] + np.where(mask, number, 0)
        flat = self.rows.batch(rows.ravel())
        batch = {
            name: values.reshape(*mask.shape, -1)
            for name, values in flat.items()
        }
        batch[CHOICE_MASK] = mask.astype(np.float32)
        return batch

    def __len__(self) -> int:
        return len(self.starts) - 1


def encode_choices(
    examples: Sequence[ChoiceExample],
    tokenizer: BertTokenizer,
    max_seq_length: int,
) -> EncodedChoices:
    """Tokenises and packs every choice with its context.

    Devlin et al. 2019, section 4.4: the given sentence is text A and a
    possible continuation text B; what the continuations have in common, as
    SWAG's second sentence begins, is the beginning of B. Rows that are too
    long are cut as by `SentencePacker`.

    Args:
      examples: N examples, at least one.
      tokenizer: what turns texts into ids.
      max_seq_length: S, the longest row.

    Raises:
      UserError: no room for a token of each text.
    """
    if max_seq_length < SHORTEST_CHOICE:
        raise UserError(
            f"max_seq_length is {max_seq_length}; [CLS], two [SEP] and a "
            f"token of each text need {SHORTEST_CHOICE}."
        )
    counts = np.array([len(example.choices) for example in examples], np.int64)
    example = np.repeat(np.arange(len(examples)), counts)
    contexts = tokenize_texts([e.context for e in examples], tokenizer)
    endings = tokenize_texts(
        [f"{e.start} {choice}" for e in examples for choice in e.choices],
        tokenizer,
    )
    contexts = TokenIds(
        contexts.ids, contexts.begin[example], contexts.count[example]
    )
    room = max_seq_length - 3
    first, second = cut_to_fit(contexts, endings, room)
    return EncodedChoices(
        rows=pack_rows(example, first, second, len(examples), tokenizer),
        starts=np.concatenate([[0], np.cumsum(counts)]),
        cut_rows=int(np.sum(contexts.count + endings.count > room)),
    )


def best_choices(logits: np.ndarray, choice_mask: np.ndarray) -> np.ndarray:
    """The choice of the highest score.

    Args:
      logits: float32 [B, C].
      choice_mask: float32 [B, C]; see `EncodedChoices.batch`.

    Returns:
      int64 [B].
    """
    return np.where(choice_mask > 0, logits, -np.inf).argmax(axis=1)
