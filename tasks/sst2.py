"""SST-2: is a piece of a film review positive? Accuracy."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    SentenceTask,
    accuracy,
    train_dev_test,
)

TEXTS = ("sentence",)
LABELS = ("0", "1")

TASK = SentenceTask(
    name="sst2",
    data=GlueData(
        "SST-2", train_dev_test(TEXTS, "label", DataSet("sst2", TEXTS, LABELS))
    ),
    labels=LABELS,
    scores={"accuracy": accuracy},
    main_metric="accuracy",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"accuracy": {"bert_base": 0.935, "bert_large": 0.949}},
    defaults=PAPER_RECIPE,
    submission_files={"test": "SST-2.tsv"},
    hub_data_set="nyu-mll/glue/sst2",
)
