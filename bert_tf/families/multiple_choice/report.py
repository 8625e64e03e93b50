"""Report statistics of multiple choice.

Rows are those of dev_predictions.jsonl: "label" and "prediction" are numbers of
"choices", from 0; "probabilities" has one for each choice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.statistics import (
    NUM_MISTAKES,
    class_calibration,
    confusion_matrix,
    per_label,
)

Row = Mapping[str, Any]


def statistics(
    rows: Sequence[Row], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns scores by position and number of choices, and mistakes."""
    del results
    sizes = np.array([len(row["choices"]) for row in rows])
    truth = np.array([row["label"] for row in rows])
    predicted = np.array([row["prediction"] for row in rows])
    names = [str(position) for position in range(sizes.max())]
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    probabilities = np.zeros((len(rows), len(names)))
    for index, row in enumerate(rows):
        probabilities[index, : sizes[index]] = row["probabilities"]
    correct = truth == predicted
    wrong = [
        dict(row)
        | {
            "confidence": row["probabilities"][row["prediction"]],
            "label_probability": row["probabilities"][row["label"]],
        }
        for row, is_correct in zip(rows, correct, strict=True)
        if not is_correct
    ]
    wrong.sort(key=lambda row: -row["confidence"])
    return {
        "num_examples": len(rows),
        "confusion_matrix": confusion_matrix(counts, names),
        "per_label": per_label(
            names, np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
        ),
        "by_number_of_choices": [
            {
                "choices": int(size),
                "count": int((sizes == size).sum()),
                "accuracy": float(correct[sizes == size].mean()),
                "chance": 1 / int(size),
            }
            for size in np.unique(sizes)
        ],
        "calibration": class_calibration(probabilities, truth),
        "mistakes": {"total": len(wrong), "worst": wrong[:NUM_MISTAKES]},
    }
