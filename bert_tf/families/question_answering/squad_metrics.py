"""The official scores of SQuAD 1.1 and 2.0, in percent.

The definitions are those of the data sets' evaluation scripts, evaluate-v1.1
and evaluate-v2.0: exact match and F1 of the words, without case, punctuation
and articles, the best over the gold answers.
"""

import collections
import functools
import re
import string
from collections.abc import Mapping, Sequence

from bert_tf.errors import UserError
from bert_tf.families.question_answering.squad_files import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# evaluate-v2.0 `--na-prob-thresh`: its own default, made for probabilities.
_NO_ANSWER_THRESHOLD = 1.0
# run_squad.py `--null_score_diff_threshold`: its own default, of null odds.
NULL_THRESHOLD = 0.0
# Questions that a notice names.
_NAMED = 5

Scores = dict[str, float]


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Lower case without punctuation, articles and redundant blanks."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def word_f1(prediction: str, answer: str, none_is_right: bool = False) -> float:
    """The F1 of a prediction's words.

    Where neither has a word it is 0, and with `none_is_right` 1 (SQuAD 2.0).
    """
    predicted = normalize_answer(prediction).split()
    gold = normalize_answer(answer).split()
    if none_is_right and not (predicted or gold):
        return 1.0
    common = collections.Counter(predicted) & collections.Counter(gold)
    num_same = common.total()
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(gold)
    return 2 * precision * recall / (precision + recall)


def coverage_lines(
    questions: Sequence[Question], predictions: Mapping[str, object], path: str
) -> list[str]:
    """What to say of the names in a prediction file, if anything.

    Questions that it lacks score 0, and names that are no question's do not
    count.

    Raises:
      UserError: no question is answered, so that the files do not belong
        together.
    """
    names = dict.fromkeys(question.identifier for question in questions)
    missing = tuple(name for name in names if name not in predictions)
    if len(missing) == len(names):
        raise UserError(
            f"{path}: answers none of the {len(names)} questions; their ids "
            f"are {_named(missing)}, and those in the file are "
            f"{_named(tuple(predictions)) or 'none'}."
        )
    unknown = tuple(name for name in predictions if name not in names)
    lines = []
    if missing:
        lines.append(
            f"{path}: {len(missing)} of {len(names)} questions are unanswered "
            f"and will receive score 0: {_named(missing)}."
        )
    if unknown:
        lines.append(
            f"{path}: {len(unknown)} ids are no question's and do not count: "
            f"{_named(unknown)}."
        )
    return lines


def question_scores(
    question: Question, prediction: str, with_null: bool
) -> tuple[float, float]:
    """Exact match and F1 of the answer to one question, from 0 to 1.

    Whatever scores a question comes here. Of the gold answers, evaluate-v2.0
    leaves out those without a word ("The"), and where none is left, as where
    there are none at all, no answer is the right one. evaluate-v1.1 compares
    with every right answer as it is; to one without a word, an answer without
    one matches exactly and has an F1 of 0.

    Args:
      question: with at least one right answer unless `with_null`.
      prediction: the answer, empty for none.
      with_null: whether to score as SQuAD 2.0, else as SQuAD 1.1.
    """
    answers = [answer.text for answer in question.answers]
    if with_null:
        answers = [text for text in answers if normalize_answer(text)] or [""]
    normal = normalize_answer(prediction)
    return (
        float(any(normal == normalize_answer(answer) for answer in answers)),
        max(word_f1(prediction, answer, with_null) for answer in answers),
    )


def score_squad_v1(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> Scores:
    """The scores of SQuAD 1.1: exact_match and f1, from 0 to 100.

    A question that is not answered scores 0.

    Raises:
      UserError: a question has no right answer.
    """
    for question in questions:
        if not question.answers:
            raise UserError(
                f"question {question.identifier!r}: has no right answer; "
                "score such questions as SQuAD 2.0, with `task`=squad_v2."
            )
    exact, f1 = _raw_scores(questions, predictions, with_null=False)
    return {
        "exact_match": 100.0 * sum(exact.values()) / len(questions),
        "f1": 100.0 * sum(f1.values()) / len(questions),
    }


def score_squad_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = _NO_ANSWER_THRESHOLD,
) -> Scores:
    """The scores of SQuAD 2.0.

    The official script cannot score a file that lacks an answer; here that
    question scores 0.

    Args:
      questions: the questions.
      predictions: the answer to each, empty for none.
      null_odds: how likely each has no answer, by any measure, or None.
      threshold: above it, a question counts as answered with nothing.

    Returns:
      exact, f1 and total; the same of the questions with an answer (HasAns_)
      and without (NoAns_), where there are such; with `null_odds` also
      best_exact, best_exact_thresh, best_f1 and best_f1_thresh. From 0 to 100.

    Raises:
      UserError: an answered question has no null odds.
    """
    exact, f1 = _raw_scores(questions, predictions, with_null=True)
    has_answer = {q.identifier: bool(q.answers) for q in questions}
    best: Scores = {}
    if null_odds is not None:
        odds = _odds_of(predictions, has_answer, null_odds)
        for name, scores in (("exact", exact), ("f1", f1)):
            value, at = _best_threshold(predictions, scores, odds, has_answer)
            best[f"best_{name}"] = 100.0 * value / len(has_answer)
            best[f"best_{name}_thresh"] = at
        for scores in (exact, f1):
            # What is above the threshold counts as answered with nothing.
            for name in scores:
                if odds[name] > threshold:
                    scores[name] = float(not has_answer[name])
    result = _mean_scores(exact, f1, list(has_answer), "")
    for prefix, answerable in (("HasAns_", True), ("NoAns_", False)):
        names = [name for name, has in has_answer.items() if has is answerable]
        if names:
            result |= _mean_scores(exact, f1, names, prefix)
    return result | best


def tuned_threshold(
    questions: Sequence[Question],
    best_answers: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """The threshold of null odds with the highest F1.

    Args:
      questions: the questions.
      best_answers: `Answers.best` of each, whatever its null odds are.
      null_odds: of each.

    Returns:
      What evaluate-v2.0 calls best_f1_thresh; where no answer at all is the
      best, which the script calls 0, a number below all odds.

    Raises:
      UserError: an answered question has no null odds.
    """
    has_answer = {q.identifier: bool(q.answers) for q in questions}
    odds = _odds_of(best_answers, has_answer, null_odds)
    _, scores = _raw_scores(questions, best_answers, with_null=True)
    value, at = _best_threshold(best_answers, scores, odds, has_answer)
    nothing = sum(not has_answer[name] for name in scores)
    return at if value > nothing else min(odds.values()) - 1.0


def _raw_scores(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    with_null: bool,
) -> tuple[dict[str, float], dict[str, float]]:
    """Exact match and F1 of each question that is answered."""
    exact, f1 = {}, {}
    for question in questions:
        name = question.identifier
        if name in predictions:
            exact[name], f1[name] = question_scores(
                question, predictions[name], with_null
            )
    return exact, f1


def _best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """The highest sum of scores, and the odds up to which answers count.

    evaluate-v2.0, `find_best_thresh`: at first nothing is answered; then the
    questions are, from the lowest null odds on.
    """
    current: float = sum(not has_answer[name] for name in scores)
    best = current
    threshold = 0.0
    for name in sorted(null_odds, key=lambda name: null_odds[name]):
        if name not in scores:
            continue
        if has_answer[name]:
            current += scores[name]
        elif predictions[name]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[name]
    return best, threshold


def _mean_scores(
    exact: Mapping[str, float],
    f1: Mapping[str, float],
    names: Sequence[str],
    prefix: str,
) -> Scores:
    total = len(names)
    return {
        f"{prefix}exact": 100.0 * sum(exact.get(k, 0.0) for k in names) / total,
        f"{prefix}f1": 100.0 * sum(f1.get(k, 0.0) for k in names) / total,
        f"{prefix}total": total,
    }


def _odds_of(
    predictions: Mapping[str, str],
    has_answer: Mapping[str, bool],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """The null odds of the questions."""
    for name in predictions:
        if name in has_answer and name not in null_odds:
            raise UserError(
                f"null odds: have none for the question {name!r}, which is "
                "answered; give the file of the same run."
            )
    return {k: v for k, v in null_odds.items() if k in has_answer}


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more
