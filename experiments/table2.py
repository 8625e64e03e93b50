"""Table 2: SQuAD 1.1, from the model that --model names.

Devlin et al. 2019, section 4.2; dev, single models.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning

COLUMNS = {"Dev EM": "exact_match", "Dev F1": "f1"}

EXPERIMENT = Experiment(
    title="Table 2: SQuAD 1.1",
    cells=[
        Cell(
            row="this model",
            column=column,
            run=Finetuning(task="squad_v1"),
            score=score,
        )
        for column, score in COLUMNS.items()
    ],
    paper_rows={
        "BERT_BASE": {"Dev EM": 80.8, "Dev F1": 88.5},
        "BERT_LARGE": {"Dev EM": 84.1, "Dev F1": 90.9},
    },
)
