"""CoLA: is a sentence grammatical? Matthews' correlation."""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    GlueFile,
    SentenceTask,
    matthews,
)

LABELS = ("0", "1")
DATA_SET = DataSet("cola", ("sentence",), LABELS)


def _labelled_file(name: str, split: str) -> GlueFile:
    # Four columns without a header: source, label, the author's mark, sentence.
    return GlueFile(name, ("3",), "1", DATA_SET, split, header=False)


TASK = SentenceTask(
    name="cola",
    data=GlueData(
        "CoLA",
        {
            "train": _labelled_file("train.tsv", "train"),
            "dev": _labelled_file("dev.tsv", "validation"),
            "test": GlueFile("test.tsv", ("sentence",), None, DATA_SET, "test"),
        },
    ),
    labels=LABELS,
    scores={"matthews": matthews},
    main_metric="matthews",
    # Devlin et al. 2019, table 1: GLUE's test set.
    paper={"matthews": {"bert_base": 0.521, "bert_large": 0.605}},
    defaults=PAPER_RECIPE,
    submission_files={"test": "CoLA.tsv"},
    hub_data_set="nyu-mll/glue/cola",
)
