"""Explanations of a chosen text."""

import tensorflow as tf

from bert_tf.errors import UserError, excerpt
from bert_tf.families.explained import (
    Subject,
    Target,
    TokenizedTexts,
    check_others,
    log_odds,
    subject_of_rows,
)
from bert_tf.families.multiple_choice.answers import ChoiceModel
from bert_tf.families.text_model import Answer, InputRow


def subject_of(
    served: ChoiceModel, row: InputRow, answer: Answer, target: Target
) -> Subject:
    """Returns what is explained of a choice: the log odds of its score.

    The target is a choice by number or text; None is the model's choice.

    Raises:
      UserError: the target is not one of the choices.
    """
    # Empty choices are padding.
    choices = {n: each for n, each in enumerate(row["choices"]) if each}
    number = answer["choice"] if target is None else target
    if isinstance(number, str):
        numbers = {each: n for n, each in reversed(choices.items())}
        is_number = number not in numbers and number.isdecimal()
        number = int(number) if is_number else numbers.get(number, number)
    if number not in choices:
        raise UserError(
            f"`target`={excerpt(target)}: is no choice; give the number of "
            "one, from 0, or its text."
        )
    check_others(len(choices))
    index = list(choices).index(number)
    start = f"{row['start']} " if "start" in row else ""
    endings = {f"choices[{n}]": start + each for n, each in choices.items()}
    first = TokenizedTexts.of(served, {"text": row["text"]})
    second = TokenizedTexts.of(served, endings, len(first.words))
    rows = served.rows(*(tf.constant([row[name]]) for name in served.columns))

    def measure(logits: tf.Tensor) -> tf.Tensor:
        return log_odds(logits[:, :, 0], index)

    return subject_of_rows(
        served,
        [first, second],
        (rows.first, rows.second),
        choices[number],
        measure,
    )
