"""Tasks on a sentence or a pair, whatever an answer is.

A task says where its rows come from (`data`), and its kind what an answer is,
how the model is trained for it and how it is scored.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import CLASSIFIER, Checkpoint
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.examples import Example, Label
from bert_tf.finetuning.data.predictions import (
    read_predictions,
    write_predictions,
)
from bert_tf.finetuning.data.tables import Cell
from bert_tf.finetuning.kinds.labels import class_weights_of
from bert_tf.finetuning.kinds.text_answers import TextAnswers
from bert_tf.finetuning.kinds.text_data import (
    Predictions,
    SentenceFacts,
    TextData,
)
from bert_tf.finetuning.legacy_task import Outputs, Split, Task
from bert_tf.finetuning.recipe import SentenceRecipe
from bert_tf.finetuning.rows import LabelledRows
from bert_tf.finetuning.task import Examination

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.text.rows import EncodedRows
    from bert_tf.text.tokenizer import BertTokenizer

Score = Callable[[np.ndarray, np.ndarray], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTask(TextAnswers, Task):
    """A task on a sentence or a pair.

    Attributes:
      data: where its rows come from.
      labels: its labels in the order of the model's outputs; empty where
        they are found in the training rows, or there are none.
      scores: its official scores by name.
      submission_files: the name of each test split's prediction file.
      text_columns: columns of an own file, as the recipe has them.
      separator: what stands between several labels of a cell.
    """

    data: TextData
    labels: tuple[str, ...] = ()
    scores: Mapping[str, Score]
    submission_files: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )
    text_columns: str = ""
    separator: str = ","

    # What `--set label_kind` calls this kind of task.
    label_kind: ClassVar[str]
    recipe_type: ClassVar[type[SentenceRecipe]] = SentenceRecipe
    facts_type: ClassVar[type[SentenceFacts]] = SentenceFacts
    head: ClassVar[str] = CLASSIFIER

    def present_splits(
        self, splits: Sequence[str], recipe: SentenceRecipe
    ) -> tuple[str, ...]:
        """See `Task.present_splits`."""
        return self.data.present(splits, recipe)

    def read(self, split: str, recipe: SentenceRecipe) -> list[Example]:
        """See `Task.read`."""
        parse = self.parse_label
        if split in self.test_splits:
            parse = self._parse_label_if_any
        return self.data.read(split, recipe, parse)

    def _parse_label_if_any(self, cell: Cell, place: str) -> Label:
        """As `parse_label`; an empty cell is no label where none is needed."""
        return self.parse_label(cell, place) if cell else None

    def examine(
        self,
        recipe: SentenceRecipe,
        tokenizer: "BertTokenizer",
        splits: Mapping[str, Sequence[Example]],
    ) -> Examination:
        """See `examine_texts`."""
        from bert_tf.finetuning.checks import examine_texts

        return examine_texts(
            self.name,
            self.label_kind,
            self.labels,
            recipe.max_seq_length,
            tokenizer,
            splits,
        )

    def facts_of(
        self, recipe: SentenceRecipe, examples: Sequence[Example]
    ) -> SentenceFacts:
        """See `Task.facts_of`."""
        labels = self.labels_of(examples)
        return SentenceFacts(
            task=self.name,
            label_kind=self.label_kind,
            labels=labels,
            num_outputs=self.num_outputs(labels),
            num_texts=_num_texts(examples),
            text_columns=self.text_columns,
            label_separator=self.separator,
            max_seq_length=recipe.max_seq_length,
            long_inputs=recipe.long_inputs,
            doc_stride=recipe.doc_stride,
            threshold=0.5,
        )

    def check(self, examples: Sequence[Example], facts: SentenceFacts) -> None:
        """Refuses pairs for a model of single texts, and unknown labels."""
        count = _num_texts(examples)
        if count != facts.num_texts:
            raise UserError(
                f"{examples[0].path}: rows of {count} text(s), but the model "
                f"was fine-tuned on {facts.num_texts} "
                f"(text_columns={facts.text_columns}); name as many in "
                "text_columns."
            )
        known = [e for e in examples if e.label is not None]
        self.targets(known, facts.labels)

    def check_model(
        self,
        initial: Checkpoint,
        recipe: SentenceRecipe,
        facts: SentenceFacts,
    ) -> None:
        """Refuses models of one segment for pairs."""
        if facts.num_texts == 2:
            self.refuse_one_segment(initial, recipe)

    def check_facts(
        self, facts: SentenceFacts, folder: str | pathlib.Path
    ) -> None:
        """Refuses models of another kind of answer."""
        theirs = (facts.label_kind, facts.task)
        if theirs != (self.label_kind, self.name):
            raise UserError(
                f"{folder}: was fine-tuned for {' of '.join(theirs)}, not "
                f"{self.label_kind} of {self.name}; give that task as `task`."
            )

    def encode(
        self,
        examples: Sequence[Example],
        tokenizer: "BertTokenizer",
        facts: SentenceFacts,
    ) -> "EncodedRows":
        """See `encode`."""
        from bert_tf.finetuning.encoding import encode

        return encode(
            examples,
            tokenizer,
            facts.max_seq_length,
            facts.long_inputs,
            facts.doc_stride,
        )

    def labelled(
        self, split: Split, tokenizer: "BertTokenizer", facts: SentenceFacts
    ) -> LabelledRows:
        """See `Task.labelled`."""
        rows = split.rows
        targets = self.targets(split.examples, facts.labels)
        name = self.weighted_objective(None).label_name
        labels = {name: targets[rows.example]}
        return LabelledRows(rows, rows.weights, labels)

    def make_network(self, encoder: Any, facts: SentenceFacts) -> Any:
        """See `bert_classifier`."""
        from bert_tf.models import bert_classifier

        return bert_classifier(encoder, facts.num_outputs, unpadded=True)

    def make_objective(
        self,
        recipe: SentenceRecipe,
        examples: Sequence[Example],
        facts: SentenceFacts,
    ) -> Any:
        """See `Task.make_objective`."""
        targets = self.targets(examples, facts.labels)
        weights = class_weights_of(recipe.class_weights, targets, facts.labels)
        return self.weighted_objective(weights)

    def collect(
        self,
        rows: "EncodedRows",
        batches: Iterable[tuple[np.ndarray, Outputs]],
    ) -> Outputs:
        """The logits of each example, those of its windows averaged."""
        logits = None
        for chosen, outputs in batches:
            found = outputs["logits"][: len(chosen)].astype(np.float64)
            if logits is None:
                logits = np.zeros((rows.num_examples, found.shape[1]))
            weights = rows.weights[chosen, None]
            np.add.at(logits, rows.example[chosen], found * weights)
        assert logits is not None
        return {"logits": logits.astype(np.float32)}

    def answer(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: "BertTokenizer",
        facts: SentenceFacts,
    ) -> Predictions:
        """See `decode`."""
        return self.decode(outputs["logits"], facts.labels, facts.threshold)

    def evaluate(
        self,
        examples: Sequence[Example],
        answers: Predictions,
        facts: SentenceFacts,
    ) -> dict[str, float]:
        """See `score`."""
        return self.score(
            self.references(examples), answers.values, facts.labels
        )

    def loss(
        self,
        examples: Sequence[Example],
        answers: Predictions,
        facts: SentenceFacts,
    ) -> float:
        """The mean loss of an example, all classes weighing the same."""
        from bert_tf.finetuning.kinds.objectives import mean_loss

        return mean_loss(
            self.weighted_objective(None),
            answers.logits,
            self.targets(examples, facts.labels),
        )

    def baseline(
        self, train: Sequence[Example], examples: Sequence[Example]
    ) -> dict[str, float]:
        """See `majority_score`."""
        return self.majority_score(
            self.references(train), self.references(examples)
        )

    def references(self, examples: Sequence[Example]) -> list[Label]:
        """The labels."""
        return [example.label for example in examples]

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: Sequence[Example],
        answers: Predictions,
        facts: SentenceFacts,
    ) -> pathlib.Path:
        """Writes index and prediction, as gluebenchmark.com takes them.

        The file for GLUE, where the split has one, is written besides.
        """
        names = [f"predictions_{split}.tsv"]
        if split in self.submission_files:
            names.append(self.submission_files[split])
        cells = {
            example.identifier: self.format_value(value)
            for example, value in zip(examples, answers.values, strict=True)
        }
        for name in names:
            write_predictions(folder / name, cells)
        return folder / names[-1]

    def write_answers(
        self,
        path: pathlib.Path,
        examples: Sequence[Example],
        answers: Predictions,
        facts: SentenceFacts,
    ) -> None:
        """Writes every row with its label and the answer, a JSON line each."""
        lines = []
        for index, example in enumerate(examples):
            line = {
                "identifier": example.identifier,
                "row": example.row,
                "text_a": example.text_a,
                "text_b": example.text_b,
                "label": example.label,
                "prediction": answers.values[index],
            }
            if answers.probabilities is not None:
                line["probabilities"] = answers.probabilities[index].tolist()
            lines.append(json.dumps(line))
        write_text(path, "\n".join(lines) + "\n")

    def score_file(
        self,
        recipe: SentenceRecipe,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, float]:
        """Scores a file with the columns index and prediction."""
        self.refuse_null_odds(null_odds)
        examples = self.data.read_file(references, recipe, self.parse_label)
        found = [
            self.parse_label(cell, place)
            for _, cell, place in read_predictions(
                predictions, examples, references
            )
        ]
        wanted = self.references(examples)
        return self.score(wanted, found, self.all_labels([*wanted, *found]))


def _num_texts(examples: Sequence[Example]) -> int:
    return 1 if examples[0].text_b is None else 2
