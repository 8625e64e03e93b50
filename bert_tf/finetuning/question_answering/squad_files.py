"""SQuAD's files: questions with their contexts and answers, and predictions."""

import bisect
import collections
import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.files import read_lines, write_text

# run_squad.py `is_whitespace`: what divides the words of a context. Other
# blanks, such as U+00A0, stand inside words.
BLANKS = " \t\r\n\u202f"
_WORD = re.compile(f"[^{BLANKS}]+")
_LAYOUT = (
    'one object {"data": [{"paragraphs": [{"context": ..., "qas": '
    '[{"id": ..., "question": ..., "answers": [{"text": ..., '
    '"answer_start": ...}]}]}]}]}'
)
PREDICTIONS_FILE = "predictions.json"
N_BEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
_KINDS = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
}


class Answer(NamedTuple):
    """One right answer.

    Attributes:
      text: the answer.
      start: the character of the context that it begins at, from 0.
    """

    text: str
    start: int


class Question(NamedTuple):
    """One question about a context.

    Attributes:
      identifier: its name in prediction files.
      title: the article's title; empty where the file has none.
      question: the question.
      context: the text to answer it from, shared among its questions.
      answers: all right answers; none where there is no answer or the file
        does not tell.
      is_impossible: whether the file says that there is no answer.
    """

    identifier: str
    title: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool


class Words(NamedTuple):
    """Where the words of a context are, as blanks divide it.

    Attributes:
      context: the context.
      starts: the character at which each word begins.
    """

    context: str
    starts: list[int]

    def at(self, character: int) -> int:
        """The word at a character, or before it if it is a blank.

        It is -1 before the first word and outside of the context.
        """
        if not 0 <= character < len(self.context):
            return -1
        return bisect.bisect_right(self.starts, character) - 1

    def text(self, first: int, last: int) -> str:
        """The words from `first` to `last`, joined by spaces."""
        end = None if last + 1 == len(self.starts) else self.starts[last + 1]
        return " ".join(split_words(self.context[self.starts[first] : end]))


def words_of(context: str) -> Words:
    """Finds the words of a context."""
    return Words(context, [m.start() for m in _WORD.finditer(context)])


def split_words(text: str) -> list[str]:
    """Splits a text into words."""
    return _WORD.findall(text)


@dataclasses.dataclass(frozen=True)
class Oddities:
    """What is odd about the questions of a file, counted.

    Attributes:
      questions: how many there are.
      answers_not_found: have answers, none of which is in the words of the
        context that its offset points to.
      empty_contexts: have a context of blanks alone.
      empty_questions: consist of blanks alone.
      further_answers: answers beyond the first that is found.
      repeated_identifiers: have the identifier of an earlier question.
    """

    questions: int
    answers_not_found: int
    empty_contexts: int
    empty_questions: int
    further_answers: int
    repeated_identifiers: int

    def lines(self, path: str, training: bool) -> list[str]:
        """What to tell the user, a line for each count that is not 0.

        Args:
          path: the file.
          training: whether the questions are trained on; see `trainable`.
        """
        fate = "skipped" if training else "kept"
        told = [
            (
                self.answers_not_found,
                f"have an answer that is not at its answer_start; {fate}",
            ),
            (self.empty_contexts, f"have an empty context; {fate}"),
            (self.empty_questions, "are empty; kept"),
            (
                self.repeated_identifiers,
                "have the id of an earlier question; kept",
            ),
        ]
        lines = [
            f"{path}: {count} of {self.questions} questions {what}."
            for count, what in told
            if count
        ]
        if training and self.further_answers:
            lines.append(
                f"{path}: {self.further_answers} further answers are not "
                "trained on; a question has one."
            )
        return lines


def read_questions(
    path: str,
    answers_needed: bool = True,
    unique_identifiers: bool = True,
    encoding_errors: str = "strict",
) -> list[Question]:
    """Reads a file in the layout of SQuAD 1.1 or 2.0.

    Args:
      path: the file; .gz is unpacked.
      answers_needed: whether every question must tell its answers or that it
        has none, as for training and scoring.
      unique_identifiers: whether two questions may not have one identifier,
        as for predictions.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Returns:
      The questions in the order of the file.

    Raises:
      UserError: the file cannot be read, is not JSON, is laid out otherwise,
        has no questions, lacks something that is needed, or contradicts
        itself; the line names the place.
    """
    text = "".join(line for _, line in read_lines(path, encoding_errors))
    questions: list[Question] = []
    for number, article in enumerate(_articles(text, path)):
        place = f"{path}, data[{number}]"
        title = ""
        if isinstance(article, dict) and "title" in article:
            title = _text(article, "title", place)
        for index, paragraph in enumerate(
            _get(article, "paragraphs", list, place)
        ):
            below = f"{place}.paragraphs[{index}]"
            context = _text(paragraph, "context", below)
            for order, row in enumerate(_get(paragraph, "qas", list, below)):
                questions.append(
                    _question(
                        row,
                        title,
                        context,
                        f"{below}.qas[{order}]",
                        answers_needed,
                    )
                )
    if not questions:
        raise UserError(f"{path}: has no questions.")
    if unique_identifiers:
        _refuse_repeated(questions, path)
    return questions


def trainable(
    questions: Sequence[Question], path: str, impossible: bool
) -> tuple[list[Question], Oddities]:
    """The questions that can be trained on, each with one answer at most.

    As in google-research/bert, run_squad.py, `read_squad_examples`, a question
    is skipped whose answer is not in the words of the context that its offset
    points to, blanks aside. Unlike there, a question may have several answers:
    the first that is found is taken.

    Args:
      questions: the questions of a file.
      path: the file.
      impossible: whether questions without an answer are trained on, as in
        SQuAD 2.0.

    Returns:
      The questions, and counts of what is odd about those given.

    Raises:
      UserError: a question has no answer and `impossible` is not set, or
        nothing is left.
    """
    kept = []
    found = _found_answers(questions)
    for question, answers in zip(questions, found, strict=True):
        if not question.answers and not impossible:
            raise UserError(
                f"{path}, question {question.identifier!r}: has no answer; "
                "train on such questions with `task`=squad_v2, or remove it."
            )
        if question.context.strip() and (answers or not question.answers):
            kept.append(question._replace(answers=tuple(answers[:1])))
    oddities = _count_oddities(questions, found)
    if not kept:
        raise UserError(
            f"{path}: none of its {len(questions)} questions can be trained "
            f"on; {oddities.answers_not_found} have an answer that is not at "
            "its answer_start, which counts Unicode characters from 0."
        )
    return kept, oddities


def count_oddities(questions: Sequence[Question]) -> Oddities:
    """Counts what is odd about the questions of a file."""
    return _count_oddities(questions, _found_answers(questions))


def _count_oddities(
    questions: Sequence[Question], found: Sequence[Sequence[Answer]]
) -> Oddities:
    names = collections.Counter(question.identifier for question in questions)
    pairs = list(zip(questions, found, strict=True))
    return Oddities(
        questions=len(questions),
        answers_not_found=sum(
            bool(question.answers and question.context.strip()) and not answers
            for question, answers in pairs
        ),
        empty_contexts=sum(not q.context.strip() for q in questions),
        empty_questions=sum(not q.question.strip() for q in questions),
        further_answers=sum(len(q.answers) - 1 for q, a in pairs if a),
        repeated_identifiers=len(questions) - len(names),
    )


def _found_answers(questions: Sequence[Question]) -> list[list[Answer]]:
    """The answers of each question that are where their offsets point."""
    context, words = None, Words("", [])
    found = []
    for question in questions:
        if question.context is not context:
            context, words = question.context, words_of(question.context)
        found.append([a for a in question.answers if _is_found(a, words)])
    return found


def _is_found(answer: Answer, words: Words) -> bool:
    # Blanks of any kind are equal here (tokenization.py,
    # `whitespace_tokenize`), as long as the words are divided alike.
    cleaned = " ".join(answer.text.split())
    first = words.at(answer.start)
    last = words.at(answer.start + len(answer.text) - 1)
    return (
        bool(cleaned)
        and 0 <= first <= last
        and (cleaned in words.text(first, last))
    )


def _articles(text: str, path: str) -> list[Any]:
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        hint = ""
        if (
            isinstance(error, json.JSONDecodeError)
            and error.msg == "Extra data"
        ):
            hint = f" JSON lines are not taken; SQuAD's layout is {_LAYOUT}."
        raise UserError(f"{path}: is not JSON ({error}).{hint}") from None
    if not isinstance(content, dict) or "data" not in content:
        raise UserError(f"{path}: is not laid out as SQuAD is: {_LAYOUT}.")
    return _get(content, "data", list, path)


def _get(node: Any, key: str, kind: type, place: str) -> Any:
    """A member of a JSON object that must be there and of a kind."""
    if not isinstance(node, dict):
        raise UserError(f"{place}: is {excerpt(node)}; an object is wanted.")
    if key not in node:
        raise UserError(
            f"{place}: has no {key!r}; SQuAD's layout is {_LAYOUT}."
        )
    value = node[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(
            f"{place}: {key!r} is {excerpt(value)}; {_KINDS[kind]} is wanted."
        )
    return value


def _text(node: Any, key: str, place: str) -> str:
    text = _get(node, key, str, place)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{place}: {key!r} is {excerpt(text)}, with half of a "
                "surrogate pair; write the character whole."
            ) from None
    return text


def _question(
    row: Any, title: str, context: str, place: str, answers_needed: bool
) -> Question:
    identifier = _text(row, "id", place)
    place = f"{place} (id {identifier!r})"
    answers: tuple[Answer, ...] = ()
    if answers_needed or "answers" in row:
        answers = tuple(
            Answer(
                _text(answer, "text", f"{place}.answers[{number}]"),
                _get(answer, "answer_start", int, f"{place}.answers[{number}]"),
            )
            for number, answer in enumerate(_get(row, "answers", list, place))
        )
    impossible = row.get("is_impossible", answers_needed and not answers)
    if not isinstance(impossible, bool):
        raise UserError(
            f"{place}: 'is_impossible' is {excerpt(impossible)}; true or false "
            "is wanted."
        )
    if impossible and answers:
        raise UserError(
            f"{place}: 'is_impossible' is true and there are {len(answers)} "
            "answers; remove them, or make it false."
        )
    if answers_needed and not impossible and not answers:
        raise UserError(
            f"{place}: 'is_impossible' is false and there is no answer; give "
            "one, or make it true."
        )
    question = _text(row, "question", place)
    return Question(identifier, title, question, context, answers, impossible)


def _refuse_repeated(questions: Sequence[Question], path: str) -> None:
    seen: dict[str, int] = {}
    for number, question in enumerate(questions, start=1):
        first = seen.setdefault(question.identifier, number)
        if first != number:
            raise UserError(
                f"{path}: questions {first} and {number} both have the id "
                f"{question.identifier!r}; a prediction file has one answer "
                "for each id, so make them different."
            )


class ScoredText(NamedTuple):
    """One of the best answers to a question.

    Attributes:
      text: the answer; empty for none.
      probability: its share among the best.
      start_logit: of its first token.
      end_logit: of its last token.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model answers to N questions.

    Attributes:
      identifiers: the questions' names.
      n_best: the best answers to each, the best first; with `null_odds`, the
        empty one is among them.
      best: the best answer to each that is not empty.
      spans: int64 [N, 2], begin and exclusive end of that answer in its
        context, in characters; -1 where there is none.
      null_odds: float64 [N], how much better no answer scores than `best`;
        None where every question has an answer.
    """

    identifiers: tuple[str, ...]
    n_best: tuple[tuple[ScoredText, ...], ...]
    best: tuple[str, ...]
    spans: np.ndarray
    null_odds: np.ndarray | None

    def texts(self, threshold: float = 0.0) -> tuple[str, ...]:
        """The answer to each question.

        Args:
          threshold: a question whose null odds are above it has none.
        """
        if self.null_odds is None:
            return self.best
        return tuple(
            "" if odds > threshold else text
            for text, odds in zip(self.best, self.null_odds, strict=True)
        )


def write_answers(
    answers: Answers,
    folder: str | os.PathLike,
    threshold: float = 0.0,
    prefix: str = "",
) -> None:
    """Writes predictions.json, nbest_predictions.json and null_odds.json.

    The last is written where a question may have no answer.

    Args:
      answers: what a model answers.
      folder: where to.
      threshold: a question whose null odds are above it has none.
      prefix: what the names of the files begin with.
    """
    names = answers.identifiers
    files = {
        PREDICTIONS_FILE: answers.texts(threshold),
        N_BEST_FILE: [[e._asdict() for e in own] for own in answers.n_best],
    }
    if answers.null_odds is not None:
        files[NULL_ODDS_FILE] = answers.null_odds.tolist()
    for name, values in files.items():
        lines = [
            f"    {json.dumps(key)}: {json.dumps(value)}"
            for key, value in zip(names, values, strict=True)
        ]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        write_text(os.path.join(folder, prefix + name), text)


def read_predictions(path: str) -> dict[str, str]:
    """Reads a predictions.json: the answer to each question.

    Raises:
      UserError: it cannot be read, is no JSON object, names a question twice,
        or an answer is no text.
    """
    return _read(path, "a text", lambda value: isinstance(value, str))


def read_null_odds(path: str) -> dict[str, float]:
    """Reads a null_odds.json: how likely each question has no answer.

    Raises:
      UserError: as for `read_predictions`; or odds that are no finite number.
    """
    return _read(
        path,
        "a finite number",
        lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
        ),
    )


def _read(
    path: str, kind: str, is_right: Callable[[Any], bool]
) -> dict[str, Any]:
    text = "".join(line for _, line in read_lines(path, "strict"))
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON ({error}).") from None
    layout = f'one object {{"id of a question": {kind}, ...}}'
    if not isinstance(pairs, _Pairs):
        raise UserError(f"{path}: is not laid out as {layout}.")
    values: dict[str, Any] = {}
    for identifier, value in pairs:
        if identifier in values:
            raise UserError(f"{path}: the id {identifier!r} occurs twice.")
        if not is_right(value):
            raise UserError(
                f"{path}: {excerpt(identifier)} is {excerpt(value)}; {kind} is "
                f"wanted, as in {layout}."
            )
        values[identifier] = value
    return values


class _Pairs(list):
    """An object's keys and values, before a second key hides the first."""
