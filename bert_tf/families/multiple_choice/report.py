"""Report statistics of tasks that choose one of several texts.

Rows are those of dev_predictions.jsonl: "label" and "prediction" are places in
"choices", counted from 0; "probabilities" has one of each choice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.statistics import (
    NUM_MISTAKES,
    class_calibration,
    confusion_matrix,
    per_label,
    share,
)

Row = Mapping[str, Any]


def statistics(
    rows: Sequence[Row], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Positions, numbers of choices, calibration and mistakes."""
    del results
    sizes = np.array([len(row["choices"]) for row in rows])
    truth = np.array([row["label"] for row in rows])
    predicted = np.array([row["prediction"] for row in rows])
    names = [str(place) for place in range(sizes.max())]
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    probabilities = np.zeros((len(rows), len(names)))
    for index, row in enumerate(rows):
        probabilities[index, : sizes[index]] = row["probabilities"]
    correct = truth == predicted
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
                "accuracy": share(
                    correct[sizes == size].sum(), (sizes == size).sum()
                ),
                "chance": 1 / int(size),
            }
            for size in np.unique(sizes)
        ],
        "calibration": class_calibration(probabilities, truth),
        "mistakes": _mistakes(rows),
    }


def _mistakes(rows: Sequence[Row]) -> dict[str, Any]:
    """The wrong rows whose choice had the highest probability."""
    wrong = [row for row in rows if row["label"] != row["prediction"]]
    worst = sorted(wrong, key=lambda x: -x["probabilities"][x["prediction"]])
    return {
        "total": len(wrong),
        "worst": [
            dict(row)
            | {
                "confidence": row["probabilities"][row["prediction"]],
                "label_probability": row["probabilities"][row["label"]],
            }
            for row in worst[:NUM_MISTAKES]
        ],
    }
