"""Table 3: SQuAD 2.0, from the model that --model names.

Devlin et al. 2019, section 4.3; dev, with the threshold of no answer tuned
there.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning

COLUMNS = {"Dev EM": "best_exact", "Dev F1": "best_f1"}

EXPERIMENT = Experiment(
    title="Table 3: SQuAD 2.0",
    cells=[
        Cell(
            row="this model",
            column=column,
            run=Finetuning(task="squad_v2"),
            score=score,
        )
        for column, score in COLUMNS.items()
    ],
    paper_rows={"BERT_LARGE": {"Dev EM": 78.7, "Dev F1": 81.9}},
)
