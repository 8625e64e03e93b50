"""The contents of a model folder as data, and the file of its labels."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np

from bert_tf.architectures.parts import MASKED_LM
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.checkpoints.tokenizers import make_tokenizer, tokenizer_kind
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, check_choice
from bert_tf.files import whole_text, write_text
from bert_tf.lazy_arrays import shapes_of_arrays
from bert_tf.recipe import check_kind, read_json
from bert_tf.sources import local_folder, transformer_folder
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.tokenizer_protocol import (
    Tokenizer,
    TokenizerData,
    no_vocabulary,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPiece

LABELS_FILE = "labels.json"
# Kinds of outputs of a sequence classifier, by transformers' names.
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)


def read_labels(folder: pathlib.Path) -> dict[str, Any]:
    """Reads labels and problem_type, fields of `Checkpoint`."""
    path = folder / LABELS_FILE
    if not path.exists():
        return {"labels": None, "problem_type": None}
    labels, problem_type = read_json(path), None
    if isinstance(labels, dict):
        problem_type = labels.get("problem_type")
        labels = labels.get("labels")
        check_choice(f"{path}: problem_type", problem_type, PROBLEM_TYPES)
        if labels is None:
            return {"labels": None, "problem_type": problem_type}
    labels = check_kind("labels", tuple[str, ...], labels, str(path))
    check_labels(labels, str(path))
    return {"labels": labels, "problem_type": problem_type}


def check_labels(labels: Sequence[str], source: str) -> None:
    """Raises `UserError` on lone surrogates and on duplicates."""
    for number, label in enumerate(labels):
        whole_text(label, f"{source}: label {number}")
        if label in labels[:number]:
            raise UserError(f"{source}: the label {label!r} occurs twice.")


def write_labels(
    folder: pathlib.Path,
    labels: Sequence[str] | None,
    problem_type: str | None = None,
) -> None:
    """Writes labels, with the problem_type unless single-label.

    Without either, an existing file is removed.
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
    """A configuration with its arrays, tokenizer and labels.

    Attributes:
      config: the architecture.
      arrays: float32 arrays by their names and with their shapes in Google's
        TF1 checkpoints, see `layout.py`. Those of a folder are read at each
        access.
      vocabulary: the tokens; None if the folder holds no vocabulary.
      lower_case: whether text is lower-cased; None if unknown, or if the
        folder's tokenizer has rules that `BertTokenizer` does not implement.
      labels: names of the labels of a fine-tuned head, in order; None if
        unknown.
      left_out: names in the source's files that are no part of the model
        (optimizer slots, step counters, copies of tied weights).
      source: the folder or hub name that was loaded, for messages.
      strip_accents: whether accents are stripped; None follows lower_case.
      tokenize_chinese_chars: whether every CJK ideograph is a word.
      added_tokens: tokens of the vocabulary that are matched in text before it
        is split into words.
      lora_dropout: dropout on the inputs of low-rank updates in training, as
        peft's files state it.
      other_rules: why `BertTokenizer` cannot split text for this model; empty
        if it can.
      problem_type: the kind of outputs of a sequence classifier in config.json
        or task.json: SINGLE_LABEL, MULTI_LABEL or REGRESSION; None if unknown
        or without a classifier.
      max_seq_length: the longest row in task.json or the tokenizer's files, at
        most `config.longest_input`; None if unknown.
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
        """The rules that split text into words; None if `lower_case` is."""
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
        """The tokenizer as data; None if the folder holds no vocabulary."""
        if not isinstance(self.vocabulary, Vocabulary):
            # Other vocabularies include the rules.
            return cast(TokenizerData | None, self.vocabulary)
        config = self.tokenizer_config
        return WordPiece(
            self.vocabulary, config, "" if config else self.other_rules
        )

    def with_tokenizer(self, tokenizer: TokenizerData | None) -> Self:
        """Returns the checkpoint with another tokenizer, or none."""
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
        """Names of the heads with arrays, including the pooler."""
        return tuple(
            head
            for head, shapes in head_shapes(self.config).items()
            if any(name in self.arrays for name in shapes)
        )

    def require_tokenizer(self, place: str) -> TokenizerData:
        """Returns the tokenizer.

        Raises:
          UserError: the folder holds no vocabulary; it names `place`.
        """
        if self.tokenizer is None:
            raise no_vocabulary(place, tokenizer_kind(self.config))
        return self.tokenizer

    def make_tokenizer(self, split_special_tokens: bool = True) -> Tokenizer:
        """Makes the tokenizer, whose files were read with the checkpoint.

        Raises:
          UserError: as `load_tokenizer`.
        """
        folder = transformer_folder(local_folder(self.source))
        data = self.require_tokenizer(str(folder))
        return make_tokenizer(data, folder, split_special_tokens)

    @property
    def fills_masks(self) -> bool:
        """Whether it has a masked-LM head and bidirectional attention."""
        return MASKED_LM in self.heads and not self.config.causal


def num_labels(checkpoint: Checkpoint, head: str) -> int:
    """Returns the number of labels of a head."""
    *_, bias = head_shapes(checkpoint.config)[head]
    return shapes_of_arrays(checkpoint.arrays)[bias][0]
