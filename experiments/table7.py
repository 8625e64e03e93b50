"""Table 7: CoNLL-2003, fine-tuned and by features of a frozen encoder.

Devlin et al. 2019, section 5.3, from the model that --model names.
"""

from bert_tf.experiments import Cell, Experiment, Finetuning

ROWS = {
    "Fine-tuning": ("", (96.4, 92.4)),
    "Embeddings": ("embeddings", (91.0, None)),
    "Second-to-last hidden": ("second_to_last", (95.6, None)),
    "Last hidden": ("last", (94.9, None)),
    "Weighted sum of last four": ("weighted_sum_last_four", (95.9, None)),
    "Concatenation of last four": ("concat_last_four", (96.1, None)),
    "Weighted sum of all": ("weighted_sum_all", (95.5, None)),
}
SPLITS = {"Dev F1": "dev", "Test F1": "test"}


def run(features: str) -> Finetuning:
    """The fine-tuning, or the tagger on features."""
    if not features:
        return Finetuning(task="conll2003", settings={"score_test": True})
    return Finetuning(
        task="conll2003_features",
        settings={"features": features, "score_test": True},
    )


EXPERIMENT = Experiment(
    title="Table 7: CoNLL-2003, fine-tuned and by features",
    cells=[
        Cell(
            row=row,
            column=column,
            run=run(features),
            score="f1",
            split=split,
            paper=paper,
        )
        for row, (features, papers) in ROWS.items()
        for (column, split), paper in zip(SPLITS.items(), papers, strict=True)
    ],
    paper_rows={"BERT_LARGE, fine-tuned": {"Dev F1": 96.6, "Test F1": 92.8}},
    notes=["The paper's numbers are of BERT_BASE, cased."],
)
