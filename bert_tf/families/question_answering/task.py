"""Tasks that answer questions by spans of texts: SQuAD 1.1 and 2.0."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.errors import UserError
from bert_tf.families.data.user_files import UserFiles
from bert_tf.families.question_answering import squad_metrics
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.question_answering.prediction_files import (
    PREDICTIONS_FILE,
    Answers,
    FileAnswers,
    read_null_odds,
    read_predictions,
    write_answers,
)
from bert_tf.families.question_answering.recipe import SpanRecipe
from bert_tf.families.question_answering.squad_files import (
    Question,
    located_answers,
    oddity_lines,
    read_questions,
    split_off_questions,
    trainable,
)
from bert_tf.families.rows import LabelledRows, Outputs
from bert_tf.families.task import (
    Answered,
    RunSplit,
    Scores,
    Split,
    Task,
    TaskConfig,
)
from bert_tf.families.token_estimates import SPECIAL_TOKENS, estimated_tokens
from bert_tf.progress import log
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.truncation import num_windows

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file does not need it.
    from bert_tf.families.question_answering.windows import SpanWindows

QuestionsAnswered = Answered[list[Question], QuestionAnsweringConfig]
# The n best answers in the report.
_SHOWN_BEST = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnsweringTask(Task[list[Question], QuestionAnsweringConfig]):
    """Questions whose answers are spans of their contexts.

    Attributes:
      train_name: official name of the training file.
      dev_name: official name of the dev file.
      with_null: whether a question may have no answer, as in SQuAD 2.0; its
        threshold is then tuned on dev.
    """

    train_name: str
    dev_name: str
    with_null: bool

    recipe_type: ClassVar[type[SpanRecipe]] = SpanRecipe
    config_type: ClassVar[type[TaskConfig]] = QuestionAnsweringConfig
    data_folder: ClassVar[str] = "squad"
    scale: ClassVar[float] = 100.0

    @property
    def takes_null_odds(self) -> bool:
        """Whether there may be no answer."""
        return self.with_null

    def tuner(self, recipe: Any, examples: list[Question]) -> Any:
        """Tunes the threshold of no answer if there may be none."""
        del recipe, examples
        return self._with_threshold if self.with_null else None

    @functools.cached_property
    def data(self) -> UserFiles:
        """The files that the recipe names, or the official ones."""
        names = {"train": self.train_name, "dev": self.dev_name}
        return UserFiles(split_off_questions, "questions", names)

    def read_file(
        self, path: str, recipe: Any, labelled: bool = True, unique: bool = True
    ) -> list[Question]:
        """Reads a JSON file of questions; see `read_questions`."""
        return read_questions(path, labelled, unique, recipe.encoding_errors)

    def load(self, split: str, recipe: SpanRecipe) -> list[Question]:
        """Reads the questions of a split; notices report what is skipped."""
        path = self.data.path(split, recipe)
        read = functools.partial(self.read_file, unique=split != "train")
        questions = self.data.read(split, recipe, read)
        located = located_answers(questions)
        lines = oddity_lines(questions, located, path, split == "train")
        if split == "train":
            questions = trainable(questions, located, path, self.with_null)
        for line in lines:
            log(line)
        if split == "dev" and not self.with_null:
            for question in questions:
                if not question.answers:
                    raise UserError(
                        f"{path}, question {question.identifier!r}: has no "
                        "right answer; use `task`=squad_v2 for such questions."
                    )
        return questions

    def estimated_tokens(
        self, examples: list[Question], recipe: SpanRecipe
    ) -> float:
        """Estimates the tokens of all windows."""
        questions = estimated_tokens(each.question for each in examples)
        questions = np.minimum(questions, recipe.max_query_length)
        contexts = estimated_tokens(each.context for each in examples)
        around = questions + SPECIAL_TOKENS
        room = recipe.max_seq_length - around
        windows = num_windows(contexts, room, recipe.doc_stride)
        return float((windows * (np.minimum(contexts, room) + around)).sum())

    def configure(
        self, recipe: SpanRecipe, examples: list[Question]
    ) -> QuestionAnsweringConfig:
        """Returns the config of a model with the recipe's lengths."""
        del examples
        values = {"task": self.name, "labels": (), "with_null": self.with_null}
        return QuestionAnsweringConfig.of_recipe(recipe, **values)

    def encode(
        self,
        examples: list[Question],
        tokenizer: Tokenizer,
        config: QuestionAnsweringConfig,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> "SpanWindows | LabelledRows":
        """Encodes windows, all of the same weight; see `make_windows`."""
        from bert_tf.families.question_answering.windows import (
            answer_positions,
            make_windows,
        )
        from bert_tf.families.task_model import END_POSITIONS, START_POSITIONS

        windows = make_windows(examples, tokenizer, config)
        if not labelled:
            return windows
        starts, ends = answer_positions(windows, examples).T
        labels = {START_POSITIONS: starts, END_POSITIONS: ends}
        weights = np.ones(len(windows), np.float32)
        return LabelledRows(windows, weights, labels)

    def loss(
        self,
        recipe: Any,
        examples: list[Question],
        config: QuestionAnsweringConfig,
    ) -> Any:
        """Returns the cross-entropy of starts and ends."""
        del recipe, examples, config
        from bert_tf.families.task_model import SpanObjective

        return SpanObjective()

    def decode(
        self, outputs: Outputs, split: Split, config: QuestionAnsweringConfig
    ) -> Answers:
        """Decodes the best answers; see `decode_answers`."""
        from bert_tf.families.question_answering.windows import decode_answers

        return decode_answers(split.rows, outputs, config)

    def metrics(
        self,
        examples: list[Question],
        predictions: FileAnswers,
        labels: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Computes the scores of the official script, from 0 to 100."""
        if not self.with_null:
            return squad_metrics.score_squad_v1(examples, predictions.texts)
        return squad_metrics.score_squad_v2(examples, *predictions)

    def score(self, answered: QuestionsAnswered) -> Scores:
        """Computes the official scores, from 0 to 1.

        SQuAD 2.0 has scores at the model's threshold, and best_ scores at the
        best threshold for these questions.
        """
        examples, predictions, config = answered
        answers = predictions.texts(config.null_threshold)
        texts = _by_identifier(examples, answers)
        if predictions.null_odds is None:
            scores = squad_metrics.score_squad_v1(examples, texts)
            return self._shares({n: scores[n] for n in ("f1", "exact_match")})
        scores = squad_metrics.score_squad_v2(examples, texts)
        best = squad_metrics.score_squad_v2(
            examples,
            _by_identifier(examples, predictions.best),
            _by_identifier(examples, predictions.null_odds.tolist()),
        )
        order = ("f1", "exact", "best_f1", "best_exact", *scores)
        return self._shares({n: (best | scores)[n] for n in order})

    def _with_threshold(
        self, answered: QuestionsAnswered
    ) -> QuestionAnsweringConfig:
        """Returns the config with the threshold of the highest F1.

        That is the null odds of a question. Halfway to the next larger odds
        the answers are the same, and rounding in batches of other shapes does
        not change them.
        """
        examples, predictions, config = answered
        odds = predictions.null_odds
        assert odds is not None
        threshold = squad_metrics.tuned_threshold(
            examples,
            _by_identifier(examples, predictions.best),
            _by_identifier(examples, odds.tolist()),
        )
        above = odds[odds > threshold]
        if len(above):
            threshold = (threshold + float(above.min())) / 2
        else:
            threshold += 1.0
        return dataclasses.replace(config, null_threshold=threshold)

    def guess(
        self, train: list[Question], examples: list[Question]
    ) -> FileAnswers:
        """Returns no answer to each question."""
        return FileAnswers({question.identifier: "" for question in examples})

    def baseline(
        self, train: list[Question], examples: list[Question]
    ) -> Scores:
        """Scores no answers; NaN if every question has an answer."""
        if not self.with_null:
            return {"f1": math.nan, "exact_match": math.nan}
        scores = super().baseline(train, examples)
        return scores | {f"best_{n}": scores[n] for n in ("f1", "exact")}

    def references(self, examples: list[Question]) -> list[Any]:
        """Returns the identifier and gold answers of each question."""
        return [
            [question.identifier, *(answer.text for answer in question.answers)]
            for question in examples
        ]

    def write_predictions(
        self, folder: pathlib.Path, split: str, answered: QuestionsAnswered
    ) -> pathlib.Path:
        """Writes the files for the official scripts; dev's begin with dev_."""
        examples, predictions, config = answered
        prefix = "dev_" if split == "dev" else ""
        threshold = config.null_threshold
        write_answers(examples, predictions, folder, threshold, prefix)
        return folder / f"{prefix}{PREDICTIONS_FILE}"

    def prediction_lines(
        self, answered: QuestionsAnswered
    ) -> Iterator[dict[str, Any]]:
        """Yields each question with its gold answers and the prediction."""
        examples, predictions, config = answered
        odds, spans = predictions.null_odds, predictions.spans.tolist()
        texts = predictions.texts(config.null_threshold)
        for number, (question, text) in enumerate(
            zip(examples, texts, strict=True)
        ):
            begin, end = spans[number] if text else (-1, -1)
            exact, f1 = squad_metrics.question_scores(
                question, text, odds is not None
            )
            yield {
                "identifier": question.identifier,
                "title": question.title,
                "question": question.question,
                "context": question.context,
                "answers": [
                    {"text": answer.text, "start": answer.start}
                    for answer in question.answers
                ],
                "prediction": text,
                "start": begin,
                "end": end,
                "null_odds": None if odds is None else float(odds[number]),
                "exact": exact,
                "f1": f1,
                "n_best": [
                    [entry.text, entry.probability]
                    for entry in predictions.n_best[number][:_SHOWN_BEST]
                ],
            }

    def read_predictions(
        self, path: str, examples: list[Question], recipe: Any, null_odds: str
    ) -> FileAnswers:
        """Reads the files for the official script; logs what is missing."""
        texts = read_predictions(path)
        for line in squad_metrics.coverage_lines(examples, texts, path):
            log(line)
        return FileAnswers(
            texts, read_null_odds(null_odds) if null_odds else None
        )


def _by_identifier(
    questions: Sequence[Question], values: Sequence[Any]
) -> dict[str, Any]:
    """Maps the identifiers of N questions to values."""
    names = (question.identifier for question in questions)
    return dict(zip(names, values, strict=True))
