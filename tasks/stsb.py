"""STS-B: how alike are two sentences, from 0 to 5? Correlations."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    RegressionTask,
    pearson,
    spearman,
    train_dev_test,
)

TEXTS = ("sentence1", "sentence2")

TASK = RegressionTask(
    name="stsb",
    data=GlueData(
        "STS-B", train_dev_test(TEXTS, "score", DataSet("stsb", TEXTS))
    ),
    scores={"pearson": pearson, "spearman": spearman},
    main_metric="spearman",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"spearman": {"bert_base": 0.858, "bert_large": 0.865}},
    defaults=PAPER_RECIPE,
    value_range=(0.0, 5.0),
    submission_files={"test": "STS-B.tsv"},
    hub_data_set="nyu-mll/glue/stsb",
)
