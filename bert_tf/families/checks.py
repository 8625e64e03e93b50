"""The data doctor: examines the rows of a task before training.

A family's `examine` counts what its rows hold, for results.json, and says in
findings what a person should know of it: what each split has, which rows occur
twice or in training too, and a remark on everything that something should be
done about. Here are the checks that families share, and the table of findings.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple, Self

import numpy as np

from bert_tf.errors import excerpt
from bert_tf.families.data.examples import Example
from bert_tf.text.tokenizer_protocol import Tokenizer

# Kinds of findings that are not about one split alone, and what a split's own
# begin with. A remark is what something should be done about.
SPLIT, REPEATED, IN_TRAIN, REMARK = "split", "repeated", "in_train", "remark"
# From here on a share is worth a remark.
MUCH_UNKNOWN, _MUCH_CUT = 0.02, 0.05
UNKNOWN_WORDS = 10
UNKNOWN_TEXTS = (
    "many words are unknown to this vocabulary; is it of this language, cased "
    "or uncased as the texts are?"
)
_TEXTS_AT_A_TIME = 2000
_PERCENTILES = (50, 90, 95, 99, 100)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is known of the rows, for a person.

    Attributes:
      kind: what it is about: one of the kinds above, a key of `DESCRIPTIONS`,
        or what its family calls it.
      text: a line, without its end.
      split: the split whose rows show it.
      rows: the first of these, as lines of the file, counted from 1.
      file: the file of the split; empty where the examples do not tell it.
    """

    kind: str
    text: str
    split: str
    rows: Sequence[int] = ()
    file: str = ""


@dataclasses.dataclass(frozen=True)
class Examination:
    """What the data doctor found in the rows of a task.

    Attributes:
      numbers: for results.json.
      findings: the same for a person, in order.
    """

    numbers: Mapping[str, Any]
    findings: Sequence[Finding]

    @classmethod
    def of(cls, numbers: Mapping[str, Any], said: Iterable[Finding]) -> Self:
        """Numbers, and what they say, with the files of the splits."""
        files = {
            k: part.get("file", "") for k, part in numbers["splits"].items()
        }
        findings = [dataclasses.replace(f, file=files[f.split]) for f in said]
        return cls(numbers, findings)

    @property
    def lines(self) -> list[str]:
        """The table of the findings, for every family."""
        lines = [f"data of {self.numbers['task']}:"]
        for found in self.findings:
            outer = found.kind in (SPLIT, REPEATED, IN_TRAIN, REMARK)
            mark = "remark: " if found.kind == REMARK else ""
            lines.append(f"{'  ' if outer else '    '}{mark}{found.text}")
        return lines

    def with_lines(self) -> Self:
        """The same, whose numbers have the lines too, for a report."""
        numbers = {**self.numbers, "lines": self.lines}
        return dataclasses.replace(self, numbers=numbers)


def percent(share: float, digits: int = 1) -> str:
    """A share as lines have it."""
    return f"{100 * share:.{digits}f} %"


def counted(count: int, unit: str = "row") -> str:
    """How many of a unit, as lines have it."""
    return f"{count:,} {unit}{'s' * (count != 1)}"


def unknown_finding(split: str, shown: str, words: Iterable[str]) -> Finding:
    """How much is [UNK], and which words of the user's are."""
    listed = ", ".join(map(excerpt, words))
    text = f"[UNK]: {shown}" + (f": {listed}" if listed else "")
    return Finding("unknown", text, split)


# Characters that tell of an accident, with what they are called in lines.
CONTROL, REPLACEMENT, MOJIBAKE = "control", "replacement", "mojibake"
HTML, INVISIBLE, CARRIAGE_RETURN = "html", "invisible", "carriage_return"
DESCRIPTIONS = {
    CONTROL: "control characters",
    REPLACEMENT: "U+FFFD, where bytes were not text",
    MOJIBAKE: "UTF-8 that was read as Latin-1, such as Ã©",
    HTML: "HTML tags or entities",
    INVISIBLE: "zero-width and direction characters",
    CARRIAGE_RETURN: "carriage returns, which may have ended rows",
}
# What the bytes 0x80 to 0xBF of UTF-8 become when they are read as Windows-1252
# or Latin-1.
_SECOND = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Tab and line ends are ordinary white space to the tokenizer.
_ANYWHERE = {
    CARRIAGE_RETURN: re.compile(r"\r(?!\n)"),
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
    """Kinds of accidents in a text, each with what is around the first one."""
    patterns = _ANYWHERE if text.isascii() else {**_ANYWHERE, **_BEYOND_ASCII}
    found = {}
    for kind, pattern in patterns.items():
        match = pattern.search(text)
        if match:
            found[kind] = text[max(0, match.start() - 15) : match.end() + 15]
    return found


def count_suspicious(
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


def suspicious_findings(
    split: str, part: Mapping[str, Any], unit: str, key: str = "rows"
) -> Iterator[Finding]:
    """What `count_suspicious` counted, by `key` and as lines call it."""
    for kind, seen in part["suspicious"].items():
        row = seen["first_row"]
        text = (
            f"{DESCRIPTIONS[kind]}: {counted(seen[key], unit)}, first row "
            f"{row}, {excerpt(seen['excerpt'])}"
        )
        yield Finding(kind, text, split, (row,))


_QUOTED_CELL = re.compile(r'\s*"(?:[^"]|"")*"\s*')
# One text in quotes may be meant so.
_MANY_QUOTED = 2


def _num_quoted(examples: Sequence[Example]) -> int:
    """How many texts of a TSV file are quoted as cells of CSV are.

    Such files are written by spreadsheets. A TSV file is read as GLUE's are, in
    which quotation marks are characters like others.

    Returns:
      0 where the file is no TSV, or any quotation mark stands otherwise.
    """
    if not examples[0].path.removesuffix(".gz").lower().endswith(".tsv"):
        return 0
    texts = [text for e in examples for text in (e.text_a, e.text_b or "")]
    marked = [text for text in texts if '"' in text]
    return len(marked) if all(map(_QUOTED_CELL.fullmatch, marked)) else 0


def count_texts(
    examples: Sequence[Example], max_seq_length: int, tokenizer: Tokenizer
) -> dict[str, Any]:
    """What a split's texts are as inputs: tokens, and what looks odd."""
    odd = (
        (suspicious(e.text_b or "") | suspicious(e.text_a), e.row)
        for e in examples
    )
    return {
        "tokens": _count_tokens(examples, max_seq_length, tokenizer),
        "suspicious": count_suspicious(odd, "rows"),
        "quoted": _num_quoted(examples),
    }


def text_findings(
    split: str, part: Mapping[str, Any], max_seq_length: int, unit: str = "row"
) -> Iterator[Finding]:
    """What `count_texts` counted; `unit` is what is tokenised as one input."""
    tokens = part["tokens"]
    shown = lengths_shown(tokens["percentiles"])
    yield Finding("tokens", f"tokens: {shown}", split)
    shown = f"{counted(tokens['cut'], unit)}, {percent(tokens['cut_share'])}"
    yield Finding("cut", f"cut at {max_seq_length} tokens: {shown}", split)
    shown = (
        f"{percent(tokens['unknown_word_share'])} of words, in "
        f"{counted(tokens['rows_with_unknown'], unit)}"
    )
    yield unknown_finding(split, shown, tokens["unknown_words"])
    yield from suspicious_findings(split, part, unit)


class RowKey(NamedTuple):
    """A row, by the key that makes two rows the same."""

    key: Hashable
    row: int
    answer: Hashable = None


def overlaps(
    splits: Mapping[str, Sequence[RowKey]],
    unit: str = "rows",
    other_answers: str = "other_answers",
) -> dict[str, dict[str, Any]]:
    """Counts the rows of each split but the first that the first one has too.

    Args:
      splits: split to its rows; the first one is the one to train on.
      unit: the key of how many they are.
      other_answers: the key of how many of them have an answer that training
        does not give.

    Returns:
      Split to these two, "share" of its rows, and "first": the row of training
      and that of the split.
    """
    train, *others = splits
    first: dict[Hashable, int] = {}
    answers = collections.defaultdict(set)
    for each in splits[train]:
        first.setdefault(each.key, each.row)
        answers[each.key].add(each.answer)
    found = {}
    for split in others:
        seen = [each for each in splits[split] if each.key in first]
        found[split] = {
            unit: len(seen),
            "share": len(seen) / max(len(splits[split]), 1),
            other_answers: sum(e.answer not in answers[e.key] for e in seen),
            "first": [first[seen[0].key], seen[0].row] if seen else None,
        }
    return found


def repeats(rows: Iterable[RowKey]) -> tuple[int, list[int] | None]:
    """How many rows an earlier one is the same as, and the first such two."""
    first: dict[Hashable, int] = {}
    count, pair = 0, None
    for each in rows:
        if each.key in first:
            count += 1
            pair = pair or [first[each.key], each.row]
        first.setdefault(each.key, each.row)
    return count, pair


def repeated_finding(numbers: Mapping[str, Any]) -> Finding:
    """The training rows that an earlier one is the same as; see `repeats`."""
    repeated, train = numbers["repeated"], numbers["train_split"]
    shown, pair = counted(repeated["rows"]), repeated["first"] or ()
    if pair:
        share = percent(repeated["rows"] / numbers["splits"][train]["rows"])
        shown += f", {share} (rows {pair[0]} and {pair[1]})"
    text = f"rows that occur again in {train}: {shown}"
    return Finding(REPEATED, text, train, pair)


def in_train_findings(
    numbers: Mapping[str, Any],
    unit: str = "row",
    other_answers: str = "",
    also: Callable[[Mapping[str, Any]], str] = lambda shared: "",
) -> Iterator[Finding]:
    """The rows of other splits that are trained on; see `overlaps`.

    Args:
      numbers: those of the family.
      unit: what is counted; its plural is a key of every split's numbers.
      other_answers: the key of how many have another answer in training.
      also: what else is said of a split.
    """
    train = numbers["train_split"]
    for split, shared in numbers["in_train"].items():
        count, pair = shared[f"{unit}s"], shared["first"] or ()
        shown = counted(count, unit)
        if pair:
            share = percent(count / numbers["splits"][split][f"{unit}s"])
            shown += f", {share}"
            if other_answers:
                others = other_answers.replace("_", " ")
                shown += f", {shared[other_answers]:,} {others}"
            shown += f" (row {pair[0]} of {train}, row {pair[1]} of {split})"
        text = f"{unit}s of {split} that are in {train}: {shown}{also(shared)}"
        yield Finding(IN_TRAIN, text, split, pair[1:])


def inflated_scores(numbers: Mapping[str, Any]) -> Iterator[Finding]:
    """Remarks on splits with rows that are trained on."""
    for split, shared in numbers["in_train"].items():
        if shared["rows"]:
            text = (
                f"{split} scores will be inflated: {shared['rows']:,} of "
                "its rows are trained on; remove them from one side."
            )
            yield Finding(REMARK, text, split, shared["first"][1:])


def not_in_train(
    splits: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, int]]:
    """What splits count that the first one, to train on, has none of."""
    train, *others = splits
    return {
        split: {
            name: count
            for name, count in splits[split].items()
            if count and not splits[train].get(name)
        }
        for split in others
    }


def percentiles(lengths: np.ndarray) -> dict[str, int]:
    """The lengths that these shares of the rows do not exceed, in percent."""
    found = np.percentile(lengths, _PERCENTILES, method="higher")
    return {
        str(share): int(length)
        for share, length in zip(_PERCENTILES, found, strict=True)
    }


def lengths_shown(lengths: Mapping[str, int]) -> str:
    """What `percentiles` returned, as lines have it."""
    return ", ".join(
        f"{length} ({'longest' if share == '100' else share + ' %'})"
        for share, length in lengths.items()
    )


def _count_tokens(
    examples: Sequence[Example], max_seq_length: int, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Lengths in tokens, what will be truncated, and the share of [UNK]."""
    vocabulary = tokenizer.vocabulary
    columns = [[e.text_a for e in examples]]
    if examples[0].text_b is not None:
        columns.append([e.text_b or "" for e in examples])
    pieces = np.zeros(len(examples), np.int64)
    has_unknown = np.zeros(len(examples), bool)
    num_words = num_unknown = 0
    unknown_words: collections.Counter[str] = collections.Counter()
    begins = range(0, len(examples), _TEXTS_AT_A_TIME)
    for begin, column in itertools.product(begins, columns):
        texts = column[begin : begin + _TEXTS_AT_A_TIME]
        ids = tokenizer.tokenize(texts)
        flat, counts = ids.values.numpy(), np.diff(ids.row_splits.numpy())
        is_unknown = flat == vocabulary.unk_id
        pieces[begin : begin + len(texts)] += counts
        num_words += int(np.sum(vocabulary.starts_word[flat]))
        num_unknown += int(np.sum(is_unknown))
        rows = np.unique(np.repeat(np.arange(len(texts)), counts)[is_unknown])
        has_unknown[begin + rows] = True
        if len(rows):
            some = [texts[row] for row in rows]
            unknown_words.update(_unknown_words(some, tokenizer))
    lengths = pieces + tokenizer.packing.num_special(len(columns))
    truncated = int(np.sum(lengths > max_seq_length))
    return {
        "percentiles": percentiles(lengths),
        "mean": float(lengths.mean()),
        "cut": truncated,
        "cut_share": truncated / len(lengths),
        "unknown_piece_share": num_unknown / max(int(pieces.sum()), 1),
        "unknown_word_share": num_unknown / max(num_words, 1),
        "rows_with_unknown": int(np.sum(has_unknown)),
        "unknown_words": dict(unknown_words.most_common(UNKNOWN_WORDS)),
    }


def _unknown_words(texts: list[str], tokenizer: Tokenizer) -> Iterator[str]:
    """The words that become [UNK], as the texts have them."""
    ids, begins, ends = tokenizer.tokenize_with_offsets(texts)
    flat, counts = ids.values.numpy(), np.diff(ids.row_splits.numpy())
    rows = np.repeat(np.arange(len(texts)), counts)
    begins, ends = begins.values.numpy(), ends.values.numpy()
    for place in np.flatnonzero(flat == tokenizer.vocabulary.unk_id):
        yield texts[rows[place]][begins[place] : ends[place]][:30]


def token_remarks(numbers: Mapping[str, Any], inputs: str) -> Iterator[Finding]:
    """Remarks on the tokens and quotation marks of the training split."""
    train = numbers["train_split"]
    tokens = numbers["splits"][train]["tokens"]
    if tokens["cut_share"] > _MUCH_CUT:
        text = (
            f"{percent(tokens['cut_share'])} of the {inputs} lose their end; "
            f"max_seq_length={tokens['percentiles']['99']} would cut 1 %."
        )
        yield Finding(REMARK, text, train)
    if tokens["unknown_word_share"] > MUCH_UNKNOWN:
        yield Finding(REMARK, UNKNOWN_TEXTS, train)
    # Runs of earlier versions did not count them.
    quoted = numbers["splits"][train].get("quoted", 0)
    if quoted >= _MANY_QUOTED:
        text = (
            f"{quoted} texts keep their quotation marks, which look like those "
            "of CSV; if tabs divide the columns of a CSV, pass format=csv."
        )
        yield Finding(REMARK, text, train)
