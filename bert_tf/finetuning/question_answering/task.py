"""Tasks that answer a question by a span of a text: SQuAD 1.1 and 2.0."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import SPAN, Checkpoint
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.legacy_task import Outputs, Split, Task, TaskFacts
from bert_tf.finetuning.question_answering import squad_metrics
from bert_tf.finetuning.question_answering.squad_files import (
    PREDICTIONS_FILE,
    Answers,
    Question,
    count_oddities,
    read_null_odds,
    read_predictions,
    read_questions,
    trainable,
    write_answers,
)
from bert_tf.finetuning.recipe import SpanRecipe
from bert_tf.finetuning.rows import LabelledRows
from bert_tf.finetuning.task import Examination
from bert_tf.progress import notice

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.question_answering.windows import SpanWindows
    from bert_tf.text.tokenizer import BertTokenizer

# Of the best answers, those that the report shows.
_SHOWN_BEST = 3


@dataclasses.dataclass(frozen=True)
class SpanFacts(TaskFacts):
    """What task.json holds of a model of spans; see `SpanRecipe`.

    Attributes:
      doc_stride: tokens from the start of a window to that of the next.
      max_query_length: longest question in tokens.
      max_answer_length: longest answer in tokens.
      n_best_size: answers kept to a question.
      with_null: whether a question may have no answer.
      null_threshold: a question whose null odds are above it has none.
    """

    doc_stride: int
    max_query_length: int
    max_answer_length: int
    n_best_size: int
    with_null: bool
    # Models that differ in it alone are shown the same windows.
    null_threshold: float = dataclasses.field(compare=False)

    def summary(self) -> dict[str, Any]:
        """The threshold, where there is one."""
        return {"threshold": self.null_threshold} if self.with_null else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanTask(Task):
    """Questions whose answers are spans of their contexts.

    Attributes:
      train_name: the official name of the file to train on.
      dev_name: that of the file to evaluate on.
      with_null: whether a question may have no answer, as in SQuAD 2.0; the
        threshold for that is tuned on dev.
    """

    train_name: str
    dev_name: str
    with_null: bool

    recipe_type: ClassVar[type[SpanRecipe]] = SpanRecipe
    facts_type: ClassVar[type[SpanFacts]] = SpanFacts
    head: ClassVar[str] = SPAN

    @property
    def is_tuned(self) -> bool:
        """Whether the threshold of no answer is tuned."""
        return self.with_null

    def path_of(self, split: str, recipe: SpanRecipe) -> pathlib.Path:
        """The file of a split."""
        names = {
            "train": recipe.train_file or self.train_name,
            "dev": recipe.dev_file or self.dev_name,
        }
        names["test"] = recipe.test_file or names["dev"]
        return pathlib.Path(recipe.data_dir) / names[split]

    def present_splits(
        self, splits: Sequence[str], recipe: SpanRecipe
    ) -> tuple[str, ...]:
        """See `Task.present_splits`."""
        for split in splits:
            self._require(split, recipe)
        return tuple(splits)

    def _require(self, split: str, recipe: SpanRecipe) -> pathlib.Path:
        path = self.path_of(split, recipe)
        if not path.is_file():
            raise UserError(
                f"`data_dir`={recipe.data_dir}: no such file {path}; give the "
                f"folder of {self.train_name} and {self.dev_name}, or pass "
                f"`{split}_file`=..."
            )
        return path

    def read(self, split: str, recipe: SpanRecipe) -> list[Question]:
        """See `Task.read`; says in a line what is skipped and why."""
        path = str(self._require(split, recipe))
        questions = read_questions(
            path,
            answers_needed=split != "test",
            unique_identifiers=split != "train",
            encoding_errors=recipe.encoding_errors,
        )
        if split == "train":
            questions, oddities = trainable(questions, path, self.with_null)
            lines = oddities.lines(path, training=True)
        else:
            lines = count_oddities(questions).lines(path, training=False)
        for line in lines:
            notice(line)
        if split == "dev" and not self.with_null:
            self._refuse_unanswered(questions, path)
        return questions

    def _refuse_unanswered(
        self, questions: Sequence[Question], path: str
    ) -> None:
        for question in questions:
            if not question.answers:
                raise UserError(
                    f"{path}, question {question.identifier!r}: has no right "
                    "answer; such questions are for `task`=squad_v2."
                )

    def examine(
        self,
        recipe: SpanRecipe,
        tokenizer: "BertTokenizer",
        splits: Mapping[str, Sequence[Question]],
    ) -> Examination:
        """See `examine_questions`."""
        from bert_tf.finetuning.checks import examine_questions

        return examine_questions(self.name, recipe, tokenizer, splits)

    def facts_of(
        self, recipe: SpanRecipe, examples: Sequence[Question]
    ) -> SpanFacts:
        """See `Task.facts_of`."""
        return SpanFacts(
            task=self.name,
            labels=(),
            max_seq_length=recipe.max_seq_length,
            doc_stride=recipe.doc_stride,
            max_query_length=recipe.max_query_length,
            max_answer_length=recipe.max_answer_length,
            n_best_size=recipe.n_best_size,
            with_null=self.with_null,
            null_threshold=squad_metrics.NULL_THRESHOLD,
        )

    def check_model(
        self, initial: Checkpoint, recipe: SpanRecipe, facts: SpanFacts
    ) -> None:
        """Refuses models of one segment."""
        self.refuse_one_segment(initial, recipe)

    def keeps_head(
        self, initial: Checkpoint, trained_for: str | None, facts: SpanFacts
    ) -> bool:
        """A head of spans serves all questions."""
        return True

    def encode(
        self,
        examples: Sequence[Question],
        tokenizer: "BertTokenizer",
        facts: SpanFacts,
    ) -> "SpanWindows":
        """See `make_windows`."""
        from bert_tf.finetuning.question_answering.windows import make_windows

        return make_windows(
            examples,
            tokenizer,
            facts.max_seq_length,
            facts.doc_stride,
            facts.max_query_length,
        )

    def labelled(
        self, split: Split, tokenizer: "BertTokenizer", facts: SpanFacts
    ) -> LabelledRows:
        """See `answer_positions`; a window counts as much as any other."""
        from bert_tf.finetuning.question_answering.objective import (
            END_POSITIONS,
            START_POSITIONS,
        )
        from bert_tf.finetuning.question_answering.windows import (
            answer_positions,
        )

        found = answer_positions(split.rows, split.examples, tokenizer)
        weights = np.ones(len(found), np.float32)
        labels = {START_POSITIONS: found[:, 0], END_POSITIONS: found[:, 1]}
        return LabelledRows(split.rows, weights, labels)

    def make_network(self, encoder: Any, facts: SpanFacts) -> Any:
        """See `bert_span_labeler`."""
        from bert_tf.models import bert_span_labeler

        return bert_span_labeler(encoder, unpadded=True)

    def make_objective(
        self,
        recipe: SpanRecipe,
        examples: Sequence[Question],
        facts: SpanFacts,
    ) -> Any:
        """See `Task.make_objective`."""
        from bert_tf.finetuning.question_answering.objective import (
            SpanObjective,
        )

        return SpanObjective()

    def collect(
        self,
        rows: "SpanWindows",
        batches: Iterable[tuple[np.ndarray, Outputs]],
    ) -> Outputs:
        """The logits of all tokens of all windows, end to end: [T]."""
        starts, lengths = rows.rows.starts, rows.lengths
        names = ("start_logits", "end_logits")
        found = {name: np.zeros(starts[-1], np.float32) for name in names}
        for chosen, outputs in batches:
            length = lengths[chosen]
            place = np.arange(outputs[names[0]].shape[1])
            row, column = np.nonzero(place < length[:, None])
            tokens = starts[chosen][row] + column
            for name in names:
                found[name][tokens] = outputs[name][row, column]
        return found

    def answer(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: "BertTokenizer",
        facts: SpanFacts,
    ) -> Answers:
        """See `decode_answers`."""
        from bert_tf.finetuning.question_answering.decoding import (
            decode_answers,
        )

        return decode_answers(
            split.rows,
            split.examples,
            tokenizer,
            outputs["start_logits"],
            outputs["end_logits"],
            facts.with_null,
            facts.n_best_size,
            facts.max_answer_length,
        )

    def evaluate(
        self,
        examples: Sequence[Question],
        answers: Answers,
        facts: SpanFacts,
    ) -> dict[str, float]:
        """The official scores, from 0 to 1.

        Of SQuAD 2.0: at the threshold of the model, and (best_) at the best
        one for these questions.
        """
        names = answers.identifiers
        found = dict(
            zip(names, answers.texts(facts.null_threshold), strict=True)
        )
        if answers.null_odds is None:
            scores = squad_metrics.score_squad_v1(examples, found)
            return _shares(scores, ("f1", "exact_match"))
        scores = squad_metrics.score_squad_v2(examples, found)
        parts = [n for n in scores if n.startswith(("HasAns_", "NoAns_"))]
        parts = [n for n in parts if not n.endswith("total")]
        best = squad_metrics.score_squad_v2(
            examples,
            dict(zip(names, answers.best, strict=True)),
            dict(zip(names, answers.null_odds.tolist(), strict=True)),
        )
        return {
            **_shares(scores, ("f1", "exact")),
            **_shares(best, ("best_f1", "best_exact")),
            **_shares(scores, parts),
        }

    def tuned(
        self,
        examples: Sequence[Question],
        answers: Answers,
        facts: SpanFacts,
    ) -> SpanFacts:
        """The facts with the threshold of the highest F1."""
        names = answers.identifiers
        assert answers.null_odds is not None
        threshold = squad_metrics.tuned_threshold(
            examples,
            dict(zip(names, answers.best, strict=True)),
            dict(zip(names, answers.null_odds.tolist(), strict=True)),
        )
        return dataclasses.replace(facts, null_threshold=threshold)

    def baseline(
        self, train: Sequence[Question], examples: Sequence[Question]
    ) -> dict[str, float]:
        """What giving no answer scores; NaN where every question has one."""
        del train
        if not self.with_null:
            return {"f1": math.nan, "exact_match": math.nan}
        nothing = {question.identifier: "" for question in examples}
        scores = squad_metrics.score_squad_v2(examples, nothing)
        kept = [name for name in scores if not name.endswith("total")]
        found = _shares(scores, kept)
        return found | {
            "best_f1": found["f1"],
            "best_exact": found["exact"],
        }

    def references(self, examples: Sequence[Question]) -> list[Any]:
        """The questions' names and right answers."""
        return [
            [question.identifier, *(answer.text for answer in question.answers)]
            for question in examples
        ]

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: Sequence[Question],
        answers: Answers,
        facts: SpanFacts,
    ) -> pathlib.Path:
        """Writes the files of the official scripts; those of dev as dev_*."""
        prefix = "dev_" if split == "dev" else ""
        write_answers(answers, folder, facts.null_threshold, prefix)
        return folder / f"{prefix}{PREDICTIONS_FILE}"

    def write_answers(
        self,
        path: pathlib.Path,
        examples: Sequence[Question],
        answers: Answers,
        facts: SpanFacts,
    ) -> None:
        """See `Task.write_answers`; a line for each question."""
        write_answer_lines(path, examples, answers, facts.null_threshold)

    def score_file(
        self,
        recipe: SpanRecipe,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, Any]:
        """The scores of the official script, from 0 to 100."""
        questions = read_questions(
            references, encoding_errors=recipe.encoding_errors
        )
        found = read_predictions(predictions)
        coverage = squad_metrics.coverage(questions, found, predictions)
        for line in coverage.lines(predictions):
            notice(line)
        if not self.with_null:
            self.refuse_null_odds(null_odds)
            return squad_metrics.score_squad_v1(questions, found)
        odds = read_null_odds(null_odds) if null_odds else None
        return squad_metrics.score_squad_v2(questions, found, odds)


def _shares(
    scores: Mapping[str, float], names: Iterable[str]
) -> dict[str, float]:
    """Scores from 0 to 1 of those from 0 to 100."""
    return {name: scores[name] / 100 for name in names}


def write_answer_lines(
    path: str | os.PathLike,
    questions: Sequence[Question],
    answers: Answers,
    threshold: float,
) -> None:
    """Writes every question, its answers, and what a model answers.

    Args:
      path: where to.
      questions: N questions.
      answers: of a model, to them.
      threshold: a question whose null odds are above it has none.
    """
    texts, odds = answers.texts(threshold), answers.null_odds
    lines = []
    for number, question in enumerate(questions):
        text = texts[number]
        begin, end = answers.spans[number].tolist() if text else (-1, -1)
        exact, f1 = squad_metrics.question_scores(
            question, text, odds is not None
        )
        line = {
            "identifier": question.identifier,
            "title": question.title,
            "question": question.question,
            "context": question.context,
            "answers": [answer._asdict() for answer in question.answers],
            "prediction": text,
            "start": begin,
            "end": end,
            "null_odds": None if odds is None else float(odds[number]),
            "exact": exact,
            "f1": f1,
            "n_best": [
                [entry.text, entry.probability]
                for entry in answers.n_best[number][:_SHOWN_BEST]
            ],
        }
        lines.append(json.dumps(line))
    write_text(path, "\n".join(lines) + "\n")
