"""Looks choices over before a model is trained on them."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.errors import excerpt
from bert_tf.finetuning.choices.choice_file import ChoiceExample
from bert_tf.finetuning.choices.choice_recipe import ChoiceRecipe
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.doctor import data_doctor
from bert_tf.finetuning.doctor.lines import (
    MUCH_CUT,
    MUCH_UNKNOWN,
    UNKNOWN_WORDS,
    lengths_shown,
    percent,
)
from bert_tf.finetuning.doctor.suspicious_text import DESCRIPTIONS
from bert_tf.text.tokenizer import BertTokenizer

# Above this many times its even share, one position is suspicious.
_UNEVEN = 2.0


def examine(
    task: str,
    recipe: ChoiceRecipe,
    tokenizer: BertTokenizer,
    splits: Mapping[str, Sequence[ChoiceExample]],
) -> dict[str, Any]:
    """Looks the training and dev rows over.

    Args:
      task: the name of the task.
      recipe: says max_seq_length.
      tokenizer: of the model that will be trained.
      splits: split to its examples; the first one is the one to train on.

    Returns:
      Numbers of types that JSON knows, and what to tell of them as "lines".
    """
    inputs = {split: _inputs(examples) for split, examples in splits.items()}
    found = data_doctor.examine(task, "classes", (), recipe, tokenizer, inputs)
    parts = {
        split: _counts(examples)
        | {key: found["splits"][split][key] for key in ("tokens", "suspicious")}
        for split, examples in splits.items()
    }
    train, *others = splits
    numbers = {
        "task": task,
        "max_seq_length": recipe.max_seq_length,
        "train_split": train,
        "splits": parts,
        "repeated": _repeated(splits[train]),
        "in_train": {
            split: _shared(splits[train], splits[split]) for split in others
        },
    }
    return numbers | {"lines": list(_lines(numbers))}


def _inputs(examples: Sequence[ChoiceExample]) -> list[Example]:
    """What a model is shown: a pair for every choice."""
    return [
        Example(
            example.context,
            f"{example.start} {choice}".lstrip(),
            None,
            example.identifier,
            example.row,
            example.path,
        )
        for example in examples
        for choice in example.choices
    ]


def _counts(examples: Sequence[ChoiceExample]) -> dict[str, Any]:
    """Rows, choices of each, and where the right ones stand."""
    sizes = collections.Counter(len(e.choices) for e in examples)
    right = collections.Counter(e.label for e in examples)
    # What guessing gives: of rows with more choices, few are at a position.
    even = dict.fromkeys(range(max(sizes)), 0.0)
    for size, count in sizes.items():
        for place in range(size):
            even[place] += count / size
    return {
        "file": examples[0].path,
        "rows": len(examples),
        "inputs": sum(size * count for size, count in sizes.items()),
        "choices": {str(size): sizes[size] for size in sorted(sizes)},
        "right": {str(place): right[place] for place in range(max(sizes))},
        "right_if_even": {str(place): even[place] for place in even},
        "same_choice_twice": sum(
            len({choice.strip() for choice in e.choices}) < len(e.choices)
            for e in examples
        ),
    }


def _key(example: ChoiceExample) -> tuple[str, ...]:
    """What makes two rows the same: all but the order of the choices."""
    choices = sorted(choice.strip() for choice in example.choices)
    return (example.context.strip(), example.start.strip(), *choices)


def _repeated(examples: Sequence[ChoiceExample]) -> dict[str, Any]:
    """Rows that an earlier row is the same as."""
    first: dict[tuple[str, ...], int] = {}
    again = [e for e in examples if first.setdefault(_key(e), e.row) != e.row]
    return {
        "rows": len(again),
        "first": [first[_key(again[0])], again[0].row] if again else None,
    }


def _shared(
    train: Sequence[ChoiceExample], others: Sequence[ChoiceExample]
) -> dict[str, Any]:
    """Rows that are among the training rows too, or their contexts."""
    known: dict[tuple[str, ...], int] = {}
    for example in train:
        known.setdefault(_key(example), example.row)
    contexts = {example.context.strip() for example in train}
    seen = [e for e in others if _key(e) in known]
    return {
        "rows": len(seen),
        "first": [known[_key(seen[0])], seen[0].row] if seen else None,
        "contexts": sum(e.context.strip() in contexts for e in others),
    }


def _lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    yield f"data of {numbers['task']}:"
    for split, part in numbers["splits"].items():
        yield from _split_lines(split, part, numbers["max_seq_length"])
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
    for remark in _remarks(numbers):
        yield f"  remark: {remark}"


def _places(rows: Sequence[int] | None) -> str:
    return f" (rows {rows[0]} and {rows[1]})" if rows else ""


def _split_lines(
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
        f"{place} {count:,} ({percent(count / rows)})"
        for place, count in part["right"].items()
    )
    yield f"    right ones, by position: {right}"
    tokens = part["tokens"]
    lengths = lengths_shown(tokens["percentiles"])
    yield f"    tokens of a choice with its text: {lengths}"
    yield (
        f"    cut at {max_seq_length} tokens: {tokens['cut']:,} of "
        f"{part['inputs']:,} choices, {percent(tokens['cut_share'])}"
    )
    words = ", ".join(excerpt(word) for word in tokens["unknown_words"])
    yield (
        f"    [UNK]: {percent(tokens['unknown_word_share'])} of words"
        f"{': ' if words else ''}{words}"
    )
    if part["same_choice_twice"]:
        yield f"    rows with one choice twice: {part['same_choice_twice']:,}"
    for kind, seen in part["suspicious"].items():
        yield (
            f"    {DESCRIPTIONS[kind]}: in {seen['rows']:,} choices or their "
            f"texts, first row {seen['first_row']}, {excerpt(seen['excerpt'])}"
        )


def _remarks(numbers: Mapping[str, Any]) -> Iterator[str]:
    train = numbers["splits"][numbers["train_split"]]
    tokens = train["tokens"]
    if tokens["cut_share"] > MUCH_CUT:
        yield (
            f"{percent(tokens['cut_share'])} of the choices or their texts "
            f"lose their end; max_seq_length={tokens['percentiles']['99']} "
            "would cut 1 %."
        )
    if tokens["unknown_word_share"] > MUCH_UNKNOWN:
        yield UNKNOWN_WORDS
    for place, count in train["right"].items():
        if count > _UNEVEN * train["right_if_even"][place]:
            yield (
                f"the right choice is at position {place} far more often than "
                "chance has it; is label_column right?"
            )
    for split, shared in numbers["in_train"].items():
        if shared["rows"]:
            yield (
                f"{split} scores will flatter: {shared['rows']:,} of its rows "
                "are trained on; remove them from one side."
            )
