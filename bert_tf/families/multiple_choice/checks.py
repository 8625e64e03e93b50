"""What the data doctor examines in rows of a text and its choices."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.families import checks
from bert_tf.families.checks import Finding, counted, percent
from bert_tf.families.data.examples import Example
from bert_tf.families.multiple_choice.files import ChoiceExample
from bert_tf.text.tokenizer_protocol import Tokenizer

# Above this many times its even share, one position is suspicious.
_UNEVEN = 2.0


def examine_choices(
    task: str,
    max_seq_length: int,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[ChoiceExample]],
) -> checks.Examination:
    """Examines rows of a text and its choices; see `Task.examine`."""
    rows = {
        name: [checks.RowKey(_key_of(e), e.row) for e in examples]
        for name, examples in splits.items()
    }
    train = next(iter(splits))
    repeated, pair = checks.repeats(rows[train])
    contexts = {example.context.strip() for example in splits[train]}
    numbers: dict[str, Any] = {
        "task": task,
        "max_seq_length": max_seq_length,
        "train_split": train,
        "splits": {
            split: _counts(examples, max_seq_length, tokenizer)
            for split, examples in splits.items()
        },
        "repeated": {"rows": repeated, "first": pair},
        "in_train": {
            split: {
                "rows": shared["rows"],
                "first": shared["first"],
                "contexts": sum(
                    e.context.strip() in contexts for e in splits[split]
                ),
            }
            for split, shared in checks.overlaps(rows).items()
        },
    }
    return checks.Examination.of(numbers, _findings(numbers)).with_lines()


def _key_of(example: ChoiceExample) -> tuple[str, ...]:
    """What makes two rows the same: all but the order of the choices."""
    choices = sorted(choice.strip() for choice in example.choices)
    return (example.context.strip(), example.start.strip(), *choices)


def _counts(
    examples: Sequence[ChoiceExample],
    max_seq_length: int,
    tokenizer: Tokenizer,
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
        Example(e.context, text.lstrip(), None, e.identifier, e.row, e.path)
        for e in examples
        for text in (f"{e.start} {choice}" for choice in e.choices)
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
        **checks.count_texts(inputs, max_seq_length, tokenizer),
    }


def _findings(numbers: Mapping[str, Any]) -> Iterator[Finding]:
    for split, part in numbers["splits"].items():
        text = f"{split}: {counted(part['rows'])} ({part['file']})"
        yield Finding(checks.SPLIT, text, split)
        shown = ", ".join(
            f"{size} in {counted(count)}"
            for size, count in part["choices"].items()
        )
        yield Finding("choices", f"choices: {shown}", split)
        shown = ", ".join(
            f"{place} {count:,} ({percent(count / part['rows'])})"
            for place, count in part["right"].items()
        )
        yield Finding("right", f"right ones, by position: {shown}", split)
        longest = numbers["max_seq_length"]
        yield from checks.text_findings(split, part, longest, "choice")
        if part["same_choice_twice"]:
            text = f"one choice twice: {counted(part['same_choice_twice'])}"
            yield Finding("same_choice_twice", text, split)
    yield checks.repeated_finding(numbers)
    yield from checks.in_train_findings(
        numbers,
        also=lambda shared: (
            f"; with a context that is: {counted(shared['contexts'])}"
        ),
    )
    yield from checks.token_remarks(numbers, "choices or their texts")
    train = numbers["train_split"]
    part = numbers["splits"][train]
    for place, count in part["right"].items():
        if count > _UNEVEN * part["right_if_even"][place]:
            text = (
                f"the right choice is at position {place} far more often than "
                "chance has it; is label_column right?"
            )
            yield Finding(checks.REMARK, text, train)
    yield from checks.inflated_scores(numbers)
