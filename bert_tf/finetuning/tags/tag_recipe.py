"""The settings of tasks that tag words."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.token_classification.conll_files import (
    UNMARKED,
    ConllLayout,
)
from bert_tf.recipe import setting
from bert_tf.training.recipe import LARGEST_SEED

CONTEXTS = ("document", "sentence")


@dataclasses.dataclass(frozen=True)
class TagRecipe(FinetuningRecipe):
    """What tasks on tagged words add."""

    data_dir: str = setting("", "folder of the task's files")
    context: str = setting(
        "document",
        "what a row shows: the sentence amid as much of its document as there "
        "is room for, or the sentence alone",
    )
    doc_stride: int = setting(
        0,
        "sentences longer than a row: tokens from the start of a window to "
        "that of the next; 0 = half of a window",
    )
    token_column: int = setting(
        0, "column of the word, from 0, or from -1 backwards"
    )
    tag_column: int = setting(-1, "column of the tag, likewise")
    comment: str = setting(
        "", "what lines before a sentence begin with that are passed over"
    )
    unmarked: str = setting(
        "sentences",
        "what a document is in a file without -DOCSTART- lines: each of the "
        "sentences, or the whole file",
    )
    score_test: bool = setting(
        False,
        "the test file has tags: score it too, when training ends and by "
        "eval; the best model is chosen by dev alone",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("context", self.context in CONTEXTS, CONTEXTS)
        self._check("doc_stride", self.doc_stride >= 0, "0 or more")
        self._check("unmarked", self.unmarked in UNMARKED, UNMARKED)

    def layout(self, tagged: bool = True) -> ConllLayout:
        """How the files are laid out.

        Args:
          tagged: whether their tags are to be read.
        """
        return ConllLayout(
            token_column=self.token_column,
            tag_column=self.tag_column if tagged else None,
            comment=self.comment,
            unmarked=self.unmarked,
            encoding_errors=self.encoding_errors,
        )


@dataclasses.dataclass(frozen=True)
class OwnTagRecipe(TagRecipe):
    """What a task on own files adds: the files and how to split them."""

    data_dir: str = setting("", "folder that the files' names begin in")
    train_file: str = setting(
        "", "own file to train on: a word and its tag a line, or .gz of that"
    )
    dev_file: str = setting(
        "", "own file to evaluate on; empty splits it off the training file"
    )
    test_file: str = setting(
        "", "own file to predict; needs no tags, unless score_test is set"
    )
    dev_share: float = setting(
        0.1, "share of the training sentences that becomes dev"
    )
    dev_seed: int = setting(12345, "seed of that split, the same for all seeds")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("dev_share", 0 < self.dev_share < 1, "above 0, below 1")
        good = 0 <= self.dev_seed <= LARGEST_SEED
        self._check("dev_seed", good, f"0 to {LARGEST_SEED}")
        if self.score_test and not self.test_file:
            raise UserError(
                "score_test=True: there is nothing to score; name the file "
                "with test_file."
            )
