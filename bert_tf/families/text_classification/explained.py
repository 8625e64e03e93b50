"""What is explained of an answer of this family: a number, and its words."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError, did_you_mean
from bert_tf.families.explained import (
    LOG_ODDS,
    SCORE,
    Subject,
    Target,
    TokenizedTexts,
    check_others,
    log_odds,
    subject_of_rows,
)
from bert_tf.families.text_classification.answers import (
    SentenceModel,
    text_answers,
)
from bert_tf.families.text_model import Answer
from bert_tf.families.words import WordFinder


def subject_of(
    served: SentenceModel,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    """The label or score to explain; see `LoadedModel.explain`.

    Raises:
      UserError: the target is none of the model's.
    """
    names = served.columns
    find_words = WordFinder(served.tokenizer)
    first = TokenizedTexts(served.tokenizer, find_words, {"text": row["text"]})
    second = None
    if len(names) == 2:
        second = TokenizedTexts(
            served.tokenizer,
            find_words,
            {"text_b": row["text_b"]},
            len(first.words),
        )
    _, *rows = served.rows(first.tokens, second.tokens if second else None)
    labels = served.labels
    if not labels:
        if target is not None:
            raise UserError(
                f"`target`={target}: this model gives a score and has no "
                "labels; leave it out."
            )

        def measure(logits: tf.Tensor) -> tf.Tensor:
            means = tf.reduce_mean(logits, 1)
            return text_answers(means, served.usage, served.activation)["score"]

        return subject_of_rows(
            served, first, second, rows, SCORE, SCORE, measure
        )
    probabilities = answer["probabilities"]
    label = max(probabilities, key=probabilities.__getitem__)
    if target is not None:
        label = str(target)
    if label not in labels:
        raise UserError(
            f"`target`={label}: is no label of this model; they are "
            f"{', '.join(labels)}.{did_you_mean(label, labels, repr)}"
        )
    number = labels.index(label)
    if served.threshold is None:
        check_others(len(labels))

    def measure_label(logits: tf.Tensor) -> tf.Tensor:
        # Over the windows of a long text.
        logits = tf.reduce_mean(logits, 1)
        if served.threshold is not None:
            return logits[:, number]
        return log_odds(logits, number)

    return subject_of_rows(
        served, first, second, rows, label, LOG_ODDS, measure_label
    )
