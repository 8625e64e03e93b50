"""The settings of tasks on a sentence or a pair."""

import dataclasses

from bert_tf.finetuning.recipe import TableRecipe
from bert_tf.recipe import setting

LONG_INPUTS = ("cut", "windows")


@dataclasses.dataclass(frozen=True)
class SentenceRecipe(TableRecipe):
    """What tasks on a sentence or a pair add."""

    long_inputs: str = setting(
        "cut",
        "inputs above max_seq_length: cut, or read through overlapping "
        "windows whose logits are averaged",
    )
    doc_stride: int = setting(
        64, "tokens from the start of a window to that of the next"
    )
    class_weights: str = setting(
        "",
        "weights of the classes in the loss: balanced, or a number for each "
        "label in order, comma-separated",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.long_inputs in LONG_INPUTS
        self._check("long_inputs", known, LONG_INPUTS)
        self._check("doc_stride", self.doc_stride >= 1, "1 or more")
