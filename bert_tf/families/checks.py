"""The data doctor: examines the rows of a task before training.

`examine` counts what the rows of every family have in common and describes it
in findings: duplicates, rows that are trained on and evaluated, tokens,
truncation, unknown words and characters that hint at an accident. A family
adds what only its rows have.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from bert_tf.errors import excerpt, first_few
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
        return tuple(text.strip() for text in self.texts)


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


class SplitRows(NamedTuple):
    """The rows of a split, and what only its family counts.

    Attributes:
      file: the file of the split.
      rows: its rows.
      title: the number of rows and the like, in words.
      inputs: what the model reads: a row for each sequence of the tokenizer,
        or none if the family counts tokens itself.
      facts: what the family counts.
    """

    file: str
    rows: Sequence[Row]
    title: str
    inputs: Sequence[Row] = ()
    facts: Sequence[Fact] = ()

    @classmethod
    def of_examples(cls, examples: Sequence[Any]) -> Self:
        """The rows of examples with `texts`, each an input of the model."""
        rows = [Row(e.row, e.texts, e.label) for e in examples]
        pairs = ", pairs" * (len(rows[0].texts) == 2)
        files = first_few(list(dict.fromkeys(e.path for e in examples)))
        return cls(files, rows, f"{counted(len(rows))}{pairs}", rows)


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
    tokenizer: Tokenizer,
    max_seq_length: int,
    unit: str = "row",
    input_unit: str = "row",
    conflict: str = "",
) -> Examination:
    """Examines the rows of a task.

    Args:
      task: the name of the task.
      splits: split to its rows, the one to train on first.
      tokenizer: the tokenizer of the model that will be trained.
      max_seq_length: the longest input in tokens.
      unit: what a row is called in the singular.
      input_unit: what a sequence of tokens is called.
      conflict: the key of how many rows have a label that the same row in
        training does not have; empty to leave them uncounted.
    """
    facts = {
        name: [
            Fact(f"{unit}s", len(split.rows)),
            *split.facts,
            *_input_facts(split, max_seq_length, input_unit, tokenizer),
        ]
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
    rows = {name: SplitRows.of_examples(part) for name, part in splits.items()}
    found = examine(task.name, rows, tokenizer, recipe.max_seq_length)
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
    first: dict[Hashable, int] = {}
    labels = collections.defaultdict(set)
    count, pair = 0, None
    for row in splits[train].rows:
        if row.key in first:
            count += 1
            if row.number:
                pair = pair or [first[row.key], row.number]
        first.setdefault(row.key, row.number)
        labels[row.key].add(row.label)
    share = count / max(len(splits[train].rows), 1)
    shown = counted(count, unit) + f", {percent(share)}" * bool(count)
    if pair:
        shown += f" (rows {pair[0]} and {pair[1]})"
    text = f"{unit}s that occur again in {train}: {shown}"
    found.add(REPEATED, train, text, pair or ())
    repeated = {f"{unit}s": count, "share": share, "first": pair}
    found.numbers |= {"repeated": repeated, "in_train": {}}
    for name in others:
        seen = [row for row in splits[name].rows if row.key in first]
        share = len(seen) / max(len(splits[name].rows), 1)
        both = next(([first[x.key], x.number] for x in seen if x.number), None)
        numbers = {f"{unit}s": len(seen), "share": share, "first": both}
        shown = counted(len(seen), unit) + f", {percent(share)}" * bool(seen)
        if conflict:
            conflicts = sum(x.label not in labels[x.key] for x in seen)
            numbers[conflict] = conflicts
            if seen:
                shown += f", {conflicts:,} {conflict.replace('_', ' ')}"
        if both:
            shown += f" (row {both[0]} of {train}, row {both[1]} of {name})"
        text = f"{unit}s of {name} that are in {train}: {shown}"
        found.add(IN_TRAIN, name, text, (both or ())[1:])
        found.numbers["in_train"][name] = numbers


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


def _input_facts(
    split: SplitRows, max_seq_length: int, unit: str, tokenizer: Tokenizer
) -> Iterator[Fact]:
    """Counts tokens, suspicious characters and quoted cells of the inputs."""
    inputs = split.inputs
    if not inputs:
        return
    tokens = _count_tokens(inputs, max_seq_length, tokenizer)
    cut = f"{counted(tokens['cut'], unit)}, {percent(tokens['cut_share'])}"
    texts = [
        f"tokens: {lengths_shown(tokens['percentiles'])}",
        f"cut at {max_seq_length} tokens: {cut}",
    ]
    # A byte-level vocabulary spells every word.
    if tokenizer.vocabulary.special.unk is not None:
        shown = (
            f"{percent(tokens['unknown_word_share'])} of words, in "
            f"{counted(tokens['rows_with_unknown'], unit)}"
        )
        texts.append(unknown_text(shown, tokens["unknown_words"]))
    yield Fact("tokens", tokens, texts)
    kinds = (
        (suspicious(row.texts[-1]) | suspicious(row.texts[0]), row.number)
        for row in inputs
    )
    yield suspicious_fact(kinds, "rows", unit)
    yield Fact("quoted", _num_quoted(split))


def _count_tokens(
    inputs: Sequence[Row], max_seq_length: int, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Counts lengths in tokens, truncated inputs and unknown words."""
    vocabulary = tokenizer.vocabulary
    num_texts = len(inputs[0].texts)
    pieces = np.zeros(len(inputs), np.int64)
    has_unknown = np.zeros(len(inputs), bool)
    num_words = num_unknown = 0
    unknown_words: collections.Counter[str] = collections.Counter()
    begins = range(0, len(inputs), _TEXTS_AT_A_TIME)
    for begin, column in itertools.product(begins, range(num_texts)):
        block = inputs[begin : begin + _TEXTS_AT_A_TIME]
        texts = [row.texts[column] for row in block]
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
    lengths = pieces + tokenizer.packing.num_special(num_texts)
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


def _num_quoted(split: SplitRows) -> int:
    """Counts texts of a TSV file that are quoted like cells of CSV.

    In TSV, as in GLUE's files, quotation marks are ordinary characters. It is 0
    if they occur in another place.
    """
    if not unpacked_name(split.file).endswith(".tsv"):
        return 0
    texts = [text for row in split.inputs for text in row.texts]
    marked = [text for text in texts if '"' in text]
    return len(marked) if all(map(_QUOTED_CELL.fullmatch, marked)) else 0


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
