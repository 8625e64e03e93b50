"""MNLI: does a sentence follow from another, or contradict it? Accuracy.

Two dev and two test sets, of the genres trained on (matched) and of others
(mismatched), and GLUE's diagnostic set, whose answers GLUE keeps.
"""

from bert_tf.finetuning import (
    PAPER_RECIPE,
    DataSet,
    GlueData,
    GlueFile,
    SentenceTask,
    accuracy,
)

TEXTS = ("sentence1", "sentence2")


def _data_set(name: str) -> DataSet:
    labels = ("entailment", "neutral", "contradiction")
    return DataSet(name, ("premise", "hypothesis"), labels)


def _file(name: str, split: str, label: str | None) -> GlueFile:
    return GlueFile(f"{name}.tsv", TEXTS, label, _data_set("mnli"), split)


TASK = SentenceTask(
    name="mnli",
    data=GlueData(
        "MNLI",
        {
            "train": _file("train", "train", "gold_label"),
            "dev_matched": _file(
                "dev_matched", "validation_matched", "gold_label"
            ),
            "dev_mismatched": _file(
                "dev_mismatched", "validation_mismatched", "gold_label"
            ),
            "test_matched": _file("test_matched", "test_matched", None),
            "test_mismatched": _file(
                "test_mismatched", "test_mismatched", None
            ),
            "diagnostic": GlueFile(
                "diagnostic.tsv",
                TEXTS,
                None,
                _data_set("ax"),
                "test",
                folder="diagnostic",
            ),
        },
    ),
    # In the order of google-research/bert, run_classifier.py.
    labels=("contradiction", "entailment", "neutral"),
    scores={"accuracy": accuracy},
    main_metric="accuracy",
    # Devlin et al. 2019, table 1: GLUE's test sets.
    paper={
        "accuracy": {"bert_base": 0.846, "bert_large": 0.867},
        "accuracy_mismatched": {"bert_base": 0.834, "bert_large": 0.859},
    },
    defaults=PAPER_RECIPE,
    dev_splits=("dev_matched", "dev_mismatched"),
    test_splits=("test_matched", "test_mismatched", "diagnostic"),
    submission_files={
        "test_matched": "MNLI-m.tsv",
        "test_mismatched": "MNLI-mm.tsv",
        "diagnostic": "AX.tsv",
    },
    hub_data_set="nyu-mll/glue/mnli",
)
