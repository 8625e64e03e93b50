"""Report statistics of tasks that choose one of several texts.

Rows are those of dev_predictions.jsonl: "label" and "prediction" are indices
into "choices", counted from 0; "probabilities" has one value per choice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.statistics import class_statistics, share


def statistics(
    rows: Sequence[Mapping[str, Any]], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Confusion of positions, accuracy by number of choices, mistakes."""
    del results
    sizes = np.array([len(row["choices"]) for row in rows])
    truth = np.array([row["label"] for row in rows])
    predicted = np.array([row["prediction"] for row in rows])
    positions = [str(index) for index in range(sizes.max())]
    probabilities = np.zeros((len(rows), len(positions)))
    for index, row in enumerate(rows):
        probabilities[index, : sizes[index]] = row["probabilities"]
    correct = truth == predicted
    found = class_statistics(truth, predicted, probabilities, positions, rows)
    found["by_number_of_choices"] = [
        {
            "choices": int(size),
            "count": int((sizes == size).sum()),
            "accuracy": share(
                correct[sizes == size].sum(), (sizes == size).sum()
            ),
            "chance": 1 / int(size),
        }
        for size in np.unique(sizes)
    ]
    return found
