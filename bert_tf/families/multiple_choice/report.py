"""The report of tasks that choose one of several texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families.calibration import calibrations
from bert_tf.report.answer_sections import ReportWords, Row, class_sections
from bert_tf.report.formats import bar, percent
from bert_tf.report.sections import ReportTable, Section
from bert_tf.report.texts import MarkedText

WORDS = ReportWords(
    "rows", "the position that is correct most often in training"
)


def sections(rows: Sequence[Row], results: Mapping[str, Any]) -> list[Section]:
    """Accuracy by number of choices, and the positions as classes.

    Args:
      rows: of dev_predictions.jsonl: "label" and "prediction" are indices into
        "choices", counted from 0; "probabilities" has one value per choice.
      results: the contents of results.json.
    """
    sizes = np.array([len(row["choices"]) for row in rows])
    truth, predicted = (
        np.array([row[name] for row in rows])
        for name in ("label", "prediction")
    )
    probabilities = np.zeros((len(rows), sizes.max()))
    for row, shares in zip(rows, probabilities, strict=True):
        shares[: len(row["choices"])] = row["probabilities"]
    by_size = [
        {
            "choices": int(size),
            "count": int((sizes == size).sum()),
            "accuracy": float((truth == predicted)[sizes == size].mean()),
            "chance": 1 / int(size),
        }
        for size in np.unique(sizes)
    ]
    table = ReportTable(
        "Accuracy x 100 by number of choices",
        by_size,
        {"accuracy": bar, "chance": percent},
        note="A position is the index of a choice in its row, counted from 0. "
        "If the choices are in random order, all positions should score about "
        "the same.",
    )
    numbers = {"by_number_of_choices": by_size}
    positions = [str(position) for position in range(sizes.max())]
    return [
        Section("choices", "Number of choices", [table], numbers),
        *class_sections(
            *(truth, predicted, probabilities, positions, rows, _texts),
            calibrations(rows, results, probabilities, truth),
            "position",
        ),
    ]


def _texts(row: Row) -> list[MarkedText]:
    """The context of a row and its choices."""
    roles = {row["label"]: ", true", row["prediction"]: ", predicted"}
    begins = [MarkedText(row["start"], "Every choice begins")]
    pairs = zip(row["choices"], row["probabilities"], strict=True)
    return [
        MarkedText(row["context"]),
        *(begins if row["start"] else ()),
        *(
            MarkedText(text, f"{n}{roles.get(n, '')}: {percent(share)} %")
            for n, (text, share) in enumerate(pairs)
        ),
    ]
