"""The data doctor: examines the rows of every family before training.

Each `examine_` function counts what its family's rows hold, for results.json,
and tells a person of it in lines: what each split has, which rows occur twice
or in training too, and a remark on everything that something should be done
about.
"""

import collections
import dataclasses
import math
import re
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf.errors import excerpt
from bert_tf.finetuning.data.examples import Example, sorted_labels
from bert_tf.finetuning.task import Examination

if TYPE_CHECKING:
    # A run of one family needs nothing of the others, a report no TensorFlow.
    from bert_tf.finetuning.multiple_choice.files import ChoiceExample
    from bert_tf.finetuning.question_answering.squad_files import Question
    from bert_tf.finetuning.token_classification.conll_files import (
        TaggedWords,
    )
    from bert_tf.text.tokenizer import BertTokenizer

_TEXTS_AT_A_TIME = 2000
_PERCENTILES = (50, 90, 95, 99, 100)
_UNKNOWN_WORDS = 10
_LABELS_SHOWN = 12
# From here on a share is worth a remark.
_MUCH_CUT, _MUCH_UNKNOWN = 0.05, 0.02
_MAJORITY = 0.9
# Above this many times its even share, one position is suspicious.
_UNEVEN = 2.0
# A text with fewer capitals than this share of its words has none to tell
# names by.
_FEW_CAPITALS = 0.005
_UNKNOWN_TEXTS = (
    "many words are unknown to this vocabulary; is it of this language, cased "
    "or uncased as the texts are?"
)

# Characters that tell of an accident, with what they are called in lines.
CONTROL, REPLACEMENT, MOJIBAKE = "control", "replacement", "mojibake"
HTML, INVISIBLE = "html", "invisible"
DESCRIPTIONS = {
    CONTROL: "control characters",
    REPLACEMENT: "U+FFFD, where bytes were not text",
    MOJIBAKE: "UTF-8 that was read as Latin-1, such as Ã©",
    HTML: "HTML tags or entities",
    INVISIBLE: "zero-width and direction characters",
}
# What the bytes 0x80 to 0xBF of UTF-8 become when they are read as Windows-1252
# or Latin-1.
_SECOND = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Tab and line ends are ordinary white space to the tokenizer.
_ANYWHERE = {
    CONTROL: re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    HTML: re.compile(
        r"&(?:[a-zA-Z]{2,8}|#\d{1,7}|#x[0-9a-fA-F]{1,6});"
        r"|</?[a-zA-Z][a-zA-Z0-9]*\s*/?>"
        r"|<[a-zA-Z][a-zA-Z0-9]*\s[^<>]*=[^<>]*>"
    ),
}
_BEYOND_ASCII = {
    REPLACEMENT: re.compile("\ufffd"),
    MOJIBAKE: re.compile(f"[ÂÃ]{_SECOND}|â[€\u0080]|ï»¿|ðŸ"),
    INVISIBLE: re.compile(
        "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
    ),
}


def suspicious(text: str) -> dict[str, str]:
    """What looks like an accident in a text.

    Args:
      text: any text.

    Returns:
      Kind (a key of `DESCRIPTIONS`) to the first place, with a few characters
      around it.
    """
    patterns = _ANYWHERE if text.isascii() else {**_ANYWHERE, **_BEYOND_ASCII}
    found = {}
    for kind, pattern in patterns.items():
        match = pattern.search(text)
        if match:
            found[kind] = text[max(0, match.start() - 15) : match.end() + 15]
    return found


# ------------------------------------------------------------- for all families


def _count_suspicious(
    found: Iterable[tuple[Mapping[str, str], int]], unit: str
) -> dict[str, dict[str, Any]]:
    """Kinds of suspicious characters: how many units, and the first one.

    Args:
      found: of each unit, excerpts by kind, and its row.
      unit: what is counted.
    """
    counts: dict[str, dict[str, Any]] = {}
    for kinds, row in found:
        for kind, where in kinds.items():
            first = {unit: 0, "first_row": row, "excerpt": where}
            counts.setdefault(kind, first)[unit] += 1
    return counts


def _suspicious_lines(
    part: Mapping[str, Any], unit: str, shown: Callable[[int], str]
) -> Iterator[str]:
    for kind, seen in part["suspicious"].items():
        yield (
            f"    {DESCRIPTIONS[kind]}: {shown(seen[unit])}, first row "
            f"{seen['first_row']}, {excerpt(seen['excerpt'])}"
        )


def _percentiles(lengths: np.ndarray) -> dict[str, int]:
    found = np.percentile(lengths, _PERCENTILES, method="higher")
    return {
        str(percent): int(length)
        for percent, length in zip(_PERCENTILES, found, strict=True)
    }


def _lengths_shown(percentiles: Mapping[str, int]) -> str:
    """Lengths, each with the share of rows that have no more."""
    return ", ".join(
        f"{length} ({'longest' if share == '100' else share + ' %'})"
        for share, length in percentiles.items()
    )


class _Row(NamedTuple):
    """A row, by what makes two rows the same."""

    key: Hashable
    row: int
    answer: Hashable = None


def _overlap(
    train: Iterable[_Row], others: Iterable[_Row]
) -> tuple[int, int, list[int] | None]:
    """Rows of a split that training has too.

    Returns:
      How many, how many of these with an answer that training does not give,
      and the first of them as [row of training, row of the split].
    """
    first: dict[Hashable, int] = {}
    answers = collections.defaultdict(set)
    for each in train:
        first.setdefault(each.key, each.row)
        answers[each.key].add(each.answer)
    seen = [each for each in others if each.key in first]
    other = sum(each.answer not in answers[each.key] for each in seen)
    return len(seen), other, [first[seen[0].key], seen[0].row] if seen else None


def _repeats(rows: Iterable[_Row]) -> tuple[int, list[int] | None]:
    """How many rows an earlier one is the same as, and the first such two."""
    first: dict[Hashable, int] = {}
    count, pair = 0, None
    for each in rows:
        if each.key in first:
            count += 1
            pair = pair or [first[each.key], each.row]
        first.setdefault(each.key, each.row)
    return count, pair


def _flattering(numbers: Mapping[str, Any], form: str = "") -> Iterator[str]:
    for split, shared in numbers["in_train"].items():
        if shared["rows"]:
            yield (
                f"{split} scores will flatter: {shared['rows']:{form}} of its "
                "rows are trained on; remove them from one side."
            )


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


# ------------------------------------------------------------ texts and pairs


def examine_texts(
    task: str,
    label_kind: str,
    labels: Sequence[str],
    max_seq_length: int,
    tokenizer: "BertTokenizer",
    splits: Mapping[str, Sequence[Example]],
) -> Examination:
    """Examines rows of a text or a pair.

    Args:
      task: the name of the task.
      label_kind: classes, regression or multi_label.
      labels: the labels in the task's order; empty where it has none.
      max_seq_length: what longer inputs are truncated to.
      tokenizer: of the model that will be trained.
      splits: split to its examples; the first one is the one to train on.
    """
    train_name, *others = splits
    train = splits[train_name]
    rows = {
        name: [_Row(e.text_key, e.row, e.label) for e in examples]
        for name, examples in splits.items()
    }
    numbers: dict[str, Any] = {
        "task": task,
        "max_seq_length": max_seq_length,
        "train_split": train_name,
        "label_kind": label_kind,
        "splits": {
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
                "tokens": _tokens(examples, max_seq_length, tokenizer),
                "suspicious": _suspicious_texts(examples),
            }
            for split, examples in splits.items()
        },
        "repeated": _repeated_texts(rows[train_name]),
        "in_train": {},
        "labels_not_in_train": {},
    }
    for split in others:
        count, other, first = _overlap(rows[train_name], rows[split])
        numbers["in_train"][split] = {
            "rows": count,
            "share": count / len(rows[split]),
            "with_another_label": other,
            "first": first,
        }
        numbers["labels_not_in_train"][split] = (
            {}
            if label_kind == "regression"
            else _new_labels(labels, train, splits[split])
        )
    return Examination(numbers, "\n".join(_text_lines(numbers)))


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


def _new_labels(
    order: Sequence[str], train: Sequence[Example], others: Sequence[Example]
) -> dict[str, int]:
    """Labels that no training row has, and how often they occur."""
    known = _label_counts(order, train)["counts"]
    counts = _label_counts(order, others)["counts"]
    return {n: counts[n] for n in counts if counts[n] and not known.get(n)}


def _suspicious_texts(examples: Iterable[Example]) -> dict[str, Any]:
    found = (
        (suspicious(e.text_b or "") | suspicious(e.text_a), e.row)
        for e in examples
    )
    return _count_suspicious(found, "rows")


def _repeated_texts(rows: Sequence[_Row]) -> dict[str, Any]:
    """Rows of a text that an earlier row had, and texts of two labels."""
    count, first = _repeats(rows)
    labels = collections.defaultdict(set)
    for each in rows:
        labels[each.key].add(each.answer)
    contradicting = [each for each in rows if len(labels[each.key]) > 1]
    return {
        "rows": count,
        "share": count / len(rows),
        "first": first,
        "contradicting_texts": len({each.key for each in contradicting}),
        "first_contradicting_row": contradicting[0].row
        if contradicting
        else None,
    }


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
    examples: Sequence[Example], max_seq_length: int, tokenizer: "BertTokenizer"
) -> dict[str, Any]:
    """Lengths in tokens, what will be truncated, and the share of [UNK]."""
    counts = _TokenCounts()
    batches = (
        examples[begin : begin + _TEXTS_AT_A_TIME]
        for begin in range(0, len(examples), _TEXTS_AT_A_TIME)
    )
    lengths = np.concatenate([_count(b, tokenizer, counts) for b in batches])
    truncated = int(np.sum(lengths > max_seq_length))
    return {
        "percentiles": _percentiles(lengths),
        "mean": float(lengths.mean()),
        "cut": truncated,
        "cut_share": truncated / len(lengths),
        "unknown_piece_share": counts.unknown / max(counts.pieces, 1),
        "unknown_word_share": counts.unknown / max(counts.words, 1),
        "rows_with_unknown": counts.rows_with_unknown,
        "unknown_words": dict(counts.unknown_words.most_common(_UNKNOWN_WORDS)),
    }


def _count(
    batch: Sequence[Example], tokenizer: "BertTokenizer", counts: _TokenCounts
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
        if len(with_unknown):
            _add_unknown_words(
                [texts[row] for row in with_unknown], tokenizer, counts
            )
    counts.rows_with_unknown += int(np.sum(has_unknown))
    return lengths


def _add_unknown_words(
    texts: list[str], tokenizer: "BertTokenizer", counts: _TokenCounts
) -> None:
    """Counts the words that became [UNK], as the texts have them."""
    ids, begins, ends = tokenizer.tokenize_with_offsets(texts)
    flat, splits = ids.values.numpy(), ids.row_splits.numpy()
    rows = np.repeat(np.arange(len(texts)), np.diff(splits))
    begins, ends = begins.values.numpy(), ends.values.numpy()
    for place in np.flatnonzero(flat == tokenizer.vocabulary.unk_id):
        word = texts[rows[place]][begins[place] : ends[place]]
        counts.unknown_words[word[:30]] += 1


def _text_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    """The numbers as lines for a person."""
    yield f"data of {numbers['task']}:"
    for split, part in numbers["splits"].items():
        yield from _text_split_lines(split, part, numbers["max_seq_length"])
    repeated, train = numbers["repeated"], numbers["train_split"]
    line = f"  texts that occur again in {train}: {_rows(repeated['rows'])}"
    if repeated["rows"]:
        first, second = repeated["first"]
        line += f", {_percent(repeated['share'])} (rows {first} and {second})"
    yield line
    for split, shared in numbers["in_train"].items():
        line = (
            f"  texts of {split} that are in {train}: {_rows(shared['rows'])}"
        )
        if shared["rows"]:
            first, second = shared["first"]
            line += (
                f", {_percent(shared['share'])}, {shared['with_another_label']}"
                f" with another label (row {first} of {train}, row {second} of "
                f"{split})"
            )
        yield line
    yield from (f"  remark: {remark}" for remark in text_remarks(numbers))


def _text_split_lines(
    split: str, part: Mapping[str, Any], max_seq_length: int
) -> Iterator[str]:
    pair = ", pairs" if part["texts_per_row"] == 2 else ""
    yield f"  {split}: {_rows(part['rows'])}{pair} ({part['file']})"
    yield f"    labels: {_labels_shown(part)}"
    tokens = part["tokens"]
    yield f"    tokens: {_lengths_shown(tokens['percentiles'])}"
    yield (
        f"    cut at {max_seq_length} tokens: {_rows(tokens['cut'])}, "
        f"{_percent(tokens['cut_share'])}"
    )
    words = ", ".join(map(excerpt, tokens["unknown_words"]))
    yield (
        f"    [UNK]: {_percent(tokens['unknown_word_share'])} of words, in "
        f"{_rows(tokens['rows_with_unknown'])}{': ' if words else ''}{words}"
    )
    if part["empty_texts"]:
        yield f"    empty texts: {_rows(part['empty_texts'])}"
    yield from _suspicious_lines(part, "rows", _rows)


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
        f"{label} {count} ({_percent(count / part['rows'])})"
        for label, count in list(counts.items())[:_LABELS_SHOWN]
    )
    if len(counts) > _LABELS_SHOWN:
        shown += f" and {len(counts) - _LABELS_SHOWN} more"
    if "labels_per_row" in labels:
        shown += (
            f"; {labels['labels_per_row']:.2f} a row, "
            f"{_rows(labels['rows_without'])} without"
        )
    return shown


def text_remarks(numbers: Mapping[str, Any]) -> Iterator[str]:
    """What is worth doing something about, and what would do.

    Args:
      numbers: of `examine_texts`; results.json has them as "doctor".
    """
    train = numbers["splits"][numbers["train_split"]]
    tokens = train["tokens"]
    if tokens["cut_share"] > _MUCH_CUT:
        yield (
            f"{_percent(tokens['cut_share'])} of the inputs lose their end; "
            f"max_seq_length={tokens['percentiles']['99']} would cut 1 %."
        )
    if tokens["unknown_word_share"] > _MUCH_UNKNOWN:
        yield _UNKNOWN_TEXTS
    contradicting = numbers["repeated"]["contradicting_texts"]
    if contradicting:
        yield (
            f"{contradicting} texts have two labels; the first is row "
            f"{numbers['repeated']['first_contradicting_row']}."
        )
    yield from _flattering(numbers)
    for split, labels in numbers["labels_not_in_train"].items():
        for label, count in labels.items():
            yield (
                f"label {excerpt(label)} of {split} ({_rows(count)}) is not in "
                f"{numbers['train_split']}."
            )
    if train["labels"].get("majority_share", 0) > _MAJORITY:
        yield (
            "one label has more than 90 % of the rows; look at macro F1, and "
            "try class_weights=balanced."
        )
    if train["suspicious"]:
        kinds = ", ".join(DESCRIPTIONS[kind] for kind in train["suspicious"])
        yield f"look at the rows of {numbers['train_split']} with {kinds}."


# --------------------------------------------------------------------- choices


def examine_choices(
    task: str,
    max_seq_length: int,
    tokenizer: "BertTokenizer",
    splits: Mapping[str, Sequence["ChoiceExample"]],
) -> Examination:
    """Examines rows of a text and its choices; see `examine_texts`."""
    train, *others = splits
    rows = {
        name: [_Row(_choice_key(e), e.row) for e in examples]
        for name, examples in splits.items()
    }
    repeated, pair = _repeats(rows[train])
    numbers: dict[str, Any] = {
        "task": task,
        "max_seq_length": max_seq_length,
        "train_split": train,
        "splits": {
            split: _choice_counts(examples, max_seq_length, tokenizer)
            for split, examples in splits.items()
        },
        "repeated": {"rows": repeated, "first": pair},
        "in_train": {},
    }
    contexts = {example.context.strip() for example in splits[train]}
    for split in others:
        count, _, first = _overlap(rows[train], rows[split])
        known = sum(e.context.strip() in contexts for e in splits[split])
        numbers["in_train"][split] = {
            "rows": count,
            "first": first,
            "contexts": known,
        }
    numbers["lines"] = list(_choice_lines(numbers))
    return Examination(numbers, "\n".join(numbers["lines"]))


def _choice_key(example: "ChoiceExample") -> tuple[str, ...]:
    """What makes two rows the same: all but the order of the choices."""
    choices = sorted(choice.strip() for choice in example.choices)
    return (example.context.strip(), example.start.strip(), *choices)


def _choice_counts(
    examples: Sequence["ChoiceExample"],
    max_seq_length: int,
    tokenizer: "BertTokenizer",
) -> dict[str, Any]:
    """Rows, choices of each, where the right ones are, and their tokens."""
    sizes = collections.Counter(len(e.choices) for e in examples)
    right = collections.Counter(e.label for e in examples)
    # What guessing gives: of rows with more choices, few are at a position.
    even = dict.fromkeys(range(max(sizes)), 0.0)
    for size, count in sizes.items():
        for place in range(size):
            even[place] += count / size
    # What a model is shown: a pair for every choice.
    inputs = [
        Example(
            e.context,
            f"{e.start} {choice}".lstrip(),
            None,
            e.identifier,
            e.row,
            e.path,
        )
        for e in examples
        for choice in e.choices
    ]
    return {
        "file": examples[0].path,
        "rows": len(examples),
        "inputs": len(inputs),
        "choices": {str(size): sizes[size] for size in sorted(sizes)},
        "right": {str(place): right[place] for place in range(max(sizes))},
        "right_if_even": {str(place): even[place] for place in even},
        "same_choice_twice": sum(
            len({choice.strip() for choice in e.choices}) < len(e.choices)
            for e in examples
        ),
        "tokens": _tokens(inputs, max_seq_length, tokenizer),
        "suspicious": _suspicious_texts(inputs),
    }


def _choice_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    """The numbers as lines for a person."""
    yield f"data of {numbers['task']}:"
    for split, part in numbers["splits"].items():
        yield from _choice_split_lines(split, part, numbers["max_seq_length"])
    repeated, train = numbers["repeated"], numbers["train_split"]
    yield (
        f"  rows that occur again in {train}: {repeated['rows']:,}"
        f"{_places(repeated['first'])}"
    )
    for split, shared in numbers["in_train"].items():
        yield (
            f"  rows of {split} that are in {train}: {shared['rows']:,}"
            f"{_places(shared['first'])}; with a context that is: "
            f"{shared['contexts']:,}"
        )
    yield from (f"  remark: {remark}" for remark in _choice_remarks(numbers))


def _places(rows: Sequence[int] | None) -> str:
    return f" (rows {rows[0]} and {rows[1]})" if rows else ""


def _choice_split_lines(
    split: str, part: Mapping[str, Any], max_seq_length: int
) -> Iterator[str]:
    rows = part["rows"]
    yield f"  {split}: {rows:,} rows ({part['file']})"
    sizes = part["choices"]
    if len(sizes) == 1:
        yield f"    choices: {next(iter(sizes))} a row"
    else:
        listed = ", ".join(f"{k} in {v:,} rows" for k, v in sizes.items())
        yield f"    choices: {listed}"
    right = ", ".join(
        f"{place} {count:,} ({_percent(count / rows)})"
        for place, count in part["right"].items()
    )
    yield f"    right ones, by position: {right}"
    tokens = part["tokens"]
    lengths = _lengths_shown(tokens["percentiles"])
    yield f"    tokens of a choice with its text: {lengths}"
    yield (
        f"    cut at {max_seq_length} tokens: {tokens['cut']:,} of "
        f"{part['inputs']:,} choices, {_percent(tokens['cut_share'])}"
    )
    words = ", ".join(map(excerpt, tokens["unknown_words"]))
    yield (
        f"    [UNK]: {_percent(tokens['unknown_word_share'])} of words"
        f"{': ' if words else ''}{words}"
    )
    if part["same_choice_twice"]:
        yield f"    rows with one choice twice: {part['same_choice_twice']:,}"
    yield from _suspicious_lines(
        part, "rows", lambda count: f"in {count:,} choices or their texts"
    )


def _choice_remarks(numbers: Mapping[str, Any]) -> Iterator[str]:
    train = numbers["splits"][numbers["train_split"]]
    tokens = train["tokens"]
    if tokens["cut_share"] > _MUCH_CUT:
        yield (
            f"{_percent(tokens['cut_share'])} of the choices or their texts "
            f"lose their end; max_seq_length={tokens['percentiles']['99']} "
            "would cut 1 %."
        )
    if tokens["unknown_word_share"] > _MUCH_UNKNOWN:
        yield _UNKNOWN_TEXTS
    for place, count in train["right"].items():
        if count > _UNEVEN * train["right_if_even"][place]:
            yield (
                f"the right choice is at position {place} far more often than "
                "chance has it; is label_column right?"
            )
    yield from _flattering(numbers, ",")


# ---------------------------------------------------------------- tagged words


def examine_words(
    task: str,
    recipe: Any,
    tokenizer: "BertTokenizer",
    splits: Mapping[str, "TaggedWords"],
) -> Examination:
    """Examines tagged words.

    Args:
      task: the name of the task.
      recipe: says max_seq_length, context and doc_stride.
      tokenizer: of the model that will be trained.
      splits: split to its words; the first one is the one to train on.
    """
    train, *others = splits
    rows = {
        name: [
            _Row(
                tuple(words.words[part]),
                int(words.rows[part.start]),
                tuple(words.iob2_tags[part]),
            )
            for part in words.sentences()
        ]
        for name, words in splits.items()
    }
    numbers: dict[str, Any] = {
        "task": task,
        "max_seq_length": recipe.max_seq_length,
        "context": recipe.context,
        "train_split": train,
        "lower_case": tokenizer.lower_case,
        "splits": {
            split: _word_counts(words, recipe, tokenizer)
            for split, words in splits.items()
        },
        "in_train": {},
        "types_not_in_train": {},
    }
    known = numbers["splits"][train]["entities"]
    for split in others:
        count, other, first = _overlap(rows[train], rows[split])
        numbers["in_train"][split] = {
            "sentences": count,
            "share": count / len(rows[split]),
            "with_other_tags": other,
            "first": first,
        }
        kinds = numbers["splits"][split]["entities"]
        numbers["types_not_in_train"][split] = {
            kind: count for kind, count in kinds.items() if kind not in known
        }
    numbers["lines"] = list(_word_lines(numbers))
    return Examination(numbers, "\n".join(numbers["lines"]))


def _word_counts(
    words: "TaggedWords", recipe: Any, tokenizer: "BertTokenizer"
) -> dict[str, Any]:
    """Sentences, entities, unknown words and windows of one split."""
    from bert_tf.finetuning.token_classification.entities import entities
    from bert_tf.finetuning.token_classification.windows import (
        token_stream,
        windows_per_sentence,
    )

    found = entities(words.iob2_tags, words.sentence_starts)
    counts = collections.Counter(entity.kind for entity in found)
    capitals = sum(word != word.lower() for word in words.words)
    ids, starts = token_stream(words.words, tokenizer)
    is_unknown = np.logical_or.reduceat(
        ids == tokenizer.vocabulary.unk_id, starts[:-1]
    )
    unknown = collections.Counter(
        words.words[place][:30] for place in np.flatnonzero(is_unknown)
    )
    windows = windows_per_sentence(
        words,
        starts,
        recipe.max_seq_length,
        recipe.context,
        recipe.doc_stride or None,
    )
    kinds_of = {
        word: dict.fromkeys(suspicious(word), word[:30])
        for word in set(words.words)
    }
    oddities = (
        (kinds_of[word], row)
        for word, row in zip(words.words, words.rows.tolist(), strict=True)
    )
    return {
        "file": words.path,
        "sentences": len(words),
        "words": len(words.words),
        "documents": len(words.document_starts) - 1,
        "document_marks": words.marks,
        "words_per_sentence": _percentiles(np.diff(words.sentence_starts)),
        "entities": dict(sorted(counts.items())),
        "capital_share": capitals / len(words.words),
        "tokens_per_word": len(ids) / len(words.words),
        "unknown": int(is_unknown.sum()),
        "unknown_words": dict(unknown.most_common(_UNKNOWN_WORDS)),
        "long_sentences": int(np.sum(windows > 1)),
        "windows_of_long_sentences": int(windows[windows > 1].sum()),
        "suspicious": _count_suspicious(oddities, "words"),
    }


def _word_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    """The numbers as lines for a person."""
    yield f"data of {numbers['task']}:"
    for split, part in numbers["splits"].items():
        new = numbers["types_not_in_train"].get(split, {})
        yield from _word_split_lines(
            split, part, new, numbers["max_seq_length"]
        )
    train = numbers["train_split"]
    for split, shared in numbers["in_train"].items():
        line = (
            f"  sentences of {split} that are in {train}: "
            f"{shared['sentences']:,}"
        )
        if shared["sentences"]:
            first, second = shared["first"]
            line += (
                f", {_percent(shared['share'], 2)}, "
                f"{shared['with_other_tags']:,} with other tags (row {first} "
                f"of {train}, row {second} of {split})"
            )
        yield line
    yield from (f"  remark: {remark}" for remark in _word_remarks(numbers))


def _word_split_lines(
    split: str,
    part: Mapping[str, Any],
    new_types: Mapping[str, int],
    max_seq_length: int,
) -> Iterator[str]:
    marked = "" if part["document_marks"] else " (no -DOCSTART- lines)"
    yield (
        f"  {split}: {part['sentences']:,} sentences, {part['words']:,} words, "
        f"{part['documents']:,} documents{marked} ({part['file']})"
    )
    lengths = _lengths_shown(part["words_per_sentence"])
    yield f"    words of a sentence: {lengths}"
    kinds = ", ".join(
        f"{kind} {count:,}{' (not in train)' * (kind in new_types)}"
        for kind, count in part["entities"].items()
    )
    yield f"    entities: {kinds or 'none'}"
    words = ", ".join(map(excerpt, part["unknown_words"]))
    yield (
        f"    [UNK]: {part['unknown']:,} words, "
        f"{_percent(part['unknown'] / part['words'], 2)}"
        f"{': ' * bool(words)}{words}"
    )
    line = (
        f"    sentences longer than {max_seq_length} tokens: "
        f"{part['long_sentences']:,}"
    )
    if part["long_sentences"]:
        line += f", read in {part['windows_of_long_sentences']:,} windows"
    yield line
    yield from _suspicious_lines(
        part, "words", lambda count: f"{count:,} words"
    )


def _word_remarks(numbers: Mapping[str, Any]) -> Iterator[str]:
    train = numbers["splits"][numbers["train_split"]]
    capitals = train["capital_share"]
    if numbers["lower_case"] and capitals >= _FEW_CAPITALS:
        yield (
            f"the model is uncased, and {_percent(capitals, 2)} of the words "
            "have capitals, which it will not see; names are told by them, so "
            "cased models do better."
        )
    if not numbers["lower_case"] and capitals < _FEW_CAPITALS:
        yield (
            "the model is cased, and the words have hardly any capitals; an "
            "uncased model suits them better."
        )
    if train["unknown"] / train["words"] > _MUCH_UNKNOWN:
        yield _UNKNOWN_TEXTS.replace("the texts", "the words")


# ------------------------------------------------------------------- questions


def examine_questions(
    task: str,
    recipe: Any,
    tokenizer: "BertTokenizer",
    splits: Mapping[str, Sequence["Question"]],
) -> Examination:
    """Examines questions on contexts.

    Args:
      task: the name of the task.
      recipe: says how windows are made.
      tokenizer: of the model that will be trained.
      splits: split to its questions; the first one is the one to train on.
    """
    parts = {
        split: _question_counts(questions, recipe, tokenizer)
        for split, questions in splits.items()
    }
    train, *others = splits
    rows = {
        name: [_Row((q.question.strip(), q.context), 0) for q in questions]
        for name, questions in splits.items()
    }
    for split in others:
        parts[split]["in_train"] = _overlap(rows[train], rows[split])[0]
    lines = [f"data of {task}:"]
    for split, part in parts.items():
        lines += _question_lines(split, part, recipe)
    numbers = {"task": task, "splits": parts, "lines": lines}
    return Examination(numbers, "\n".join(lines))


def _question_counts(
    questions: Sequence["Question"], recipe: Any, tokenizer: "BertTokenizer"
) -> dict[str, Any]:
    """Questions, contexts and windows of one split."""
    from bert_tf.finetuning.question_answering.windows import make_windows

    windows = make_windows(
        questions,
        tokenizer,
        recipe.max_seq_length,
        recipe.doc_stride,
        recipe.max_query_length,
    )
    of_question = np.bincount(windows.rows.example, minlength=len(questions))
    ids = windows.contexts.tokens.ids
    unknown = int(np.sum(ids == tokenizer.vocabulary.unk_id))
    return {
        "questions": len(questions),
        "contexts": len({question.context for question in questions}),
        "articles": len({question.title for question in questions}),
        "without_answer": sum(not question.answers for question in questions),
        "windows": len(windows),
        "several_windows": int(np.sum(of_question > 1)),
        "longest_context": int(windows.contexts.tokens.count.max(initial=0)),
        "cut_questions": windows.num_truncated,
        "unknown_share": unknown / max(len(ids), 1),
    }


def _question_lines(
    split: str, numbers: Mapping[str, Any], recipe: Any
) -> Iterator[str]:
    yield (
        f"  {split}: {numbers['questions']:,} questions on "
        f"{numbers['contexts']:,} contexts of {numbers['articles']:,} "
        f"articles, {numbers['without_answer']:,} without an answer"
    )
    yield (
        f"    windows of {recipe.max_seq_length} tokens: "
        f"{numbers['windows']:,}; {numbers['several_windows']:,} questions "
        f"have several, the longest context has "
        f"{numbers['longest_context']:,} tokens"
    )
    unknown = numbers["unknown_share"]
    yield f"    [UNK]: {_percent(unknown, 2)} of the tokens of contexts"
    if numbers["cut_questions"]:
        yield (
            f"    cut at {recipe.max_query_length} tokens: "
            f"{numbers['cut_questions']:,} questions"
        )
    if numbers.get("in_train"):
        yield (
            f"    in the training file too: {numbers['in_train']:,} questions "
            "with their contexts"
        )
    if unknown > _MUCH_UNKNOWN:
        yield "    remark: much is [UNK]; is the vocabulary of this language?"
