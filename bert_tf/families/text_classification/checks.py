"""What the data doctor examines in rows of a text or a pair."""

import collections
import difflib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import excerpt, first_few
from bert_tf.families import checks
from bert_tf.families.checks import Examination, Fact, counted, percent
from bert_tf.families.data.equal_rows import first_equal
from bert_tf.families.data.examples import Example, names_in, sorted_labels
from bert_tf.families.text_classification.recipe import SentenceRecipe
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.families.text_classification.task import TextClassificationTask

_LABELS_SHOWN = 12
# A larger share of the rows is remarked on.
_MAJORITY = 0.9
# A label of fewer rows is remarked on. One that resembles another label with
# so many times its rows is taken for a misspelling.
_FEW_ROWS, _MUCH_COMMONER = 5, 4
_SIMILARITY = 0.85
# More pairs of a rare and another label are not compared: most labels are rare.
_MOST_PAIRS = 100_000


def examine(
    task: "TextClassificationTask",
    recipe: SentenceRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[Example]],
) -> Examination:
    """Examines rows of a text or a pair; see `Task.examine`."""
    split_rows = {
        name: _split_rows(
            task.labels, examples, tokenizer, recipe.max_seq_length
        )
        for name, examples in splits.items()
    }
    found = checks.examine(
        task.name,
        split_rows,
        recipe.max_seq_length,
        conflict="with_another_label",
    )
    numbers, train = found.numbers, found.numbers["train_split"]
    numbers["label_kind"] = task.label_kind
    counts = {
        name: part["labels"].get("counts", {})
        for name, part in numbers["splits"].items()
    }
    numbers["labels_not_in_train"] = checks.not_in_train(counts)
    checks.add_input_remarks(found)
    _add_contradictions(found, split_rows[train].rows)
    for split, names in numbers["labels_not_in_train"].items():
        for name, count in names.items():
            shown = f"label {excerpt(name)} of {split} ({counted(count)})"
            same = [o for o in counts[train] if _plain(o) == _plain(name)]
            text = f"{shown} is not in {train}."
            if same:
                text = f"{shown} {_same_label(name, same[0], f'of {train}')}"
            found.add(checks.REMARK, split, text)
    _add_label_remarks(found, train, counts[train])
    if numbers["splits"][train]["labels"].get("majority_share", 0) > _MAJORITY:
        text = (
            "one label has more than 90 % of the rows; look at macro F1, and "
            "try class_weights=balanced."
        )
        found.add(checks.REMARK, train, text)
    return found


def _split_rows(
    labels: Sequence[str],
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> checks.SplitRows:
    """The rows of a split, with the counts of their labels."""
    split = checks.SplitRows.of_examples(examples, tokenizer, max_seq_length)
    counts = _label_counts(labels, examples)
    shown = _labels_shown(counts, len(examples))
    empty = split.rows.num_empty
    facts = [
        Fact("texts_per_row", len(examples[0].texts)),
        Fact("labels", counts, [f"labels: {shown}"]),
        Fact(
            "empty_texts",
            empty,
            [f"empty texts: {counted(empty)}"] if empty else (),
        ),
    ]
    return split._replace(facts=[*facts, *split.facts])


def _label_counts(
    order: Sequence[str], examples: Sequence[Example]
) -> dict[str, Any]:
    """The frequency of each label, or the distribution of numbers."""
    labels = [e.label for e in examples if e.label is not None]
    if not labels:
        return {"counts": {}}
    if isinstance(labels[0], float):
        return {
            "lowest": min(labels),
            "highest": max(labels),
            "mean": math.fsum(labels) / len(labels),
            "deviation": float(np.std(labels)),
            "different": len(np.unique(labels)),
        }
    counts = collections.Counter(
        name for label in labels for name in names_in(label)
    )
    order = order or sorted_labels(counts)
    result: dict[str, Any] = {"counts": {n: counts[n] for n in order}}
    if isinstance(labels[0], tuple):
        result["labels_per_row"] = counts.total() / len(labels)
        result["rows_without"] = sum(not label for label in labels)
    else:
        result["majority_share"] = max(counts.values()) / len(labels)
    return result


def _add_contradictions(found: Examination, rows: checks.ComparedRows) -> None:
    """Counts the texts of training that occur with several labels."""
    text = first_equal(*rows.keys)
    is_new_pair = first_equal(text, rows.labels) == np.arange(len(rows))
    # Texts of a later row with another label than those of earlier rows.
    texts = np.unique(text[is_new_pair & (text != np.arange(len(rows)))])
    count = len(texts)
    first = int(rows.numbers[texts[0]]) if count else None
    found.numbers["repeated"] |= {
        "contradicting_texts": count,
        "first_contradicting_row": first,
    }
    if first is not None:
        shown = f"{count} texts have two labels; the first is row {first}."
        train = found.numbers["train_split"]
        found.add(checks.REMARK, train, shown, (first,))


def _labels_shown(labels: Mapping[str, Any], num_rows: int) -> str:
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
        f"{label} {count} ({percent(count / num_rows)})"
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


def _add_label_remarks(
    found: Examination, split: str, counts: Mapping[str, int]
) -> None:
    """Adds remarks on labels of few rows, and on likely misspellings."""
    few, misspelled = [], _meant(counts)
    for label, count in counts.items():
        meant = misspelled.get(label)
        shown = f"{excerpt(label)} ({counted(count)})"
        if meant:
            same = _same_label(label, meant, counted(counts[meant]))
            found.add(checks.REMARK, split, f"label {shown} {same}")
        elif 0 < count < _FEW_ROWS:
            few.append(shown)
    if few:
        text = (
            f"few rows have the label {first_few(few)}; collect more of them, "
            "or leave them out."
        )
        found.add(checks.REMARK, split, text)


def _meant(counts: Mapping[str, int]) -> dict[str, str]:
    """Returns, for likely misspellings, the more frequent label that is meant.

    Both differ in case, blanks, invisible characters and Unicode form only, or
    are the same number, or the label is rare and similar. Labels with different
    digits are never similar.
    """
    alike: dict[str | float, list[str]] = {}
    for label, count in counts.items():
        if count:
            alike.setdefault(_plain(label), []).append(label)
    found: dict[str, str] = {}
    for names in alike.values():
        most = max(names, key=lambda name: (counts[name], name))
        found |= {name: most for name in names if name != most}
    rare = [n for n, c in counts.items() if 0 < c < _FEW_ROWS]
    common = [n for n, c in counts.items() if c >= _MUCH_COMMONER]
    if len(rare) * len(common) > _MOST_PAIRS:
        return found
    digits = {name: re.findall(r"\d+", name) for name in (*rare, *common)}
    for label in rare:
        others = [
            other
            for other in common
            if counts[other] >= _MUCH_COMMONER * counts[label]
            and digits[other] == digits[label]
        ]
        near = difflib.get_close_matches(label, others, 1, _SIMILARITY)
        if near:
            found.setdefault(label, near[0])
    return found


def _same_label(label: str, other: str, rows: str) -> str:
    """The end of a remark that a label may be another one misspelled."""
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
    """A key that labels which look the same share."""
    number = _number(name)
    if number is not None:
        return number
    shown = (c for c in _composed(name) if unicodedata.category(c) != "Cf")
    return "".join("".join(shown).split()).casefold()


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _number(name: str) -> float | None:
    """The finite number that a label spells, such as 1 and 1.0."""
    if not re.fullmatch(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*", name):
        return None
    try:
        return float(name)
    except ValueError:
        return None
