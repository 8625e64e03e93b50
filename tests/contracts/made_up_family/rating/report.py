"""Statistics of ratings for the report."""

from collections.abc import Mapping, Sequence
from typing import Any


def statistics(
    rows: Sequence[Mapping[str, Any]], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Counts rows by the error of their prediction."""
    errors = [abs(row["label"] - row["prediction"]) for row in rows]
    counts = {error: errors.count(error) for error in sorted(set(errors))}
    return {"num_examples": len(rows), "by_error": counts}
