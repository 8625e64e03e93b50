"""MRPC: do two sentences say the same? F1 and accuracy."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    SentenceTask,
    accuracy,
    binary_f1,
    train_dev_test,
)

LABELS = ("0", "1")

TASK = SentenceTask(
    name="mrpc",
    data=GlueData(
        "MRPC",
        train_dev_test(
            ("#1 String", "#2 String"),
            "Quality",
            DataSet("mrpc", ("sentence1", "sentence2"), LABELS),
        ),
    ),
    labels=LABELS,
    scores={"f1": binary_f1, "accuracy": accuracy},
    main_metric="f1",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"f1": {"bert_base": 0.889, "bert_large": 0.893}},
    defaults=PAPER_RECIPE,
    submission_files={"test": "MRPC.tsv"},
    hub_data_set="nyu-mll/glue/mrpc",
)
