"""QNLI: does a sentence hold the answer to a question? Accuracy."""

from bert_tf.finetuning.data.glue import PAPER_RECIPE, GlueData, train_dev_test
from bert_tf.finetuning.data.glue_datasets import DataSet
from bert_tf.finetuning.kinds.metrics import accuracy
from bert_tf.finetuning.kinds.sentence_task import SentenceTask

TEXTS = ("question", "sentence")
LABELS = ("entailment", "not_entailment")

TASK = SentenceTask(
    name="qnli",
    data=GlueData(
        "QNLI", train_dev_test(TEXTS, "label", DataSet("qnli", TEXTS, LABELS))
    ),
    labels=LABELS,
    scores={"accuracy": accuracy},
    main_metric="accuracy",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"accuracy": {"bert_base": 0.905, "bert_large": 0.927}},
    defaults=PAPER_RECIPE,
    submission_files={"test": "QNLI.tsv"},
)
