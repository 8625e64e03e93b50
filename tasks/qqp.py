"""QQP: do two questions ask the same? F1 and accuracy."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    SentenceTask,
    accuracy,
    binary_f1,
    train_dev_test,
)

TEXTS = ("question1", "question2")
LABELS = ("0", "1")

TASK = SentenceTask(
    name="qqp",
    data=GlueData(
        "QQP",
        train_dev_test(TEXTS, "is_duplicate", DataSet("qqp", TEXTS, LABELS)),
    ),
    labels=LABELS,
    scores={"f1": binary_f1, "accuracy": accuracy},
    main_metric="f1",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"f1": {"bert_base": 0.712, "bert_large": 0.721}},
    # The official files have a few cut rows and a few empty questions.
    defaults={**PAPER_RECIPE, "bad_rows": "skip", "empty_text": "keep"},
    submission_files={"test": "QQP.tsv"},
    hub_data_set="nyu-mll/glue/qqp",
)
