"""WNLI: what does a pronoun stand for? Accuracy.

The paper leaves it out: the dev set is built against the training set, so that
a fair model is wrong more often than not.
"""

from bert_tf.finetuning.data.glue import PAPER_RECIPE, GlueData, train_dev_test
from bert_tf.finetuning.data.glue_datasets import DataSet
from bert_tf.finetuning.kinds.metrics import accuracy
from bert_tf.finetuning.kinds.sentence_task import SentenceTask

TEXTS = ("sentence1", "sentence2")
LABELS = ("0", "1")

TASK = SentenceTask(
    name="wnli",
    data=GlueData(
        "WNLI", train_dev_test(TEXTS, "label", DataSet("wnli", TEXTS, LABELS))
    ),
    labels=LABELS,
    scores={"accuracy": accuracy},
    main_metric="accuracy",
    defaults=PAPER_RECIPE,
    submission_files={"test": "WNLI.tsv"},
)
