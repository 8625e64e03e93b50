"""The kinds of tasks that there are reports on."""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError
from bert_tf.finetuning.report.choices import CHOICES
from bert_tf.finetuning.report.kind import Kind
from bert_tf.finetuning.report.questions import QUESTIONS
from bert_tf.finetuning.report.sentences import SENTENCES
from bert_tf.finetuning.report.tags import TAGS

KINDS = (SENTENCES, QUESTIONS, CHOICES, TAGS)


def kind_of(line: Mapping[str, Any], place: str) -> Kind:
    """The kind that a line of dev_predictions.jsonl is of.

    Args:
      line: its object.
      place: file and line, for the error.

    Raises:
      UserError: it is of none, or of several.
    """
    found = [kind for kind in KINDS if kind.key in line]
    if len(found) != 1:
        keys = ", ".join(repr(kind.key) for kind in KINDS)
        raise UserError(
            f"{place}: holds {len(found) or 'none'} of the keys {keys}; a line "
            "holds one of them, by which its kind is known."
        )
    return found[0]
