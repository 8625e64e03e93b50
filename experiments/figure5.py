"""Figure 5: MNLI after k steps of pre-training, masked LM and left-to-right.

Devlin et al. 2019, appendix C.1; its points are read off the figure.
"""

from bert_tf.experiments import (
    AfterSteps,
    Cell,
    Experiment,
    Finetuning,
    Pretraining,
)

ROWS = {
    "BERT_BASE (masked LM)": (
        Pretraining(),
        (79.6, 80.5, 82.2, 83.2, 84.0, 84.3, 84.4),
    ),
    "BERT_BASE (left-to-right)": (
        Pretraining(
            objective="left_to_right", records={"random_next_prob": 0.0}
        ),
        (79.8, 80.3, 81.0, 81.7, 81.9, 82.1, 82.2),
    ),
}
# Twentieths of all steps: 50,000 to 1,000,000 in the paper.
PARTS = (1, 2, 4, 8, 12, 16, 20)

EXPERIMENT = Experiment(
    title="Figure 5: MNLI over the steps of pre-training",
    cells=[
        Cell(
            row=row,
            column=str(5 * part),
            run=Finetuning(task="mnli", model=AfterSteps(model, part)),
            score="accuracy",
            paper=paper,
        )
        for row, (model, papers) in ROWS.items()
        for part, paper in zip(PARTS, papers, strict=True)
    ],
    across="steps of pre-training, % of all (the paper's 1,000,000)",
    notes=["The paper's point at 30,000 steps is left out."],
)
