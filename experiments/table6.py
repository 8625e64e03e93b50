"""Table 6: what the size of the model contributes.

Devlin et al. 2019, section 5.2: layers, hidden size and heads; the perplexity
is that of masked tokens of held-out documents, the scores are of dev.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning, Pretraining

PAPER = {
    "3/768/12": (5.84, 77.9, 79.8, 88.4),
    "6/768/3": (5.24, 80.6, 82.2, 90.7),
    "6/768/12": (4.68, 81.9, 84.8, 91.3),
    "12/768/12": (3.99, 84.4, 86.7, 92.9),
    "12/1024/16": (3.54, 85.7, 86.9, 93.3),
    "24/1024/16": (3.23, 86.6, 87.8, 93.7),
}
PERPLEXITY = "LM (perplexity)"
TASKS = {"MNLI-m": "mnli", "MRPC": "mrpc", "SST-2": "sst2"}


def cells(size: str, papers: tuple[float, ...]) -> list[Cell]:
    """The row of a size."""
    model = Pretraining(size=size)
    perplexity = Cell(
        row=size,
        column=PERPLEXITY,
        run=model,
        score="masked_lm_perplexity",
        factor=1.0,
        paper=papers[0],
    )
    return [perplexity] + [
        Cell(
            row=size,
            column=column,
            run=Finetuning(task=task, model=model),
            score="accuracy",
            paper=paper,
        )
        for (column, task), paper in zip(TASKS.items(), papers[1:], strict=True)
    ]


EXPERIMENT = Experiment(
    title="Table 6: ablation over the size of the model",
    cells=[cell for row in PAPER.items() for cell in cells(*row)],
    reference="12/768/12",
    against=PERPLEXITY,
    lower_is_better=[PERPLEXITY],
    notes=["Rows are layers/hidden size/heads of the paper."],
)
