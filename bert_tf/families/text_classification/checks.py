"""What the data doctor examines in rows of a text or a pair.

The findings are made of the numbers alone, which results.json has, so that a
report can make them too.
"""

import collections
import difflib
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import excerpt, first_few
from bert_tf.families import checks
from bert_tf.families.checks import Finding, counted, percent
from bert_tf.families.data.examples import Example, names_in, sorted_labels
from bert_tf.families.recipe import SentenceRecipe
from bert_tf.text.tokenizer_protocol import Tokenizer

_LABELS_SHOWN = 12
# A larger share of the rows is worth a remark.
_MAJORITY = 0.9
# Labels of fewer rows are few, and one that is like another of so many times
# its rows is taken for a misspelling.
_FEW_ROWS, _MUCH_COMMONER = 5, 4
_ALIKE = 0.85


def examine_texts(
    task: str,
    label_kind: str,
    labels: Sequence[str],
    recipe: SentenceRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[Example]],
) -> checks.Examination:
    """Examines rows of a text or a pair; see `Task.examine`.

    Args:
      task: its name.
      label_kind: classes, regression or multi_label.
      labels: those that the task names itself, if any.
      recipe: says how rows are truncated.
      tokenizer: of the model that will be trained.
      splits: split to its rows, the one to train on first.
    """
    rows = {
        name: [checks.RowKey(e.text_key, e.row, e.label) for e in examples]
        for name, examples in splits.items()
    }
    longest = recipe.max_seq_length
    parts: dict[str, dict[str, Any]] = {
        split: {
            "file": examples[0].path,
            "rows": len(examples),
            "texts_per_row": 1 if examples[0].text_b is None else 2,
            "labels": _label_counts(labels, examples),
            "empty_texts": sum(
                not e.text_a.strip()
                or (e.text_b is not None and not e.text_b.strip())
                for e in examples
            ),
            **checks.count_texts(examples, longest, tokenizer),
        }
        for split, examples in splits.items()
    }
    train = next(iter(splits))
    numbers = {
        "task": task,
        "max_seq_length": longest,
        "train_split": train,
        "label_kind": label_kind,
        "splits": parts,
        "repeated": _repeated_texts(rows[train]),
        "in_train": checks.overlaps(rows, "rows", "with_another_label"),
        "labels_not_in_train": checks.not_in_train(
            {k: part["labels"].get("counts", {}) for k, part in parts.items()}
        ),
    }
    return checks.Examination.of(numbers, findings(numbers))


def _label_counts(
    order: Sequence[str], examples: Sequence[Example]
) -> dict[str, Any]:
    """How often each label occurs, or where the numbers lie."""
    labels = [e.label for e in examples if e.label is not None]
    if not labels:
        return {"counts": {}}
    if isinstance(labels[0], float):
        return {
            "lowest": min(labels),
            "highest": max(labels),
            "mean": math.fsum(labels) / len(labels),
            "deviation": float(np.std(labels)),
            "different": len(set(labels)),
        }
    names = [name for label in labels for name in names_in(label)]
    counts = collections.Counter(names)
    order = order or sorted_labels(counts)
    result: dict[str, Any] = {"counts": {n: counts[n] for n in order}}
    if isinstance(labels[0], tuple):
        result["labels_per_row"] = len(names) / len(labels)
        result["rows_without"] = sum(not label for label in labels)
    else:
        result["majority_share"] = max(counts.values()) / len(labels)
    return result


def _repeated_texts(rows: Sequence[checks.RowKey]) -> dict[str, Any]:
    """Rows of a text that an earlier row had, and texts of two labels."""
    count, first = checks.repeats(rows)
    labels = collections.defaultdict(set)
    for each in rows:
        labels[each.key].add(each.answer)
    contradicting = [each for each in rows if len(labels[each.key]) > 1]
    return {
        "rows": count,
        "share": count / len(rows),
        "first": first,
        "contradicting_texts": len({each.key for each in contradicting}),
        "first_contradicting_row": next(
            (each.row for each in contradicting), None
        ),
    }


def findings(numbers: Mapping[str, Any]) -> Iterator[Finding]:
    """What is known of the rows, and what is worth doing something about.

    Args:
      numbers: of `examine_texts`; results.json has them as "doctor".
    """
    for split, part in numbers["splits"].items():
        pair = ", pairs" if part["texts_per_row"] == 2 else ""
        shown = f"{counted(part['rows'])}{pair} ({part['file']})"
        yield Finding(checks.SPLIT, f"{split}: {shown}", split)
        yield Finding("labels", f"labels: {_labels_shown(part)}", split)
        longest = numbers["max_seq_length"]
        yield from checks.text_findings(split, part, longest)
        if part["empty_texts"]:
            shown = counted(part["empty_texts"])
            yield Finding("empty_texts", f"empty texts: {shown}", split)
    yield checks.repeated_finding(numbers)
    yield from checks.in_train_findings(numbers, "row", "with_another_label")
    yield from _remarks(numbers)


def _labels_shown(part: Mapping[str, Any]) -> str:
    labels = part["labels"]
    if "mean" in labels:
        return (
            f"{labels['lowest']:g} to {labels['highest']:g}, mean "
            f"{labels['mean']:.3f}, deviation {labels['deviation']:.3f}, "
            f"{labels['different']} different"
        )
    counts = labels["counts"]
    if not counts:
        return "none"
    shown = ", ".join(
        f"{label} {count} ({percent(count / part['rows'])})"
        for label, count in list(counts.items())[:_LABELS_SHOWN]
    )
    if len(counts) > _LABELS_SHOWN:
        shown += f" and {len(counts) - _LABELS_SHOWN} more"
    if "labels_per_row" in labels:
        shown += (
            f"; {labels['labels_per_row']:.2f} a row, "
            f"{counted(labels['rows_without'])} without"
        )
    return shown


def _label_remarks(split: str, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Remarks on labels of few rows, and on what may be a misspelling."""
    few = []
    for label, count in counts.items():
        meant = _meant(label, counts)
        shown = f"{excerpt(label)} ({counted(count)})"
        if meant:
            same = _same_label(label, meant, counted(counts[meant]))
            text = f"label {shown} {same}"
            yield Finding(checks.REMARK, text, split)
        elif 0 < count < _FEW_ROWS:
            few.append(shown)
    if few:
        text = (
            f"few rows have the label {first_few(few)}; collect more of them, "
            "or leave them out."
        )
        yield Finding(checks.REMARK, text, split)


def _meant(label: str, counts: Mapping[str, int]) -> str | None:
    """A commoner label that this one may be a misspelling of.

    It differs in case, blanks, invisible characters and Unicode form alone, or
    is the same number, or this one is rare and nearly it; what differs in its
    numbers is another label.
    """

    def rank(name: str) -> tuple[int, str]:
        return counts[name], name

    count = counts[label]
    others = [o for o in counts if count and rank(o) > rank(label)]
    for other in others:
        if _plain(other) == _plain(label):
            return other
    if count >= _FEW_ROWS:
        return None
    near = difflib.get_close_matches(
        label,
        [
            other
            for other in others
            if counts[other] >= _MUCH_COMMONER * count
            and re.findall(r"\d+", other) == re.findall(r"\d+", label)
        ],
        n=1,
        cutoff=_ALIKE,
    )
    return near[0] if near else None


def _same_label(label: str, other: str, rows: str) -> str:
    """The end of a sentence on a label that may be meant to be another one."""
    meant = f"{excerpt(other)} ({rows})"
    if _number(label) is not None and _number(label) == _number(other):
        return (
            f"is the same number as {meant}; write it in one way, or they are "
            "two classes."
        )
    if _composed(label) == _composed(other):
        return (
            f"is {meant} in another Unicode form, {ascii(label)} and "
            f"{ascii(other)}; normalize the file to NFC, or they are two "
            "classes."
        )
    return f"looks like a misspelling; did you mean {meant}?"


def _plain(name: str) -> str | float:
    """What labels that look the same have in common."""
    number = _number(name)
    if number is not None:
        return number
    shown = (c for c in _composed(name) if unicodedata.category(c) != "Cf")
    return "".join("".join(shown).split()).casefold()


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _number(name: str) -> float | None:
    """The finite number that a label is, such as 1 and 1.0."""
    if not re.fullmatch(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*", name):
        return None
    try:
        return float(name)
    except ValueError:
        return None


def _remarks(numbers: Mapping[str, Any]) -> Iterator[Finding]:
    name = numbers["train_split"]
    train = numbers["splits"][name]
    yield from checks.token_remarks(numbers, "inputs")
    count = numbers["repeated"]["contradicting_texts"]
    if count:
        row = numbers["repeated"]["first_contradicting_row"]
        text = f"{count} texts have two labels; the first is row {row}."
        yield Finding(checks.REMARK, text, name, (row,))
    yield from checks.inflated_scores(numbers)
    for split, labels in numbers["labels_not_in_train"].items():
        for label, count in labels.items():
            shown = f"label {excerpt(label)} of {split} ({counted(count)})"
            counts = train["labels"]["counts"]
            meant = [
                other for other in counts if _plain(other) == _plain(label)
            ]
            text = f"{shown} is not in {name}."
            if meant:
                rows = f"of {name}"
                text = f"{shown} {_same_label(label, meant[0], rows)}"
            yield Finding(checks.REMARK, text, split)
    yield from _label_remarks(name, train["labels"].get("counts", {}))
    if train["labels"].get("majority_share", 0) > _MAJORITY:
        text = (
            "one label has more than 90 % of the rows; look at macro F1, and "
            "try class_weights=balanced."
        )
        yield Finding(checks.REMARK, text, name)
    if train["suspicious"]:
        kinds = ", ".join(
            checks.DESCRIPTIONS[kind] for kind in train["suspicious"]
        )
        yield Finding(
            checks.REMARK, f"look at the rows of {name} with {kinds}.", name
        )
