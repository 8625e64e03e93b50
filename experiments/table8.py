"""Table 8: which share of the chosen tokens is masked, kept or replaced.

Devlin et al. 2019, appendix C.2. The feature-based column concatenates the last
four layers.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning, Pretraining

# Percent of [MASK], of the same token, of a random one.
PAPER = {
    (80, 10, 10): (84.2, 95.4, 94.9),
    (100, 0, 0): (84.3, 94.9, 94.0),
    (80, 0, 20): (84.1, 95.2, 94.6),
    (80, 20, 0): (84.4, 95.2, 94.7),
    (0, 20, 80): (83.7, 94.8, 94.6),
    (0, 0, 100): (83.6, 94.9, 94.6),
}
COLUMNS = {
    "MNLI, fine-tuned": ("mnli", "accuracy"),
    "NER, fine-tuned": ("conll2003", "f1"),
    "NER, features": ("conll2003_features", "f1"),
}


def model(mask: int, random: int) -> Pretraining:
    """The pre-training with a mix of masks; the common one is BERT's own."""
    if (mask, random) == (80, 10):
        return Pretraining()
    return Pretraining(
        settings={
            "mask_token_rate": mask / 100,
            "random_token_rate": random / 100,
        }
    )


EXPERIMENT = Experiment(
    title="Table 8: ablation over the mix of masks",
    cells=[
        Cell(
            row=f"MASK {mask} %, SAME {same} %, RND {random} %",
            column=column,
            run=Finetuning(task=task, model=model(mask, random)),
            score=score,
            paper=paper,
        )
        for (mask, same, random), papers in PAPER.items()
        for (column, (task, score)), paper in zip(
            COLUMNS.items(), papers, strict=True
        )
    ],
)
