"""QNLI: does a sentence hold the answer to a question? Accuracy."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    SentenceTask,
    accuracy,
    train_dev_test,
)

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
    hub_data_set="nyu-mll/glue/qnli",
)
