"""Fine-tunings without reports and plots, for tests that read none."""

import contextlib
import pathlib
import warnings
from collections.abc import Iterator

import pytest
import tensorflow as tf

from bert_tf.finetuning import head_start, measured, report_files
from bert_tf.report import figures
from bert_tf.text.tokenizer import GraphTokenizer


@contextlib.contextmanager
def quickly(graphs: bool = False) -> Iterator[None]:
    """Writes no report, model card or plot, and measures speeds of one batch.

    Args:
      graphs: whether to trace steps, which pays from about twenty steps on.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # tf.data's functions stay graphs.
        warnings.filterwarnings("ignore", "Even though the .tf.config")
        patch.setattr(report_files, "write_report", lambda *_: pathlib.Path())
        patch.setattr(report_files, "write_card", lambda *_: None)
        patch.setattr(figures, "write_learning_curve", lambda *_: None)
        patch.setattr(measured, "_TIMED_BATCHES", 1)
        patch.setattr(measured, "_TIMED_ROUNDS", 1)
        # Eager steps of a head, which test_few_rows.py takes to their end.
        patch.setattr(head_start, "_MOST_STEPS", 5)
        # Tokenizers are traced before their first call, also where they then
        # run eagerly.
        patch.setattr(GraphTokenizer, "_traced", lambda _, function: function)
        tf.config.run_functions_eagerly(not graphs)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(False)
