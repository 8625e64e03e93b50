"""Fine-tuning: all that a file in tasks/ needs, in one import.

    from bert_tf.finetuning import SentenceTask, accuracy

Names are loaded when first used, and none of those in a task's file brings
TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_tf.families.data.glue import (
        PAPER_RECIPE,
        DataSet,
        GlueData,
        GlueFile,
        train_dev_test,
    )
    from bert_tf.families.multiple_choice.files import SwagFiles
    from bert_tf.families.multiple_choice.task import (
        MultipleChoiceTask,
        UserChoiceTask,
    )
    from bert_tf.families.question_answering.task import QuestionAnsweringTask
    from bert_tf.families.question_answering.user_questions import (
        UserQuestionAnsweringTask,
    )
    from bert_tf.families.text_classification.kinds import (
        MultiLabelTask,
        RegressionTask,
        SentenceTask,
        UserFileTask,
    )
    from bert_tf.families.text_classification.metrics import (
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
    from bert_tf.families.token_classification.task import (
        ConllFolder,
        FeatureTaggingTask,
        TokenClassificationTask,
        UserTokenClassificationTask,
    )

_ROOM = "bert_tf.families"
_HOME = {
    "ConllFolder": "token_classification.task",
    "DataSet": "data.glue",
    "FeatureTaggingTask": "token_classification.task",
    "GlueData": "data.glue",
    "GlueFile": "data.glue",
    "MultiLabelTask": "text_classification.kinds",
    "MultipleChoiceTask": "multiple_choice.task",
    "PAPER_RECIPE": "data.glue",
    "QuestionAnsweringTask": "question_answering.task",
    "RegressionTask": "text_classification.kinds",
    "SentenceTask": "text_classification.kinds",
    "SwagFiles": "multiple_choice.files",
    "TokenClassificationTask": "token_classification.task",
    "UserChoiceTask": "multiple_choice.task",
    "UserFileTask": "text_classification.kinds",
    "UserQuestionAnsweringTask": "question_answering.user_questions",
    "UserTokenClassificationTask": "token_classification.task",
    "accuracy": "text_classification.metrics",
    "binary_f1": "text_classification.metrics",
    "label_macro_f1": "text_classification.metrics",
    "label_micro_f1": "text_classification.metrics",
    "macro_f1": "text_classification.metrics",
    "matthews": "text_classification.metrics",
    "pearson": "text_classification.metrics",
    "spearman": "text_classification.metrics",
    "subset_accuracy": "text_classification.metrics",
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
    "UserQuestionAnsweringTask",
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
