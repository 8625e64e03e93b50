"""Configuration of question answering, as task.json stores it."""

import dataclasses
from typing import Any, ClassVar, Self

from bert_tf.checkpoints import SPAN
from bert_tf.families.config import HeadInFolder, TaskConfig
from bert_tf.families.usage_options import QUESTION_ANSWERING

# run_squad.py `is_whitespace`: separators of words in a context. Other blanks,
# such as U+00A0, belong to words.
BLANKS = " \t\r\n\u202f"
# Defaults of google-research/bert, run_squad.py, which most models use.
_LONGEST_WINDOW, _DOC_STRIDE = 384, 128
_MAX_QUERY_LENGTH, _MAX_ANSWER_LENGTH, _N_BEST_SIZE = 64, 30, 20


@dataclasses.dataclass(frozen=True)
class QuestionAnsweringConfig(TaskConfig):
    """Configuration of a span model; see `SpanRecipe`.

    Attributes:
      doc_stride: tokens from the start of a window to that of the next.
      max_query_length: tokens of the longest question.
      max_answer_length: tokens of the longest answer.
      n_best_size: answers to a question.
      with_null: whether a question may have no answer.
      null_threshold: null odds above which a question has no answer.
    """

    doc_stride: int
    max_query_length: int
    max_answer_length: int
    n_best_size: int
    with_null: bool
    # Models of different thresholds can be averaged. The default is that of
    # run_squad.py, `--null_score_diff_threshold`.
    null_threshold: float = dataclasses.field(default=0.0, compare=False)

    pipeline_tag: ClassVar[str] = "question-answering"
    builder: ClassVar[str] = "bert_span_labeler"
    head: ClassVar[str] = SPAN
    texts_per_row: ClassVar[int] = 2
    tasks: ClassVar[tuple[str, ...]] = (QUESTION_ANSWERING,)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Returns a config with run_squad.py's lengths, if they fit.

        For a folder that has no task.json.
        """
        task = QUESTION_ANSWERING
        head.refuse(task, "labels")
        length = head.length(2, 2)
        if head.options.max_seq_length is None:
            length = min(length, _LONGEST_WINDOW)
        room = length - head.tokenizer.packing.num_special(2)
        threshold = head.options.threshold
        return cls(
            task=task,
            labels=(),
            max_seq_length=length,
            # A third of a window, as of 384 tokens.
            doc_stride=max(min(_DOC_STRIDE, length // 3), 1),
            max_query_length=min(_MAX_QUERY_LENGTH, room // 2),
            max_answer_length=_MAX_ANSWER_LENGTH,
            n_best_size=_N_BEST_SIZE,
            with_null=threshold is not None,
            null_threshold=float(threshold or 0),
        )

    def sample(self) -> dict[str, Any]:
        """Returns a question and its context."""
        return {"question": "Who came?", "context": "Ada came."}

    def summary(self) -> dict[str, Any]:
        """Returns the threshold, if there is one."""
        return {"threshold": self.null_threshold} if self.with_null else {}
