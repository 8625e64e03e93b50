"""What is explained of the answer of a text classifier."""

import tensorflow as tf

from bert_tf.errors import UserError, did_you_mean
from bert_tf.families.explained import (
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
from bert_tf.families.text_model import Answer, InputRow


def subject_of(
    served: SentenceModel, row: InputRow, answer: Answer, target: Target
) -> Subject:
    """Returns the label or score to explain; see `LoadedModel.explain`.

    Raises:
      UserError: the model has no such label.
    """
    first = TokenizedTexts.of(served, {"text": row["text"]})
    texts = [first]
    if len(served.columns) == 2:
        text_b = {"text_b": row["text_b"]}
        texts.append(TokenizedTexts.of(served, text_b, len(first.words)))
    _, *rows = served.rows(*(each.tokens for each in texts))
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

        return subject_of_rows(served, texts, rows, SCORE, measure, SCORE)
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
        # The mean over the windows of a long text.
        logits = tf.reduce_mean(logits, 1)
        if served.threshold is not None:
            return logits[:, number]
        return log_odds(logits, number)

    return subject_of_rows(served, texts, rows, label, measure_label)
