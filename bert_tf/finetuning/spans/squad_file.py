"""Files laid out as SQuAD's: questions, their contexts and their answers."""

import collections
import dataclasses
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_tf.errors import UserError
from bert_tf.finetuning.data.table_formats import excerpt, read_lines
from bert_tf.finetuning.spans.contexts import Words, words_of

_LAYOUT = (
    'one object {"data": [{"paragraphs": [{"context": ..., "qas": '
    '[{"id": ..., "question": ..., "answers": [{"text": ..., '
    '"answer_start": ...}]}]}]}]}'
)
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
