"""Fine-tuning: all that a file in tasks/ needs, in one import.

    from bert_tf.finetuning import SentenceTask, accuracy

Names are loaded when first used, and none of those in a task's file brings
TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_tf.finetuning.choices.choice_data import SwagFiles
    from bert_tf.finetuning.choices.choice_task import (
        MultipleChoiceTask,
        UserChoiceTask,
    )
    from bert_tf.finetuning.data.glue import (
        PAPER_RECIPE,
        DataSet,
        GlueData,
        GlueFile,
        train_dev_test,
    )
    from bert_tf.finetuning.kinds.metrics import (
        accuracy,
        binary_f1,
        label_macro_f1,
        label_micro_f1,
        macro_f1,
        matthews,
        pearson,
        spearman,
        subset_accuracy,
    )
    from bert_tf.finetuning.kinds.multi_label_task import MultiLabelTask
    from bert_tf.finetuning.kinds.own_file import UserFileTask
    from bert_tf.finetuning.kinds.regression_task import RegressionTask
    from bert_tf.finetuning.kinds.sentence_task import SentenceTask
    from bert_tf.finetuning.question_answering.task import QuestionAnsweringTask
    from bert_tf.finetuning.token_classification.task import (
        ConllFolder,
        FeatureTaggingTask,
        TokenClassificationTask,
        UserTokenClassificationTask,
    )

_ROOM = "bert_tf.finetuning"
_HOME = {
    "ConllFolder": "token_classification.task",
    "DataSet": "data.glue",
    "FeatureTaggingTask": "token_classification.task",
    "GlueData": "data.glue",
    "GlueFile": "data.glue",
    "MultiLabelTask": "kinds.multi_label_task",
    "MultipleChoiceTask": "choices.choice_task",
    "PAPER_RECIPE": "data.glue",
    "QuestionAnsweringTask": "question_answering.task",
    "RegressionTask": "kinds.regression_task",
    "SentenceTask": "kinds.sentence_task",
    "SwagFiles": "choices.choice_data",
    "TokenClassificationTask": "token_classification.task",
    "UserChoiceTask": "choices.choice_task",
    "UserFileTask": "kinds.own_file",
    "UserTokenClassificationTask": "token_classification.task",
    "accuracy": "kinds.metrics",
    "binary_f1": "kinds.metrics",
    "label_macro_f1": "kinds.metrics",
    "label_micro_f1": "kinds.metrics",
    "macro_f1": "kinds.metrics",
    "matthews": "kinds.metrics",
    "pearson": "kinds.metrics",
    "spearman": "kinds.metrics",
    "subset_accuracy": "kinds.metrics",
    "train_dev_test": "data.glue",
}

# A type checker reads the imports above and this list, and no table.
__all__ = [
    "ConllFolder",
    "DataSet",
    "FeatureTaggingTask",
    "GlueData",
    "GlueFile",
    "MultiLabelTask",
    "MultipleChoiceTask",
    "PAPER_RECIPE",
    "QuestionAnsweringTask",
    "RegressionTask",
    "SentenceTask",
    "SwagFiles",
    "TokenClassificationTask",
    "UserChoiceTask",
    "UserFileTask",
    "UserTokenClassificationTask",
    "accuracy",
    "binary_f1",
    "label_macro_f1",
    "label_micro_f1",
    "macro_f1",
    "matthews",
    "pearson",
    "spearman",
    "subset_accuracy",
    "train_dev_test",
]


if not TYPE_CHECKING:  # A type checker would allow any name.

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}"
            )
        module = importlib.import_module(f"{_ROOM}.{_HOME[name]}")
        value = getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
