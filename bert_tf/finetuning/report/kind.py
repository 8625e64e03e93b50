"""What a report knows of a kind of task."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_tf.finetuning.recipe import FinetuningRecipe

NUM_MISTAKES = 20
PAPER_ON_DEV = (
    "BERT base and BERT large are the published numbers of Devlin et al. 2019 "
    "on the official dev set, or on the test set where it says so."
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task, told by the lines of dev_predictions.jsonl.

    Attributes:
      key: a key of its lines that no other kind has.
      read: checks the object of a line; takes it, results.json, and file and
        line for errors.
      numbers: what the rows show, for report.json; takes what `read` returned
        of each line, and results.json.
      sections: parts of the page; takes what `report_numbers` returns.
      recipes: together they have the settings of all tasks of the kind.
      unit: what an example is called.
      baseline: what the baseline does, in words; takes the labels.
      published: what the paper's numbers are, in a few words.
      paper_note: the same in a sentence.
      threshold: what the threshold of results.json is, where there is one.
    """

    key: str
    read: Callable[[Mapping[str, Any], Mapping[str, Any], str], Any]
    numbers: Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]]
    sections: Callable[[Mapping[str, Any]], list[str]]
    recipes: tuple[type[FinetuningRecipe], ...]
    unit: str
    baseline: Callable[[Sequence[str]], str]
    published: str
    paper_note: str
    threshold: str = ""
