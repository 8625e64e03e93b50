"""The data doctor: examines the rows of a task before training.

`examine` counts what the rows of every family have in common and describes it
in findings: duplicates, rows that are trained on and evaluated, tokens,
truncation, unknown words and characters that hint at an accident. A family
adds what only its rows have.
"""

import array
import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from bert_tf.errors import excerpt, first_few
from bert_tf.families.data.equal_rows import columns_of, digest, first_equal
from bert_tf.files import unpacked_name
from bert_tf.text.tokenizer_protocol import Tokenizer

# Kinds of findings that are not details of one split, and the kind of the line
# that a split's details follow. A remark asks for something to be done.
SPLIT, REPEATED, IN_TRAIN, REMARK = "split", "repeated", "in_train", "remark"
# Larger shares are remarked on.
MUCH_UNKNOWN, _MUCH_CUT = 0.02, 0.05
UNKNOWN_WORDS = 10
UNKNOWN_TEXTS = (
    "many words are unknown to this vocabulary; is it of this language, cased "
    "or uncased as the texts are?"
)
_TEXTS_AT_A_TIME = 2000
_PERCENTILES = (50, 90, 95, 99, 100)


class Row(NamedTuple):
    """A row of a data set.

    Attributes:
      number: the line of the file that it begins on, counted from 1; 0 if rows
        have no lines.
      texts: its texts. Rows are duplicates if these are the same but for blanks
        at their ends.
      label: its label.
    """

    number: int
    texts: tuple[str, ...]
    label: Hashable = None

    @property
    def key(self) -> tuple[str, ...]:
        """What duplicates have in common."""
        return tuple([text.strip() for text in self.texts])


class Fact(NamedTuple):
    """What is counted in a split.

    Attributes:
      name: its key in results.json.
      value: its numbers.
      texts: the same in words, a line each; empty if it is not reported.
      rows: the first row of each line, or empty.
    """

    name: str
    value: Any
    texts: Sequence[str] = ()
    rows: Sequence[int] = ()


# Most data sets have few labels. Labels are compared of equal texts only, so
# half of the digest will do.
_label_digest = functools.lru_cache(typed=True)(
    lambda label: digest((label,))[:8]
)


class ComparedRows:
    """The rows of a split without their texts: 32 bytes of each.

    Args:
      rows: rows to `record`.

    Attributes:
      num_empty: the number of rows with an empty text.
    """

    def __init__(self, rows: Iterable[Row] = ()):
        self._numbers = array.array("q")
        self._keys = bytearray()
        self._labels = bytearray()
        self.num_empty = 0
        for _ in self.record(rows):
            pass

    def record(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Adds rows while they are iterated."""
        for row in rows:
            key = row.key
            self._numbers.append(row.number)
            self._keys += digest(key)
            self._labels += _label_digest(row.label)
            self.num_empty += not all(key)
            yield row

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> np.ndarray:
        """The number of each row, int64 [N]."""
        return np.frombuffer(self._numbers, np.int64)

    @property
    def keys(self) -> np.ndarray:
        """A digest of the key of each row, uint64 [2, N]."""
        return columns_of(self._keys)

    @property
    def labels(self) -> np.ndarray:
        """A digest of the label of each row, uint64 [N]."""
        return np.frombuffer(self._labels, np.uint64)


class SplitRows(NamedTuple):
    """The rows of a split, and what only its family counts.

    Attributes:
      file: the file of the split.
      rows: its rows.
      title: the number of rows and the like, in words.
      facts: what the family counts, and `InputCounts.facts`.
    """

    file: str
    rows: ComparedRows
    title: str
    facts: Sequence[Fact] = ()

    @classmethod
    def of_examples(
        cls,
        examples: Sequence[Any],
        tokenizer: Tokenizer,
        max_seq_length: int,
    ) -> Self:
        """Reads examples with `texts`, each an input of the model, once."""
        rows = ComparedRows()
        given = (Row(e.row, e.texts, e.label) for e in examples)
        inputs = InputCounts(rows.record(given), tokenizer, max_seq_length)
        # Examples of a stream have paths once they are read.
        files = first_few(list(dict.fromkeys(e.path for e in examples)))
        pairs = ", pairs" * (len(examples[0].texts) == 2)
        title = f"{counted(len(rows))}{pairs}"
        return cls(files, rows, title, inputs.facts(files))


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fact about the rows, in words.

    Attributes:
      kind: one of the kinds above, or the name of the fact.
      text: one line.
      split: the split whose rows show it.
      rows: the first of these rows, as lines of the file, counted from 1.
      file: the file of the split; empty if the examples do not name it.
    """

    kind: str
    text: str
    split: str
    rows: Sequence[int] = ()
    file: str = ""


@dataclasses.dataclass
class Examination:
    """What the data doctor found in the rows of a task.

    Attributes:
      numbers: the counts, for results.json.
      findings: the same in words.
    """

    numbers: dict[str, Any]
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def add(
        self, kind: str, split: str, text: str, rows: Sequence[int] = ()
    ) -> None:
        """Appends a finding."""
        file = self.numbers["splits"][split].get("file", "")
        self.findings.append(Finding(kind, text, split, rows, file))

    @property
    def lines(self) -> list[str]:
        """The findings as the lines of a table."""
        lines = [f"data of {self.numbers['task']}:"]
        for found in self.findings:
            outer = found.kind in (SPLIT, REPEATED, IN_TRAIN, REMARK)
            mark = "remark: " if found.kind == REMARK else ""
            lines.append(f"{'  ' if outer else '    '}{mark}{found.text}")
        return lines


def percent(share: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f} %"


def counted(count: int, unit: str = "row") -> str:
    """A number with its unit in the singular or plural."""
    return f"{count:,} {unit}{'s' * (count != 1)}"


def examine(
    task: str,
    splits: Mapping[str, SplitRows],
    max_seq_length: int,
    unit: str = "row",
    conflict: str = "",
) -> Examination:
    """Examines the rows of a task.

    Args:
      task: the name of the task.
      splits: split to its rows, the one to train on first.
      max_seq_length: the longest input in tokens.
      unit: what a row is called in the singular.
      conflict: the key of how many rows have a label that the same row in
        training does not have; empty to leave them uncounted.
    """
    facts = {
        name: [Fact(f"{unit}s", len(split.rows)), *split.facts]
        for name, split in splits.items()
    }
    found = Examination(
        {
            "task": task,
            "max_seq_length": max_seq_length,
            "train_split": next(iter(splits)),
            "splits": {
                name: ({"file": split.file} if split.file else {})
                | {fact.name: fact.value for fact in facts[name]}
                for name, split in splits.items()
            },
        }
    )
    for name, split in splits.items():
        file = f" ({split.file})" if split.file else ""
        found.add(SPLIT, name, f"{name}: {split.title}{file}")
        for fact in facts[name]:
            for number, text in enumerate(fact.texts):
                found.add(fact.name, name, text, fact.rows[number:][:1])
    _add_repeated(found, splits, unit, conflict)
    return found


def examine_rows(
    task: Any,
    recipe: Any,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[Any]],
) -> Examination:
    """Examines rows that have `texts`; see `Task.examine`."""
    length = recipe.max_seq_length
    rows = {
        name: SplitRows.of_examples(part, tokenizer, length)
        for name, part in splits.items()
    }
    found = examine(task.name, rows, length)
    add_input_remarks(found)
    return found


def _add_repeated(
    found: Examination,
    splits: Mapping[str, SplitRows],
    unit: str,
    conflict: str,
) -> None:
    """Counts the rows of training that occur again there or in other splits.

    "repeated" are their number, share and the "first" pair; "in_train" the same
    of each other split, with `conflict` and the rows of training and the split.
    """
    train, *others = splits
    # The rows of training come first.
    parts = [split.rows for split in splits.values()]
    ends = np.cumsum([*map(len, parts)])
    first = first_equal(*np.concatenate([p.keys for p in parts], axis=1))
    first_pair = first
    if conflict and others:
        labels = np.concatenate([part.labels for part in parts])
        first_pair = first_equal(first, labels)
    numbers = parts[0].numbers

    def count(part: int, is_seen: np.ndarray) -> tuple[dict[str, Any], str]:
        """Returns the number, share and first pair of rows, also in words."""
        seen = np.flatnonzero(is_seen)
        share = len(seen) / max(len(is_seen), 1)
        shown = counted(len(seen), unit)
        if len(seen):
            shown += f", {percent(share)}"
        pair = None
        # Rows without lines have the number 0.
        if len(seen) and parts[part].numbers[seen[0]]:
            earlier = first[ends[part] - len(is_seen) + seen[0]]
            pair = [int(numbers[earlier]), int(parts[part].numbers[seen[0]])]
        return {f"{unit}s": len(seen), "share": share, "first": pair}, shown

    size = len(parts[0])
    repeated, shown = count(0, first[:size] != np.arange(size))
    if pair := repeated["first"]:
        shown += f" (rows {pair[0]} and {pair[1]})"
    text = f"{unit}s that occur again in {train}: {shown}"
    found.add(REPEATED, train, text, pair or ())
    found.numbers |= {"repeated": repeated, "in_train": {}}
    for part, name in enumerate(others, start=1):
        own = slice(ends[part - 1], ends[part])
        is_seen = first[own] < size
        shared, shown = count(part, is_seen)
        if conflict:
            # No row of training has the same texts and label.
            shared[conflict] = int(np.sum(first_pair[own][is_seen] >= size))
            if is_seen.any():
                shown += f", {shared[conflict]:,} {conflict.replace('_', ' ')}"
        if pair := shared["first"]:
            shown += f" (row {pair[0]} of {train}, row {pair[1]} of {name})"
        text = f"{unit}s of {name} that are in {train}: {shown}"
        found.add(IN_TRAIN, name, text, (pair or ())[1:])
        found.numbers["in_train"][name] = shared


def add_input_remarks(found: Examination) -> None:
    """Adds remarks on the tokens of training and on evaluated training rows."""
    train = found.numbers["train_split"]
    part = found.numbers["splits"][train]
    tokens = part["tokens"]
    if tokens["cut_share"] > _MUCH_CUT:
        text = (
            f"{percent(tokens['cut_share'])} of the inputs lose their end; "
            f"max_seq_length={tokens['percentiles']['99']} would cut 1 %."
        )
        found.add(REMARK, train, text)
    if tokens["unknown_word_share"] > MUCH_UNKNOWN:
        found.add(REMARK, train, UNKNOWN_TEXTS)
    if part["quoted"] >= _MANY_QUOTED:
        text = (
            f"{part['quoted']} texts keep their quotation marks, which look "
            "like those of CSV; if tabs divide the columns of a CSV, pass "
            "format=csv."
        )
        found.add(REMARK, train, text)
    for split, shared in found.numbers["in_train"].items():
        if shared["rows"]:
            text = (
                f"{split} scores will be inflated: {shared['rows']:,} of "
                "its rows are trained on; remove them from one side."
            )
            found.add(REMARK, split, text, (shared["first"] or ())[1:])
    if part["suspicious"]:
        kinds = ", ".join(DESCRIPTIONS[kind] for kind in part["suspicious"])
        found.add(REMARK, train, f"look at the rows of {train} with {kinds}.")


def not_in_train(
    splits: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, int]]:
    """The counts of names that the first split, to train on, lacks."""
    train, *others = splits
    return {
        split: {
            name: count
            for name, count in splits[split].items()
            if count and not splits[train].get(name)
        }
        for split in others
    }


def unknown_text(shown: str, words: Iterable[str]) -> str:
    """How much has no token, and the words that have none."""
    listed = ", ".join(map(excerpt, words))
    return f"unknown: {shown}" + (f": {listed}" if listed else "")


def percentiles(lengths: np.ndarray) -> dict[str, int]:
    """Percentiles of lengths by their percentage, as results.json has them."""
    found = np.percentile(lengths, _PERCENTILES, method="higher")
    return dict(zip(map(str, _PERCENTILES), map(int, found), strict=True))


def lengths_shown(lengths: Mapping[str, int]) -> str:
    """The return value of `percentiles` in words."""
    return ", ".join(
        f"{length} ({'longest' if share == '100' else share + ' %'})"
        for share, length in lengths.items()
    )


class InputCounts:
    """Counts tokens, suspicious characters and quoted cells of inputs.

    Args:
      inputs: a row for each sequence of the tokenizer, read once.
      tokenizer: the tokenizer of the model that will be trained.
      max_seq_length: the longest input in tokens.
      unit: what an input is called in the singular.
    """

    def __init__(
        self,
        inputs: Iterable[Row],
        tokenizer: Tokenizer,
        max_seq_length: int,
        unit: str = "row",
    ):
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._unit = unit
        # The lengths in tokens of each block of inputs.
        self._lengths: list[np.ndarray] = []
        self._num_pieces = self._num_words = self._num_unknown = 0
        self._rows_with_unknown = 0
        self._unknown_words: collections.Counter[str] = collections.Counter()
        self._num_marked, self._all_quoted = 0, True
        kinds = self._count(iter(inputs))
        self._suspicious = suspicious_fact(kinds, "rows", unit)

    def _count(
        self, inputs: Iterator[Row]
    ) -> Iterator[tuple[dict[str, str], int]]:
        """Counts a block at a time; yields what `suspicious_fact` takes."""
        while block := list(itertools.islice(inputs, _TEXTS_AT_A_TIME)):
            self._count_tokens(block)
            for row in block:
                kinds = suspicious(row.texts[-1])
                if len(row.texts) > 1:
                    kinds |= suspicious(row.texts[0])
                for text in row.texts:
                    if '"' in text:
                        self._num_marked += 1
                        is_cell = _QUOTED_CELL.fullmatch(text) is not None
                        self._all_quoted &= is_cell
                yield kinds, row.number

    def _count_tokens(self, block: Sequence[Row]) -> None:
        """Counts lengths in tokens and unknown words."""
        vocabulary = self._tokenizer.vocabulary
        num_texts = len(block[0].texts)
        special = self._tokenizer.packing.num_special(num_texts)
        lengths = np.full(len(block), special, np.int32)
        has_unknown = np.zeros(len(block), bool)
        for column in range(num_texts):
            texts = [row.texts[column] for row in block]
            ids = self._tokenizer.tokenize(texts)
            flat, counts = ids.values.numpy(), np.diff(ids.row_splits.numpy())
            is_unknown = flat == vocabulary.unk_id
            lengths += counts
            self._num_words += int(np.sum(vocabulary.starts_word[flat]))
            self._num_unknown += int(np.sum(is_unknown))
            numbers = np.repeat(np.arange(len(texts)), counts)
            rows = np.unique(numbers[is_unknown])
            has_unknown[rows] = True
            if len(rows):
                some = [texts[row] for row in rows]
                self._unknown_words.update(
                    _unknown_words(some, self._tokenizer)
                )
        self._num_pieces += int(np.sum(lengths)) - special * len(block)
        self._lengths.append(lengths)
        self._rows_with_unknown += int(np.sum(has_unknown))

    def facts(self, file: str) -> list[Fact]:
        """Returns the facts "tokens", "suspicious" and "quoted".

        Args:
          file: the file of the split.
        """
        longest = self._max_seq_length
        lengths = np.concatenate(self._lengths)
        truncated = int(np.sum(lengths > longest))
        common = self._unknown_words.most_common(UNKNOWN_WORDS)
        tokens: dict[str, Any] = {
            "percentiles": percentiles(lengths),
            "mean": float(lengths.mean()),
            "cut": truncated,
            "cut_share": truncated / len(lengths),
            "unknown_piece_share": self._num_unknown / max(self._num_pieces, 1),
            "unknown_word_share": self._num_unknown / max(self._num_words, 1),
            "rows_with_unknown": self._rows_with_unknown,
            "unknown_words": dict(common),
        }
        cut = f"{counted(truncated, self._unit)}, "
        cut += percent(tokens["cut_share"])
        texts = [
            f"tokens: {lengths_shown(tokens['percentiles'])}",
            f"cut at {longest} tokens: {cut}",
        ]
        # A byte-level vocabulary spells every word.
        if self._tokenizer.vocabulary.special.unk is not None:
            shown = (
                f"{percent(tokens['unknown_word_share'])} of words, in "
                f"{counted(self._rows_with_unknown, self._unit)}"
            )
            texts.append(unknown_text(shown, tokens["unknown_words"]))
        # In TSV, as in GLUE's files, quotation marks are ordinary characters,
        # and those in other places do not look like CSV.
        is_tsv = unpacked_name(file).endswith(".tsv")
        quoted = self._num_marked if is_tsv and self._all_quoted else 0
        return [
            Fact("tokens", tokens, texts),
            self._suspicious,
            Fact("quoted", quoted),
        ]


def _unknown_words(texts: list[str], tokenizer: Tokenizer) -> Iterator[str]:
    """Yields the words without tokens, as they are spelled in the texts."""
    ids, begins, ends = tokenizer.tokenize_with_offsets(texts)
    flat, counts = ids.values.numpy(), np.diff(ids.row_splits.numpy())
    rows = np.repeat(np.arange(len(texts)), counts)
    begins, ends = begins.values.numpy(), ends.values.numpy()
    for token in np.flatnonzero(flat == tokenizer.vocabulary.unk_id):
        yield texts[rows[token]][begins[token] : ends[token]][:30]


_QUOTED_CELL = re.compile(r'\s*"(?:[^"]|"")*"\s*')
# A single text in quotes may be meant that way.
_MANY_QUOTED = 2


# Kinds of characters that hint at an accident, and what they are called.
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
    """Kinds of suspicious characters in a text, each with its context."""
    patterns = _ANYWHERE if text.isascii() else {**_ANYWHERE, **_BEYOND_ASCII}
    found = {}
    for kind, pattern in patterns.items():
        match = pattern.search(text)
        if match:
            found[kind] = text[max(0, match.start() - 15) : match.end() + 15]
    return found


def suspicious_fact(
    found: Iterable[tuple[Mapping[str, str], int]], key: str, unit: str
) -> Fact:
    """Counts the texts with suspicious characters of each kind.

    Args:
      found: for each text, what `suspicious` returned, and its row.
      key: the key of the count.
      unit: what is counted, in the singular.
    """
    counts: dict[str, dict[str, Any]] = {}
    for kinds, row in found:
        for kind, context in kinds.items():
            first = {key: 0, "first_row": row, "excerpt": context}
            counts.setdefault(kind, first)[key] += 1
    texts = [
        f"{DESCRIPTIONS[kind]}: {counted(seen[key], unit)}, first row "
        f"{seen['first_row']}, {excerpt(seen['excerpt'])}"
        for kind, seen in counts.items()
    ]
    rows = [seen["first_row"] for seen in counts.values()]
    return Fact("suspicious", counts, texts, rows)
