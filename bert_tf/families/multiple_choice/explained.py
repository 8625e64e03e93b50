"""What is explained of an answer of this family: a number, and its words."""

from collections.abc import Mapping
from typing import Any

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
from bert_tf.families.text_model import Answer


def subject_of(
    served: ChoiceModel,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    """The choice to explain; see `LoadedModel.explain`.

    Raises:
      UserError: the target is none of the model's.
    """
    # "" stands for no choice.
    given = {n: each for n, each in enumerate(row["choices"]) if each}
    number = answer["choice"] if target is None else target
    if isinstance(number, str):
        texts = {each: n for n, each in reversed(given.items())}
        is_number = number not in texts and number.isdecimal()
        number = int(number) if is_number else texts.get(number, number)
    if number not in given:
        raise UserError(
            f"`target`={excerpt(target)}: is no choice; give the number of "
            "one, from 0, or its text."
        )
    check_others(len(given))
    place = list(given).index(number)
    start = f"{row['start']} " if "start" in row else ""
    endings = {f"choices[{n}]": start + each for n, each in given.items()}
    first = TokenizedTexts(served, {"text": row["text"]})
    second = TokenizedTexts(served, endings, len(first.words))
    columns = (tf.constant([row[name]]) for name in served.columns)
    rows = served.rows(*columns)

    def measure(logits: tf.Tensor) -> tf.Tensor:
        return log_odds(logits[:, :, 0], place)

    return subject_of_rows(
        served,
        [first, second],
        (rows.first, rows.second),
        given[number],
        measure,
    )
