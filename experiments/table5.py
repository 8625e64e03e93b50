"""Table 5: what next sentence prediction and both directions contribute.

Devlin et al. 2019, section 5.1. A left-to-right model pools its last token, as
its [CLS] sees nothing but itself; the BiLSTM is put on it for fine-tuning.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning, Pretraining

ALWAYS_NEXT = {"random_next_prob": 0.0}
BERT = Pretraining()
NO_NSP = Pretraining(objective="masked_lm", records=ALWAYS_NEXT)
LEFT_TO_RIGHT = Pretraining(objective="left_to_right", records=ALWAYS_NEXT)

ROWS = {
    "BERT_BASE": (BERT, {}, (84.4, 88.4, 86.7, 92.7, 88.5)),
    "No NSP": (NO_NSP, {}, (83.9, 84.9, 86.5, 92.6, 87.9)),
    "LTR & No NSP": (LEFT_TO_RIGHT, {}, (82.1, 84.3, 77.5, 92.1, 77.8)),
    "+ BiLSTM": (
        LEFT_TO_RIGHT,
        {"bilstm": True},
        (82.1, 84.1, 75.7, 91.6, 84.9),
    ),
}
COLUMNS = {
    "MNLI-m": ("mnli", "accuracy"),
    "QNLI": ("qnli", "accuracy"),
    "MRPC": ("mrpc", "accuracy"),
    "SST-2": ("sst2", "accuracy"),
    "SQuAD": ("squad_v1", "f1"),
}

EXPERIMENT = Experiment(
    title="Table 5: ablation over the pre-training tasks",
    cells=[
        Cell(
            row=row,
            column=column,
            run=Finetuning(task=task, model=model, settings=settings),
            score=score,
            paper=paper,
        )
        for row, (model, settings, papers) in ROWS.items()
        for (column, (task, score)), paper in zip(
            COLUMNS.items(), papers, strict=True
        )
    ],
)
