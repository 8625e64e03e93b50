"""Questions with their answers as JSON lines, of which the report is made."""

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_tf.files import write_text
from bert_tf.finetuning.spans.squad_file import Question
from bert_tf.finetuning.spans.squad_metrics import question_scores

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.spans.answers import Answers

# Of the best answers, those that the report shows.
_SHOWN_BEST = 3


def write_answer_lines(
    path: str | os.PathLike,
    questions: Sequence[Question],
    answers: "Answers",
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
        exact, f1 = question_scores(question, text, odds is not None)
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
