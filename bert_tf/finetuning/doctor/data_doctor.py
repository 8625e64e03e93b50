"""Looks the data over before a model is trained on them."""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.doctor.lines import lines
from bert_tf.finetuning.doctor.suspicious_text import suspicious
from bert_tf.finetuning.kinds.labels import sorted_labels
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.text.tokenizer import BertTokenizer

__all__ = ["examine", "lines"]

_TEXTS_AT_A_TIME = 2000
_PERCENTILES = (50, 90, 95, 99, 100)
_UNKNOWN_WORDS = 10


def examine(
    task: str,
    label_kind: str,
    labels: Sequence[str],
    recipe: FinetuningRecipe,
    tokenizer: BertTokenizer,
    splits: Mapping[str, Sequence[Example]],
) -> dict[str, Any]:
    """Looks the training and dev rows over.

    Args:
      task: the name of the task.
      label_kind: classes, regression or multi_label.
      labels: the labels in the task's order; empty where it has none.
      recipe: says max_seq_length.
      tokenizer: of the model that will be trained.
      splits: split to its examples; the first one is the one to train on.

    Returns:
      Numbers for `lines`, of types that JSON knows.
    """
    train_name = next(iter(splits))
    train = splits[train_name]
    numbers: dict[str, Any] = {
        "task": task,
        "max_seq_length": recipe.max_seq_length,
        "train_split": train_name,
        "label_kind": label_kind,
        "splits": {
            split: {
                "file": examples[0].path,
                "rows": len(examples),
                "texts_per_row": 1 if examples[0].text_b is None else 2,
                "labels": _label_counts(labels, examples),
                "empty_texts": _empty(examples),
                "tokens": _tokens(examples, recipe.max_seq_length, tokenizer),
                "suspicious": _suspicious(examples),
            }
            for split, examples in splits.items()
        },
        "repeated": _repeated(train),
        "in_train": {
            split: _shared(train, examples)
            for split, examples in splits.items()
            if split != train_name
        },
        "labels_not_in_train": {
            split: _new_labels(label_kind, labels, train, examples)
            for split, examples in splits.items()
            if split != train_name
        },
    }
    return numbers


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
    sets = isinstance(labels[0], tuple)
    names = [n for label in labels for n in label] if sets else labels
    counts = collections.Counter(names)
    order = order or sorted_labels(counts)
    result: dict[str, Any] = {"counts": {n: counts[n] for n in order}}
    if sets:
        result["labels_per_row"] = len(names) / len(labels)
        result["rows_without"] = sum(not label for label in labels)
    else:
        result["majority_share"] = max(counts.values()) / len(labels)
    return result


def _empty(examples: Sequence[Example]) -> int:
    return sum(
        not e.text_a.strip() or (e.text_b is not None and not e.text_b.strip())
        for e in examples
    )


@dataclasses.dataclass
class _TokenCounts:
    """Counts over the texts of a split, added up batch by batch."""

    pieces: int = 0
    words: int = 0
    unknown: int = 0
    rows_with_unknown: int = 0
    unknown_words: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )


def _tokens(
    examples: Sequence[Example], max_seq_length: int, tokenizer: BertTokenizer
) -> dict[str, Any]:
    """Lengths in tokens, what will be cut, and the share of [UNK]."""
    counts = _TokenCounts()
    lengths = np.concatenate(
        [_count(batch, tokenizer, counts) for batch in _batches(examples)]
    )
    percentiles = np.percentile(lengths, _PERCENTILES, method="higher")
    cut = int(np.sum(lengths > max_seq_length))
    return {
        "percentiles": {
            str(percent): int(length)
            for percent, length in zip(_PERCENTILES, percentiles, strict=True)
        },
        "mean": float(lengths.mean()),
        "cut": cut,
        "cut_share": cut / len(lengths),
        "unknown_piece_share": counts.unknown / max(counts.pieces, 1),
        "unknown_word_share": counts.unknown / max(counts.words, 1),
        "rows_with_unknown": counts.rows_with_unknown,
        "unknown_words": dict(counts.unknown_words.most_common(_UNKNOWN_WORDS)),
    }


def _batches(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    for begin in range(0, len(examples), _TEXTS_AT_A_TIME):
        yield examples[begin : begin + _TEXTS_AT_A_TIME]


def _count(
    batch: Sequence[Example], tokenizer: BertTokenizer, counts: _TokenCounts
) -> np.ndarray:
    """Adds a batch to the counts; returns the lengths of its inputs, [B]."""
    vocabulary = tokenizer.vocabulary
    columns = [[e.text_a for e in batch]]
    if batch[0].text_b is not None:
        columns.append([e.text_b or "" for e in batch])
    # [CLS], and a [SEP] behind each text.
    lengths = np.full(len(batch), 1 + len(columns))
    has_unknown = np.zeros(len(batch), bool)
    for texts in columns:
        ids = tokenizer.tokenize(texts)
        flat, splits = ids.values.numpy(), ids.row_splits.numpy()
        rows = np.repeat(np.arange(len(batch)), np.diff(splits))
        unknown = flat == vocabulary.unk_id
        lengths += np.diff(splits)
        counts.pieces += len(flat)
        counts.words += int(np.sum(~vocabulary.is_continuation[flat]))
        counts.unknown += int(np.sum(unknown))
        with_unknown = np.unique(rows[unknown])
        has_unknown[with_unknown] = True
        _add_unknown_words(
            [texts[row] for row in with_unknown], tokenizer, counts
        )
    counts.rows_with_unknown += int(np.sum(has_unknown))
    return lengths


def _add_unknown_words(
    texts: list[str], tokenizer: BertTokenizer, counts: _TokenCounts
) -> None:
    """Counts the words that became [UNK], as the texts have them."""
    if not texts:
        return
    ids, begins, ends = tokenizer.tokenize_with_offsets(texts)
    flat, splits = ids.values.numpy(), ids.row_splits.numpy()
    rows = np.repeat(np.arange(len(texts)), np.diff(splits))
    begins, ends = begins.values.numpy(), ends.values.numpy()
    for place in np.flatnonzero(flat == tokenizer.vocabulary.unk_id):
        word = texts[rows[place]][begins[place] : ends[place]]
        counts.unknown_words[word[:30]] += 1


def _suspicious(examples: Sequence[Example]) -> dict[str, dict[str, Any]]:
    """Kinds of suspicious characters: how many rows, and the first one."""
    found: dict[str, dict[str, Any]] = {}
    for example in examples:
        kinds = suspicious(example.text_a)
        if example.text_b is not None:
            kinds = {**suspicious(example.text_b), **kinds}
        for kind, excerpt in kinds.items():
            first = {"rows": 0, "first_row": example.row, "excerpt": excerpt}
            found.setdefault(kind, first)["rows"] += 1
    return found


def _repeated(examples: Sequence[Example]) -> dict[str, Any]:
    """Rows of a text that an earlier row had, and texts of two labels."""
    first: dict[Any, Example] = {}
    labels: dict[Any, set] = {}
    rows, example_rows = 0, None
    for example in examples:
        key = example.text_key
        labels.setdefault(key, set()).add(example.label)
        earlier = first.setdefault(key, example)
        if earlier is not example:
            rows += 1
            example_rows = example_rows or [earlier.row, example.row]
    contradicting = [key for key, seen in labels.items() if len(seen) > 1]
    return {
        "rows": rows,
        "share": rows / len(examples),
        "first": example_rows,
        "contradicting_texts": len(contradicting),
        "first_contradicting_row": first[contradicting[0]].row
        if contradicting
        else None,
    }


def _shared(
    train: Sequence[Example], others: Sequence[Example]
) -> dict[str, Any]:
    """Rows whose text is in the training rows too."""
    labels: dict[Any, set] = {}
    first: dict[Any, int] = {}
    for example in train:
        key = example.text_key
        labels.setdefault(key, set()).add(example.label)
        first.setdefault(key, example.row)
    seen = [e for e in others if e.text_key in labels]
    other_label = sum(e.label not in labels[e.text_key] for e in seen)
    return {
        "rows": len(seen),
        "share": len(seen) / len(others),
        "with_another_label": other_label,
        "first": [first[seen[0].text_key], seen[0].row] if seen else None,
    }


def _new_labels(
    label_kind: str,
    order: Sequence[str],
    train: Sequence[Example],
    others: Sequence[Example],
) -> dict[str, int]:
    """Labels that no training row has, and how often they occur."""
    if label_kind == "regression":
        return {}
    known = _label_counts(order, train)["counts"]
    counts = _label_counts(order, others)["counts"]
    return {
        label: count
        for label, count in counts.items()
        if count and not known.get(label)
    }
