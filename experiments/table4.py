"""Table 4: SWAG, from the model that --model names.

Devlin et al. 2019, section 4.4.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning

EXPERIMENT = Experiment(
    title="Table 4: SWAG",
    cells=[
        Cell(
            row="this model",
            column="Dev",
            run=Finetuning(task="swag"),
            score="accuracy",
        )
    ],
    paper_rows={"BERT_BASE": {"Dev": 81.6}, "BERT_LARGE": {"Dev": 86.6}},
)
