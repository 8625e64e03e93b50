"""JSON files of questions with their contexts and answers."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.user_files import split_off_groups
from bert_tf.families.question_answering.config import BLANKS
from bert_tf.files import read_lines, whole_text
from bert_tf.tables.faults import Faults
from bert_tf.tables.table import only_file

_WORD = re.compile(f"[^{BLANKS}]+")
_LAYOUT = (
    'one object {"data": [{"paragraphs": [{"context": ..., "qas": '
    '[{"id": ..., "question": ..., "answers": [{"text": ..., '
    '"answer_start": ...}]}]}]}]}, or a list of questions, each with its '
    "context"
)
_KINDS = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
}


class Answer(NamedTuple):
    """A gold answer.

    Attributes:
      text: the answer.
      start: its first character in the context.
      num_places: occurrences of the answer in the context if the file does not
        state the start, which is then the first of them; otherwise 1.
    """

    text: str
    start: int
    num_places: int = 1


class Question(NamedTuple):
    """A question about a context.

    Attributes:
      identifier: the key of the question in prediction files.
      title: the article's title, or empty.
      question: the question.
      context: the text that contains the answer.
      answers: all gold answers; empty if there is no answer or if it is
        unknown.
      is_impossible: whether the file states that there is no answer.
    """

    identifier: str
    title: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool


def read_questions(
    path: str,
    answers_needed: bool = True,
    unique_identifiers: bool = True,
    encoding_errors: str = "strict",
    bad_rows: str = "",
    check: Callable[[Question, str], None] = lambda question, place: None,
) -> list[Question]:
    """Reads a JSON file in the layout of SQuAD or of Hugging Face's run_qa.py.

    SQuAD's layout has articles of paragraphs of questions, or paragraphs. In
    the other layout each question has its context: {"data": [{"id", "title",
    "context", "question", "answers": {"text": [...], "answer_start":
    [...]}}]}. Either may be a list without "data". An id may be a number; the
    default id is the position in the file, from 0.

    Args:
      path: the file; .gz is decompressed.
      answers_needed: whether every question must state its answers or that
        there is none, as for training and scoring.
      unique_identifiers: whether identifiers must be unique, as for
        predictions.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.
      bad_rows: treatment of invalid questions; see `Faults`.
      check: raises `Fault` for an invalid question, given its place too.

    Returns:
      The questions in the order of the file.

    Raises:
      UserError: the file cannot be read, is not JSON, has another layout or no
        questions, or has questions with missing or contradictory values.
    """
    path = only_file(path, "questions in JSON")
    text = "".join(line for _, line in read_lines(path, encoding_errors))
    questions: list[Question] = []
    faults = Faults(path, bad_rows, "questions")
    seen: dict[str, int] = {}
    rows = _rows(_articles(text, path), path, faults)
    for number, (place, row, title, context) in enumerate(rows, start=1):
        with faults.caught(place):
            place = f"{path}, {place}"
            question = _question(
                row, number - 1, title, context, place, answers_needed
            )
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
    """Selects the answers of each question that are at their offsets.

    As in google-research/bert, run_squad.py, `read_squad_examples`: the words
    of the context in the answer's range must contain the answer. All kinds of
    blanks are equal (tokenization.py, `whitespace_tokenize`) if they separate
    the same words.
    """
    return [
        [
            answer
            for answer in question.answers
            if (cleaned := " ".join(answer.text.split()))
            and cleaned in _words_in_range(question.context, answer)
        ]
        for question in questions
    ]


def _words_in_range(context: str, answer: Answer) -> str:
    """Returns the words that an answer overlaps; of a blank, the word before.

    Empty if there are none, or if the range exceeds the context.
    """
    begin, end = answer.start, answer.start + len(answer.text)
    start = context[: begin + 1].rstrip(BLANKS)
    if begin < 0 or end > len(context) or not start:
        return ""
    if context[end - 1] not in BLANKS and (rest := _WORD.match(context, end)):
        end = rest.end()
    first = max(map(start.rfind, BLANKS)) + 1
    return " ".join(_WORD.findall(context[first:end]))


def trainable(
    questions: Sequence[Question],
    located: Sequence[Sequence[Answer]],
    path: str,
    impossible: bool,
) -> list[Question]:
    """Selects the questions to train on, each with one answer at most.

    As in google-research/bert, run_squad.py, a question is skipped if its
    answer is not located. Unlike there, a question may have several answers,
    of which the first located one is used; or none if `impossible` is set, as
    in SQuAD 2.0.

    Raises:
      UserError: a question has no answer and `impossible` is not set, or
        no question is left.
    """
    selected = []
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
            selected.append(question._replace(answers=tuple(answers[:1])))
    faults.settle(len(selected))
    if not selected:
        raise UserError(
            f"{path}: none of its {len(questions)} questions can be trained "
            f"on; {_num_misplaced(questions, located)} have an answer that is "
            "not at its answer_start, which counts Unicode characters from 0."
        )
    return selected


def oddity_lines(
    questions: Sequence[Question],
    located: Sequence[Sequence[Answer]],
    path: str,
    training: bool,
) -> list[str]:
    """Describes unusual questions of a file, a line for each kind.

    In training, some of them are skipped; see `trainable`.
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
    """Counts questions with answers and a context, but no located answer."""
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
            hint = (
                " JSON lines are for the task questions, in a file that ends "
                f"in .jsonl; SQuAD's layout is {_LAYOUT}."
            )
        raise UserError(f"{path}: is not JSON ({error}).{hint}") from None
    if isinstance(content, list):
        return content
    if not isinstance(content, dict) or "data" not in content:
        raise UserError(f"{path}: is not laid out as SQuAD is: {_LAYOUT}.")
    return _get(content, "data", list, path)


def _rows(
    nodes: Sequence[Any], path: str, faults: Faults, outer: str = "data"
) -> Iterator[tuple[str, Any, str, str]]:
    """Yields the place of each question, its object, title and context.

    A node is an article with paragraphs, a paragraph with questions, or a
    question with its context.
    """
    for number, node in enumerate(nodes):
        place = f"{outer}[{number}]"
        with faults.caught(place):
            full = f"{path}, {place}"
            title = ""
            if isinstance(node, dict) and node.get("title") is not None:
                title = _text(node, "title", full)
            if isinstance(node, dict) and "paragraphs" in node:
                below = _get(node, "paragraphs", list, full)
                for where, row, _, context in _rows(
                    below, path, faults, f"{place}.paragraphs"
                ):
                    yield where, row, title, context
                continue
            context = _text(node, "context", full)
            if "qas" not in node:
                yield place, node, title, context
                continue
            for order, row in enumerate(_get(node, "qas", list, full)):
                yield f"{place}.qas[{order}]", row, title, context


def _get(node: Any, key: str, kind: type, place: str) -> Any:
    """Returns a member of a JSON object, checking its type."""
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
    return whole_text(text, f"{place}: {key!r}", "strict")


def _question(
    row: Any,
    number: int,
    title: str,
    context: str,
    place: str,
    answers_needed: bool,
) -> Question:
    identifier = row.get("id") if isinstance(row, dict) else None
    if identifier is None:
        identifier = str(number)
    elif type(identifier) in (int, float):
        # As Google's run_squad.py writes it as a key.
        identifier = json.dumps(identifier)
    else:
        identifier = _text(row, "id", place)
    place = f"{place} (id {identifier!r})"
    question = _text(row, "question", place)
    impossible = _truth(row.get("is_impossible"), place)
    answers: tuple[Answer, ...] = ()
    if answers_needed or row.get("answers") is not None:
        answers = _answers(row, context, bool(impossible), place)
    if impossible is None:
        impossible = answers_needed and not answers
    contradiction = ""
    if impossible and answers:
        contradiction = (
            f"'is_impossible' is true and there are {len(answers)} answers; "
            "remove them, or make it false."
        )
    if answers_needed and not impossible and not answers:
        contradiction = (
            "'is_impossible' is false and there is no answer; give one, or "
            "make it true."
        )
    if contradiction:
        raise Fault("a contradiction", f"{place}: {contradiction}")
    return Question(identifier, title, question, context, answers, impossible)


def _truth(value: Any, place: str) -> bool | None:
    """Converts a bool, or what other programs write for one."""
    known = {"true": True, "1": True, "false": False, "0": False, "null": None}
    name = value.lower() if isinstance(value, str) else json.dumps(value)
    if name not in known:
        raise Fault(
            "a value of another type",
            f"{place}: 'is_impossible' is {excerpt(value)}; it must be "
            "true or false.",
        )
    return known[name]


def _answers(
    row: Any, context: str, impossible: bool, place: str
) -> tuple[Answer, ...]:
    """Returns the answers of a question: a list of objects, or lists of both.

    An answer without a start is searched. An empty one is no answer if it is
    at -1 or without a start, or if the question is impossible.
    """
    given = row.get("answers", [])
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
        if not isinstance(texts, list):
            texts, starts = [texts], [starts]
        given = [
            {"text": text, "answer_start": start}
            for text, start in with_starts(texts, starts, place)
        ]
    elif "answers" in row or not impossible:
        given = _get(row, "answers", list, place)
    answers = []
    for number, each in enumerate(given):
        where = f"{place}.answers[{number}]"
        text = _text(each, "text", where)
        start = each.get("answer_start")
        if not text.strip() and (impossible or start in (-1, None)):
            continue
        if start is not None:
            start = _get(each, "answer_start", int, where)
        answers.append(placed_answer(text, start, context, where))
    return tuple(answers)


def with_starts(
    texts: Sequence[Any], starts: Any, place: str
) -> list[tuple[Any, Any]]:
    """Pairs answers with their starts, or with None if there are none."""
    if starts is None:
        starts = [None] * len(texts)
    if not isinstance(starts, list | tuple) or len(starts) != len(texts):
        raise Fault(
            "answers without a start",
            f"{place}: has {len(texts)} answers and starts "
            f"{excerpt(starts)}; give one start for each, or none.",
        )
    return list(zip(texts, starts, strict=True))


def placed_answer(
    text: str, start: int | None, context: str, place: str
) -> Answer:
    """Returns an answer at its start, or at its first occurrence.

    Raises:
      Fault: it has no start and does not occur in the context.
    """
    if start is not None:
        return Answer(text, start)
    start = context.find(text)
    if start < 0:
        raise Fault(
            "an answer that is not in its context",
            f"{place}: the answer {excerpt(text)} is not in the context; "
            "write it as the context has it.",
        )
    overlapping = re.compile(f"(?={re.escape(text)})")
    return Answer(text, start, len(overlapping.findall(context)))


def as_in_context(text: str, context: str) -> str:
    """Returns an answer as its context spells it, with other blanks or case.

    An answer that does not occur is returned unchanged.
    """
    if text in context:
        return text
    words = map(re.escape, text.split())
    found = re.search(r"\s+".join(words), context, re.IGNORECASE)
    return found[0] if found else text


def split_off_questions(
    questions: Sequence[Question], share: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """Splits a share of the questions off, keeping those of a context together.

    Returns:
      The training and the dev part, each in the order of the file.

    Raises:
      UserError: all have the same context.
    """
    contexts = [question.context for question in questions]
    same = f"all {len(questions)} questions have the same context"
    return split_off_groups(questions, contexts, same, share, seed)
