"""WNLI: what does a pronoun stand for? Accuracy.

The paper excludes it: the dev set is adversarial to the training set, so that a
sound model is wrong more often than right.
"""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    SentenceTask,
    accuracy,
    train_dev_test,
)

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
    hub_data_set="nyu-mll/glue/wnli",
)
