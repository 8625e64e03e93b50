"""The report of ratings."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.report.answer_sections import ReportWords
from bert_tf.report.sections import ReportTable, Section

WORDS = ReportWords("rows", "the most frequent rating")


def sections(
    rows: Sequence[Mapping[str, Any]], results: Mapping[str, Any]
) -> list[Section]:
    """Counts rows by the error of their prediction."""
    errors = [abs(row["label"] - row["prediction"]) for row in rows]
    counts = [
        {"steps": error, "rows": errors.count(error)}
        for error in sorted(set(errors))
    ]
    table = ReportTable("Rows by steps off", counts)
    title = "How far off ratings are"
    return [Section("answers", title, [table], {"by_error": counts})]
