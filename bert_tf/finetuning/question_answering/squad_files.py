"""SQuAD's files: questions with their contexts and answers, and predictions."""

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.files import read_lines, write_text
from bert_tf.finetuning.data.faults import Faults

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
    """One gold answer, and the character of the context it begins at."""

    text: str
    start: int


class Question(NamedTuple):
    """One question about a context.

    Attributes:
      identifier: its name in prediction files.
      title: the article's title; empty where the file has none.
      question: the question.
      context: the text to answer it from.
      answers: all gold answers; none where there is no answer or the file
        does not tell.
      is_impossible: whether the file says that there is no answer.
    """

    identifier: str
    title: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool


def split_words(text: str) -> list[str]:
    """Splits a text into words."""
    return _WORD.findall(text)


def read_questions(
    path: str,
    answers_needed: bool = True,
    unique_identifiers: bool = True,
    encoding_errors: str = "strict",
    bad_rows: str = "",
    check: Callable[[Question, str], None] = lambda question, place: None,
) -> list[Question]:
    """Reads a file in the layout of SQuAD 1.1 or 2.0.

    Args:
      path: the file; .gz is unpacked.
      answers_needed: whether every question must tell its answers or that it
        has none, as for training and scoring.
      unique_identifiers: whether two questions may not have one identifier,
        as for predictions.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.
      bad_rows: what becomes of questions with a fault; see `Faults`.
      check: raises `Fault` for a question, given its place too.

    Returns:
      The questions in the order of the file.

    Raises:
      UserError: the file cannot be read, is not JSON, is laid out otherwise,
        has no questions, or some that lack something that is needed or
        contradict themselves.
    """
    text = "".join(line for _, line in read_lines(path, encoding_errors))
    questions: list[Question] = []
    faults = Faults(path, bad_rows, "questions")
    seen: dict[str, int] = {}
    rows = _rows(_articles(text, path), path, faults)
    for number, (place, row, title, context) in enumerate(rows, start=1):
        with faults.caught(place):
            place = f"{path}, {place}"
            question = _question(row, title, context, place, answers_needed)
            check(question, place)
            first = seen.setdefault(question.identifier, number)
            if unique_identifiers and first != number:
                raise Fault(
                    "an id twice",
                    f"{path}: questions {first} and {number} both have the id "
                    f"{question.identifier!r}; a prediction file has one "
                    "answer for each id, so make them different.",
                )
            questions.append(question)
    faults.settle(len(questions))
    if not questions:
        raise UserError(f"{path}: has no questions.")
    return questions


def located_answers(questions: Sequence[Question]) -> list[list[Answer]]:
    """The answers of each question that are where their offsets point.

    As in google-research/bert, run_squad.py, `read_squad_examples`: an answer
    must be in the words of the context that it touches. Blanks of any kind
    are equal (tokenization.py, `whitespace_tokenize`), as long as they divide
    the same words.
    """
    return [
        [
            answer
            for answer in question.answers
            if (cleaned := " ".join(answer.text.split()))
            and cleaned in _words_touched(question.context, answer)
        ]
        for question in questions
    ]


def _words_touched(context: str, answer: Answer) -> str:
    """The words of an answer's range; for a blank, the word before it.

    Empty where there are none, or the range is not in the context.
    """
    begin, end = answer.start, answer.start + len(answer.text)
    start = context[: begin + 1].rstrip(BLANKS)
    if begin < 0 or end > len(context) or not start:
        return ""
    if context[end - 1] not in BLANKS and (rest := _WORD.match(context, end)):
        end = rest.end()
    first = max(map(start.rfind, BLANKS)) + 1
    return " ".join(split_words(context[first:end]))


def trainable(
    questions: Sequence[Question],
    located: Sequence[Sequence[Answer]],
    path: str,
    impossible: bool,
) -> list[Question]:
    """The questions that can be trained on, each with one answer at most.

    As in google-research/bert, run_squad.py, a question is skipped if its
    answer is not located. Unlike there, a question may have several answers:
    the first that is located is taken.

    Args:
      questions: the questions of a file.
      located: their `located_answers`.
      path: the file.
      impossible: whether questions without an answer are trained on, as in
        SQuAD 2.0.

    Raises:
      UserError: a question has no answer and `impossible` is not set, or
        nothing is left.
    """
    kept = []
    faults = Faults(path, unit="questions")
    for question, answers in zip(questions, located, strict=True):
        if not question.answers and not impossible:
            fault = Fault(
                "no answer",
                f"{path}, question {question.identifier!r}: has no answer; "
                "train on such questions with `task`=squad_v2, or remove it.",
            )
            faults.add(question.identifier, fault)
        elif question.context.strip() and (answers or not question.answers):
            kept.append(question._replace(answers=tuple(answers[:1])))
    faults.settle(len(kept))
    if not kept:
        raise UserError(
            f"{path}: none of its {len(questions)} questions can be trained "
            f"on; {_num_misplaced(questions, located)} have an answer that is "
            "not at its answer_start, which counts Unicode characters from 0."
        )
    return kept


def oddity_lines(
    questions: Sequence[Question],
    located: Sequence[Sequence[Answer]],
    path: str,
    training: bool,
) -> list[str]:
    """What is odd about the questions of a file, a line for each kind.

    Args:
      questions: the questions.
      located: their `located_answers`.
      path: the file.
      training: whether they are trained on; see `trainable`.
    """
    fate = "skipped" if training else "kept"
    names = {question.identifier for question in questions}
    counts = {
        f"have an answer that is not at its answer_start; {fate}": (
            _num_misplaced(questions, located)
        ),
        f"have an empty context; {fate}": sum(
            not question.context.strip() for question in questions
        ),
        "are empty; kept": sum(
            not question.question.strip() for question in questions
        ),
        "have the id of an earlier question; kept": (
            len(questions) - len(names)
        ),
    }
    lines = [
        f"{path}: {count} of {len(questions)} questions {what}."
        for what, count in counts.items()
        if count
    ]
    further = sum(
        len(question.answers) - 1
        for question, answers in zip(questions, located, strict=True)
        if answers
    )
    if training and further:
        lines.append(
            f"{path}: {further} further answers are not trained on; a "
            "question has one."
        )
    return lines


def _num_misplaced(
    questions: Sequence[Question], located: Sequence[Sequence[Answer]]
) -> int:
    """How many have answers and a context, and no answer is located."""
    return sum(
        bool(question.answers and question.context.strip()) and not answers
        for question, answers in zip(questions, located, strict=True)
    )


def _articles(text: str, path: str) -> list[Any]:
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        hint = ""
        if getattr(error, "msg", "") == "Extra data":
            hint = f" JSON lines are not taken; SQuAD's layout is {_LAYOUT}."
        raise UserError(f"{path}: is not JSON ({error}).{hint}") from None
    if not isinstance(content, dict) or "data" not in content:
        raise UserError(f"{path}: is not laid out as SQuAD is: {_LAYOUT}.")
    return _get(content, "data", list, path)


def _rows(
    articles: Sequence[Any], path: str, faults: Faults
) -> Iterator[tuple[str, Any, str, str]]:
    """The place of each question, its object, its title and its context."""
    for number, article in enumerate(articles):
        outer = f"data[{number}]"
        with faults.caught(outer):
            title = ""
            if isinstance(article, dict) and "title" in article:
                title = _text(article, "title", f"{path}, {outer}")
            paragraphs = _get(article, "paragraphs", list, f"{path}, {outer}")
            for index, paragraph in enumerate(paragraphs):
                below = f"{outer}.paragraphs[{index}]"
                with faults.caught(below):
                    context = _text(paragraph, "context", f"{path}, {below}")
                    rows = _get(paragraph, "qas", list, f"{path}, {below}")
                    for order, row in enumerate(rows):
                        yield f"{below}.qas[{order}]", row, title, context


def _get(node: Any, key: str, kind: type, place: str) -> Any:
    """A member of a JSON object that must be there and of a kind."""
    if not isinstance(node, dict):
        raise Fault(
            "no object", f"{place}: is {excerpt(node)}; it must be an object."
        )
    if key not in node:
        raise Fault(
            "a missing key",
            f"{place}: has no {key!r}; SQuAD's layout is {_LAYOUT}.",
        )
    value = node[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Fault(
            "a value of another type",
            f"{place}: {key!r} is {excerpt(value)}; it must be {_KINDS[kind]}.",
        )
    return value


def _text(node: Any, key: str, place: str) -> str:
    text = _get(node, key, str, place)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Fault(
                "half of a character",
                f"{place}: {key!r} is {excerpt(text)}, with half of a "
                "surrogate pair; write the character whole.",
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
        raise Fault(
            "a value of another type",
            f"{place}: 'is_impossible' is {excerpt(impossible)}; it must be "
            "true or false.",
        )
    if impossible and answers:
        raise Fault(
            "a contradiction",
            f"{place}: 'is_impossible' is true and there are {len(answers)} "
            "answers; remove them, or make it false.",
        )
    if answers_needed and not impossible and not answers:
        raise Fault(
            "a contradiction",
            f"{place}: 'is_impossible' is false and there is no answer; give "
            "one, or make it true.",
        )
    question = _text(row, "question", place)
    return Question(identifier, title, question, context, answers, impossible)


class ScoredText(NamedTuple):
    """One of the best answers; its text is empty for none."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model answers to N questions.

    Attributes:
      n_best: the best answers to each, the best first; with `null_odds`, the
        empty one is among them.
      best: the best answer to each that is not empty.
      spans: int64 [N, 2], begin and exclusive end of that answer in its
        context, in characters; -1 where there is none.
      null_odds: float64 [N], how much better no answer scores than `best`;
        None where every question has an answer.
    """

    n_best: tuple[tuple[ScoredText, ...], ...]
    best: tuple[str, ...]
    spans: np.ndarray
    null_odds: np.ndarray | None

    def texts(self, threshold: float = 0.0) -> tuple[str, ...]:
        """The answers; null odds above the threshold make one empty."""
        if self.null_odds is None:
            return self.best
        return tuple(
            "" if odds > threshold else text
            for text, odds in zip(self.best, self.null_odds, strict=True)
        )


def write_answers(
    questions: Sequence[Question],
    answers: Answers,
    folder: str | os.PathLike,
    threshold: float = 0.0,
    prefix: str = "",
) -> None:
    """Writes predictions.json, nbest_predictions.json and null_odds.json.

    The last is written where a question may have no answer. All names begin
    with `prefix`; for `threshold` see `Answers.texts`.
    """
    files = {
        PREDICTIONS_FILE: answers.texts(threshold),
        N_BEST_FILE: [[e._asdict() for e in own] for own in answers.n_best],
    }
    if answers.null_odds is not None:
        files[NULL_ODDS_FILE] = answers.null_odds.tolist()
    for name, values in files.items():
        lines = [
            f"    {json.dumps(question.identifier)}: {json.dumps(value)}"
            for question, value in zip(questions, values, strict=True)
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
    path: str, kind: str, is_valid: Callable[[Any], bool]
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
        if not is_valid(value):
            raise UserError(
                f"{path}: {excerpt(identifier)} is {excerpt(value)}; it must "
                f"be {kind}, as in {layout}."
            )
        values[identifier] = value
    return values


class _Pairs(list):
    """An object's keys and values, before a second key hides the first."""
