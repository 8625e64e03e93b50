"""Explanations of an answer, or of no answer."""

import tensorflow as tf

from bert_tf.errors import UserError, excerpt
from bert_tf.families.explained import (
    Forward,
    Subject,
    Target,
    TokenizedTexts,
    encoder_inputs,
    log_odds,
    subject_of_rows,
)
from bert_tf.families.question_answering.answers import SpanModel
from bert_tf.families.text_model import Answer, InputRow
from bert_tf.text.layout import most_context, take


def subject_of(
    served: SpanModel, row: InputRow, answer: Answer, target: Target
) -> Subject:
    """Returns what is explained of an answer: log odds of start plus end.

    The target is a text of the context, or "" for no answer; None is the
    model's answer.

    Raises:
      UserError: the context does not have the target.
    """
    context = row["context"]
    first = TokenizedTexts.of(served, {"question": row["question"]})
    second = TokenizedTexts.of(served, {"context": context}, len(first.words))
    windows, *rows = served.rows(first.tokens, second.tokens)
    if not len(windows.text):
        raise UserError("`context`: no word that could be explained.")
    start, end = answer["start"], answer["end"]
    if target is not None:
        start = context.find(str(target)) if target else -1
        end = start + len(str(target))
    if start < 0 and target:
        raise UserError(
            f"`target`={excerpt(target)}: is not in `context`; give an answer "
            'that is, or "" for there being none.'
        )
    if start < 0:
        # The window where no answer is least likely decides.
        inputs = encoder_inputs(served, rows)
        logits = Forward(served.model).in_blocks(inputs)
        window = int(tf.argmin(tf.reduce_sum(logits[:, 0], -1)))
        positions = 0, 0
    else:
        begin, stop = second.range_of(start, end)
        own_begin, own_end = most_context(windows)
        owned = (windows.offset + own_begin <= begin) & (
            begin < windows.offset + own_end
        )
        window = int(tf.argmax(owned))
        if stop > int((windows.offset + windows.count)[window]):
            raise UserError(
                f"`target`={excerpt(target)}: is longer than what the model "
                "reads at a time."
            )
        before = served.tokenizer.packing.before_second(rows[0].count)
        shift = int((before - windows.offset)[window])
        positions = begin + shift, stop - 1 + shift

    def measure(logits: tf.Tensor) -> tf.Tensor:
        starts, ends = tf.unstack(logits[:, 0], axis=-1)
        return log_odds(starts, positions[0]) + log_odds(ends, positions[1])

    return subject_of_rows(
        served,
        [first, second],
        [take(texts, tf.constant([window])) for texts in rows],
        context[start:end] if start >= 0 else "no answer",
        measure,
    )
