"""The part of a report's page about what the data doctor found."""

from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.errors import UserError
from bert_tf.finetuning.doctor.lines import remarks
from bert_tf.finetuning.doctor.suspicious_text import DESCRIPTIONS
from bert_tf.finetuning.report.checks import RESULTS
from bert_tf.finetuning.report.html import (
    hundredths,
    inline,
    named,
    number,
    section,
    table,
)

_LISTED_LABELS = 60


def doctor_section(doctor: Mapping[str, Any]) -> str:
    """What the data hold; empty where nobody looked.

    Args:
      doctor: from the task's `examine`, or empty.

    Raises:
      UserError: something that the doctor always tells is missing.
    """
    if not doctor:
        return ""
    if "lines" in doctor:
        return section("doctor", "Data doctor", _listed(doctor["lines"]))
    try:
        return section("doctor", "Data doctor", *_parts(doctor))
    except KeyError as error:
        raise UserError(
            f"{RESULTS}: 'doctor' holds no {error}; it must be what the data "
            "doctor returned, or empty."
        ) from None


def _listed(lines: Any) -> str:
    """Lines for a terminal as a list, indented as they are."""
    if not isinstance(lines, list) or not all(
        isinstance(line, str) for line in lines
    ):
        raise UserError(
            f"{RESULTS}: the 'lines' of 'doctor' must be a list of strings."
        )
    items = "".join(
        f'<li style="margin-left:{(len(line) - len(line.lstrip())) / 2:g}rem">'
        f"{inline(line.strip())}</li>"
        for line in lines
    )
    return f'<ul class="findings plain">{items}</ul>'


def _parts(doctor: Mapping[str, Any]) -> list[str]:
    splits = doctor["splits"]
    listed = "".join(f"<li>{inline(each)}</li>" for each in remarks(doctor))
    header = ["", *map(named, splits)]
    return [
        f'<ul class="findings">{listed}</ul>'
        if listed
        else "<p>Nothing to remark.</p>",
        table("What the files hold", header, _facts(doctor)),
        table("Labels, in rows", header, _labels(splits)),
        '<p class="note">Read from the files once, before training. Tokens: '
        "the pieces of words a model reads, [CLS] and [SEP] with them. [UNK]: "
        "words its vocabulary cannot spell.</p>",
    ]


def _facts(doctor: Mapping[str, Any]) -> list[tuple[str, ...]]:
    splits = doctor["splits"]

    def row(name: str, value: Callable[..., str]) -> tuple:
        return name, *(value(part) for part in splits.values())

    rows = [
        row("Rows", lambda part: number(part["rows"])),
        row(
            "Rows with an empty text", lambda part: number(part["empty_texts"])
        ),
    ]
    for percent, name in (
        ("50", "Median length, tokens"),
        ("95", "95 % are no longer than, tokens"),
        ("100", "Longest, tokens"),
    ):
        rows.append(row(name, lambda part, p=percent: number(_tokens(part, p))))
    rows += [
        row(
            f"Cut at {doctor['max_seq_length']} tokens, % of rows",
            lambda part: hundredths(part["tokens"]["cut_share"]),
        ),
        row(
            "[UNK], % of words",
            lambda part: hundredths(part["tokens"]["unknown_word_share"]),
        ),
    ]
    repeated = {doctor["train_split"]: doctor["repeated"]["rows"]}
    shared = {name: part["rows"] for name, part in doctor["in_train"].items()}
    rows += [
        (name, *(number(counts.get(split)) for split in splits))
        for name, counts in (
            ("Rows whose text came before", repeated),
            (f"Rows whose text is in {doctor['train_split']} too", shared),
        )
    ]
    kinds = dict.fromkeys(
        x for part in splits.values() for x in part["suspicious"]
    )
    rows += [
        row(
            f"Rows with {DESCRIPTIONS[kind]}",
            lambda part, k=kind: number(
                part["suspicious"].get(k, {"rows": 0})["rows"]
            ),
        )
        for kind in kinds
    ]
    return rows


def _tokens(part: Mapping[str, Any], percent: str) -> int:
    return part["tokens"]["percentiles"][percent]


def _labels(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of each label, or where the numbers lie."""
    first = next(iter(splits.values()))["labels"]
    if "mean" in first:
        return [
            (named(name), *(number(x["labels"][name]) for x in splits.values()))
            for name in ("lowest", "mean", "highest", "deviation", "different")
        ]
    names = dict.fromkeys(
        name for part in splits.values() for name in part["labels"]["counts"]
    )
    often = sorted(names, key=lambda name: -first["counts"].get(name, 0))
    rows = []
    for name in often[:_LISTED_LABELS]:
        cells = []
        for part in splits.values():
            count = part["labels"]["counts"].get(name, 0)
            cells.append(f"{count:,} ({hundredths(count / part['rows'])} %)")
        rows.append((inline(name), *cells))
    return rows
