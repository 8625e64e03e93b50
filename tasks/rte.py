"""RTE: does a sentence follow from another? Accuracy."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    SentenceTask,
    accuracy,
    train_dev_test,
)

TEXTS = ("sentence1", "sentence2")
LABELS = ("entailment", "not_entailment")

TASK = SentenceTask(
    name="rte",
    data=GlueData(
        "RTE", train_dev_test(TEXTS, "label", DataSet("rte", TEXTS, LABELS))
    ),
    labels=LABELS,
    scores={"accuracy": accuracy},
    main_metric="accuracy",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"accuracy": {"bert_base": 0.664, "bert_large": 0.701}},
    defaults=PAPER_RECIPE,
    submission_files={"test": "RTE.tsv"},
    hub_data_set="nyu-mll/glue/rte",
)
