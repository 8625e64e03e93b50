"""A checkpoint as data: what a model folder of any family holds."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np

from bert_tf.architectures.parts import MASKED_LM
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.checkpoints.tokenizers import tokenizer_kind
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, check_choice
from bert_tf.files import whole_text, write_text
from bert_tf.lazy_arrays import shapes_of_arrays
from bert_tf.recipe import read_json
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.tokenizer_protocol import TokenizerData, no_vocabulary
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPiece

LABELS_FILE = "labels.json"
# What the outputs of a sequence classifier are, by transformers' names.
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)


def read_labels(
    folder: pathlib.Path,
) -> tuple[tuple[str, ...] | None, str | None]:
    """The names in order, and the problem_type; None where not stated."""
    path = folder / LABELS_FILE
    if not path.exists():
        return None, None
    labels, problem_type = read_json(path), None
    if isinstance(labels, dict):
        problem_type = labels.get("problem_type")
        labels = labels.get("labels")
        check_choice(f"{path}: problem_type", problem_type, PROBLEM_TYPES)
        if labels is None:
            return None, problem_type
    if not isinstance(labels, list) or not all(
        isinstance(label, str) for label in labels
    ):
        raise UserError(f"{path}: holds no list of strings.")
    check_labels(labels, str(path))
    return tuple(labels), problem_type


def check_labels(labels: Sequence[str], source: str) -> None:
    """Refuses names with half a surrogate pair, and duplicates."""
    for number, label in enumerate(labels):
        whole_text(label, f"{source}: label {number}")
        if label in labels[:number]:
            raise UserError(f"{source}: the label {label!r} occurs twice.")


def write_labels(
    folder: pathlib.Path,
    labels: Sequence[str] | None,
    problem_type: str | None = None,
) -> None:
    """Writes the names, with the problem_type unless outputs are classes.

    Where there is neither, a file that is there is removed.
    """
    values: Any = None if labels is None else list(labels)
    if problem_type not in (None, SINGLE_LABEL):
        values = {"problem_type": problem_type, "labels": values}
    if values is None:
        (folder / LABELS_FILE).unlink(missing_ok=True)
        return
    text = json.dumps(values, ensure_ascii=False, indent=2)
    write_text(folder / LABELS_FILE, text + "\n")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A configuration, the arrays that belong to it and how text gets in.

    Attributes:
      config: the architecture.
      arrays: float32 arrays by their names in Google's TF1 checkpoints, with
        the shapes of those; see `layout.py`. Those of a folder are read when
        asked for, again each time.
      vocabulary: the tokens, or None where the folder holds no vocabulary.
      lower_case: whether text is lower-cased; None where not known, or where
        the folder's tokenizer has rules that `BertTokenizer` cannot follow.
      labels: names of the labels of a fine-tuned head, in order; None where
        not known.
      left_out: names in the source's files that are no part of the model
        (optimizer slots, step counters, copies of tied weights).
      source: what was loaded, for what is printed.
      strip_accents: whether accents are stripped; None does as lower_case.
      tokenize_chinese_chars: whether every ideograph is a word of its own.
      added_tokens: tokens of the vocabulary that are looked for in text before
        words are.
      lora_dropout: dropout on what low-rank updates read, with which they were
        trained; as peft's files state it.
      other_rules: why `BertTokenizer` cannot split text for this model; empty
        where it can.
      problem_type: what the outputs of a sequence classifier are, as
        config.json or task.json states it: SINGLE_LABEL, MULTI_LABEL or
        REGRESSION; None where not known, or where there is no such head.
      max_seq_length: the longest row that task.json or the folder's tokenizer
        is configured for, at most `config.longest_input`; None where not
        known.
    """

    config: BertConfig
    arrays: Mapping[str, np.ndarray]
    vocabulary: TokenTable | None = None
    lower_case: bool | None = None
    labels: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    source: str = "the checkpoint"
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    added_tokens: tuple[AddedToken, ...] = ()
    other_rules: str = ""
    lora_dropout: float = 0.0
    problem_type: str | None = None
    max_seq_length: int | None = None

    def __repr__(self) -> str:
        shapes = shapes_of_arrays(self.arrays).values()
        heads = ", ".join(self.heads) or "no heads"
        return f"Checkpoint({self.config.in_words(shapes)}; {heads})"

    @property
    def tokenizer_config(self) -> TokenizerConfig | None:
        """How text is split into words; None where `lower_case` is."""
        if self.lower_case is None:
            return None
        return TokenizerConfig.of(
            self.lower_case,
            self.strip_accents,
            self.tokenize_chinese_chars,
            self.added_tokens,
        )

    @property
    def tokenizer(self) -> TokenizerData | None:
        """How text becomes ids; None where the folder holds no vocabulary."""
        if not isinstance(self.vocabulary, Vocabulary):
            # Tokens of other kinds come with their rules.
            return cast(TokenizerData | None, self.vocabulary)
        config = self.tokenizer_config
        return WordPiece(
            self.vocabulary, config, "" if config else self.other_rules
        )

    def with_tokenizer(self, tokenizer: TokenizerData | None) -> Self:
        """The checkpoint with another tokenizer, or with none."""
        if not isinstance(tokenizer, WordPiece):
            vocabulary = cast(TokenTable | None, tokenizer)
            return dataclasses.replace(self, vocabulary=vocabulary)
        config = tokenizer.config
        rules = vars(config) if config else {"lower_case": None}
        return dataclasses.replace(
            self,
            vocabulary=tokenizer.vocabulary,
            other_rules=tokenizer.other_rules,
            **rules,
        )

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads, the pooler among them, that have arrays."""
        return tuple(
            head
            for head, shapes in head_shapes(self.config).items()
            if any(name in self.arrays for name in shapes)
        )

    def require_tokenizer(self, place: str) -> TokenizerData:
        """The tokenizer.

        Args:
          place: what errors call the model.

        Raises:
          UserError: the folder holds no vocabulary.
        """
        if self.tokenizer is None:
            raise no_vocabulary(place, tokenizer_kind(self.config))
        return self.tokenizer

    @property
    def fills_masks(self) -> bool:
        """Whether its masked-LM head reads both sides of a mask."""
        return MASKED_LM in self.heads and not self.config.causal


def num_labels(checkpoint: Checkpoint, head: str) -> int:
    """How many labels a head of a checkpoint scores."""
    weights = next(iter(head_shapes(checkpoint.config)[head]))
    return shapes_of_arrays(checkpoint.arrays)[weights][0]
