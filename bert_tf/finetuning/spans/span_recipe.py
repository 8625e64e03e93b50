"""The settings of tasks that answer questions by a span of a text."""

import dataclasses

from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.recipe import setting


@dataclasses.dataclass(frozen=True)
class SpanRecipe(FinetuningRecipe):
    """What tasks on questions add."""

    data_dir: str = setting("", "folder that the files' names begin in")
    train_file: str = setting(
        "", "file to train on, laid out as SQuAD's; empty is the official name"
    )
    dev_file: str = setting("", "file to evaluate on, likewise")
    test_file: str = setting(
        "", "file to predict, answers or not; empty is the dev file"
    )
    max_seq_length: int = setting(384, "longest window in tokens")
    doc_stride: int = setting(
        128, "tokens from the start of a window to that of the next"
    )
    max_query_length: int = setting(64, "longest question in tokens")
    max_answer_length: int = setting(30, "longest answer in tokens")
    n_best_size: int = setting(
        20, "answers kept to a question; starts and ends tried in a window"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "doc_stride",
            "max_query_length",
            "max_answer_length",
            "n_best_size",
        ):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        # [CLS], two [SEP] and a token of the context.
        least = self.max_query_length + 4
        self._check(
            "max_seq_length",
            self.max_seq_length >= least,
            f"{least} or more, so that a context fits beside a question of "
            f"max_query_length={self.max_query_length}",
        )
