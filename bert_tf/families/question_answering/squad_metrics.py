"""The official scores of SQuAD 1.1 and 2.0, in percent.

The definitions are those of the evaluation scripts evaluate-v1.1 and
evaluate-v2.0: exact match and F1 of the words, ignoring case, punctuation and
articles, the maximum over the gold answers.
"""

import collections
import functools
import re
import string
from collections.abc import Mapping, Sequence

from bert_tf.errors import UserError, first_few
from bert_tf.families.question_answering.squad_files import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Default of evaluate-v2.0 `--na-prob-thresh`, chosen for probabilities.
_NO_ANSWER_THRESHOLD = 1.0

Scores = dict[str, float]


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Lower-cases a text and removes punctuation, articles and extra blanks."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def word_f1(prediction: str, answer: str, empty_matches: bool = False) -> float:
    """Computes the F1 of a prediction's words.

    Of two texts without words it is 0, or 1 with `empty_matches` (SQuAD 2.0).
    """
    predicted = normalize_answer(prediction).split()
    gold = normalize_answer(answer).split()
    if empty_matches and not (predicted or gold):
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
    """Describes missing and unknown identifiers in a prediction file.

    Questions without a prediction score 0; unknown identifiers are ignored.

    Raises:
      UserError: no question is answered, so the files do not belong together.
    """
    names = dict.fromkeys(question.identifier for question in questions)
    missing = [repr(name) for name in names if name not in predictions]
    if len(missing) == len(names):
        raise UserError(
            f"{path}: answers none of the {len(names)} questions; their ids "
            f"are {first_few(missing)}, and those in the file are "
            f"{first_few(list(map(repr, predictions))) or 'none'}."
        )
    unknown = [repr(name) for name in predictions if name not in names]
    lines = []
    if missing:
        lines.append(
            f"{path}: {len(missing)} of {len(names)} questions are unanswered "
            f"and will receive score 0: {first_few(missing)}."
        )
    if unknown:
        lines.append(
            f"{path}: {len(unknown)} ids belong to no question and are "
            f"ignored: {first_few(unknown)}."
        )
    return lines


def question_scores(
    question: Question, prediction: str, with_null: bool
) -> tuple[float, float]:
    """Computes exact match and F1 of one prediction, from 0 to 1.

    All scores of questions use this function. evaluate-v2.0 ignores gold
    answers without a word ("The"); if no other is left, the correct answer is
    none. evaluate-v1.1 uses every gold answer: against one without a word, a
    prediction without a word matches exactly and has an F1 of 0.

    Args:
      question: has at least one answer unless `with_null`.
      prediction: is empty for no answer.
      with_null: whether to score as SQuAD 2.0, otherwise as SQuAD 1.1.
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
    """Computes the scores of SQuAD 1.1: exact_match and f1, from 0 to 100.

    A question without a prediction scores 0.

    Raises:
      UserError: a question has no gold answer.
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
    """Computes the scores of SQuAD 2.0.

    The official script requires a prediction for every question; here a
    missing one scores 0.

    Args:
      questions: the questions.
      predictions: answers by identifier, empty for none.
      null_odds: how likely each question has no answer, by any measure, or
        None.
      threshold: null odds above which a prediction counts as empty.

    Returns:
      exact, f1 and total; the same of questions with an answer (HasAns_) and
      without (NoAns_), if there are any; with `null_odds` also best_exact,
      best_exact_thresh, best_f1 and best_f1_thresh. From 0 to 100.

    Raises:
      UserError: a predicted question has no null odds.
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
    """Returns the threshold of null odds with the highest F1.

    The answers are `Answers.best`, whatever their null odds are.

    Returns:
      best_f1_thresh of evaluate-v2.0. If it is best to answer nothing, which
      the script calls 0, a number below all odds.

    Raises:
      UserError: a predicted question has no null odds.
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
) -> tuple[Scores, Scores]:
    """Computes exact match and F1 of each question with a prediction."""
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
    """Returns the highest sum of scores and its threshold.

    evaluate-v2.0, `find_best_thresh`: starts with no answers and adds them in
    the order of their null odds.
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
    exact: Scores, f1: Scores, names: Sequence[str], prefix: str
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
    """Returns the null odds of the questions, checking that all have some."""
    for name in predictions:
        if name in has_answer and name not in null_odds:
            raise UserError(
                f"null odds: have none for the question {name!r}, which is "
                "answered; give the file of the same run."
            )
    return {k: v for k, v in null_odds.items() if k in has_answer}
