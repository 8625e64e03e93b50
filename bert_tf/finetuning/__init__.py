"""Public names for task files (tasks/*.py).

    from bert_tf.finetuning import SentenceTask, accuracy

Names are imported on first use, and none of them imports TensorFlow.
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
    from bert_tf.families.data.scores import pearson, spearman
    from bert_tf.families.multiple_choice.files import SwagFiles
    from bert_tf.families.multiple_choice.task import (
        MultipleChoiceTask,
        UserChoiceTask,
    )
    from bert_tf.families.question_answering.task import QuestionAnsweringTask
    from bert_tf.families.question_answering.user_questions import (
        UserQuestionAnsweringTask,
    )
    from bert_tf.families.sentence_embedding.task import UserEmbeddingTask
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
        subset_accuracy,
    )
    from bert_tf.families.text_classification.ranking import UserRankingTask
    from bert_tf.families.token_classification.task import (
        ConllFolder,
        FeatureTaggingTask,
        TokenClassificationTask,
        UserTokenClassificationTask,
    )

_MODULES = {
    "data.scores": "pearson spearman",
    "data.glue": "DataSet GlueData GlueFile PAPER_RECIPE train_dev_test",
    "multiple_choice.files": "SwagFiles",
    "multiple_choice.task": "MultipleChoiceTask UserChoiceTask",
    "question_answering.task": "QuestionAnsweringTask",
    "question_answering.user_questions": "UserQuestionAnsweringTask",
    "sentence_embedding.task": "UserEmbeddingTask",
    "text_classification.kinds": (
        "MultiLabelTask RegressionTask SentenceTask UserFileTask"
    ),
    "text_classification.metrics": (
        "accuracy binary_f1 label_macro_f1 label_micro_f1 macro_f1 matthews "
        "subset_accuracy"
    ),
    "text_classification.ranking": "UserRankingTask",
    "token_classification.task": (
        "ConllFolder FeatureTaggingTask TokenClassificationTask "
        "UserTokenClassificationTask"
    ),
}
_HOME = {
    name: f"bert_tf.families.{module}"
    for module, names in _MODULES.items()
    for name in names.split()
}

# Type checkers read the imports above and this list.
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
    "UserEmbeddingTask",
    "UserFileTask",
    "UserQuestionAnsweringTask",
    "UserRankingTask",
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


if not TYPE_CHECKING:  # Otherwise type checkers would allow any name.

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}"
            )
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
