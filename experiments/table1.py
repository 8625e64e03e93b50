"""Table 1: GLUE, from the model that --model names.

Devlin et al. 2019, section 4.1. Ours are scores of dev, the paper's of GLUE's
test sets, whose answers GLUE keeps.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning

COLUMNS = {
    "MNLI-m": ("mnli", "accuracy", "dev_matched"),
    "MNLI-mm": ("mnli", "accuracy", "dev_mismatched"),
    "QQP": ("qqp", "f1", ""),
    "QNLI": ("qnli", "accuracy", ""),
    "SST-2": ("sst2", "accuracy", ""),
    "CoLA": ("cola", "matthews", ""),
    "STS-B": ("stsb", "spearman", ""),
    "MRPC": ("mrpc", "f1", ""),
    "RTE": ("rte", "accuracy", ""),
}
BASE = (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4)
LARGE = (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1)

EXPERIMENT = Experiment(
    title="Table 1: GLUE",
    cells=[
        Cell(
            row="this model",
            column=column,
            run=Finetuning(task=task),
            score=score,
            split=split,
        )
        for column, (task, score, split) in COLUMNS.items()
    ],
    paper_rows={
        "BERT_BASE": dict(zip(COLUMNS, BASE, strict=True)),
        "BERT_LARGE": dict(zip(COLUMNS, LARGE, strict=True)),
    },
    notes=["Ours are scores of dev, the paper's of GLUE's test sets."],
)
