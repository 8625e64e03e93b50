"""Data doctor of multiple choice."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.families import checks
from bert_tf.families.checks import Fact, counted, percent
from bert_tf.families.multiple_choice.files import ChoiceExample
from bert_tf.families.multiple_choice.recipe import ChoiceRecipe
from bert_tf.text.tokenizer_protocol import Tokenizer

# A position with more than this many times its even share is remarked on.
_UNEVEN = 2.0


def examine(
    task: Any,
    recipe: ChoiceRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[ChoiceExample]],
) -> checks.Examination:
    """Counts choices, positions of the correct ones, lengths and repeats.

    See `Task.examine`.
    """
    found = checks.examine(
        task.name,
        {
            name: _split_rows(examples, tokenizer, recipe.max_seq_length)
            for name, examples in splits.items()
        },
        recipe.max_seq_length,
    )
    train = found.numbers["train_split"]
    contexts = {example.context.strip() for example in splits[train]}
    for split, shared in found.numbers["in_train"].items():
        count = sum(e.context.strip() in contexts for e in splits[split])
        shared["contexts"] = count
        text = f"{split} with a context of {train}: {counted(count)}"
        found.add(checks.IN_TRAIN, split, text)
    checks.add_input_remarks(found)
    part = found.numbers["splits"][train]
    for position, count in part["right"].items():
        if count > _UNEVEN * part["right_if_even"][position]:
            text = (
                f"the right choice is at position {position} far more often "
                "than by chance; is label_column right?"
            )
            found.add(checks.REMARK, train, text)
    return found


def _split_rows(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, max_seq_length: int
) -> checks.SplitRows:
    """Returns the rows of a split with counts and positions of choices."""
    path = examples[0].path
    sizes = collections.Counter(len(e.choices) for e in examples)
    right = collections.Counter(e.label for e in examples)
    # Counts by chance: only rows with many choices have the last positions.
    even = dict.fromkeys(range(max(sizes)), 0.0)
    for size, count in sizes.items():
        for position in range(size):
            even[position] += count / size
    # A row is the same in any order of its choices.
    rows = checks.ComparedRows(
        checks.Row(e.row, (e.context, e.start, *sorted(_stripped(e))))
        for e in examples
    )
    # The model reads a pair for each choice.
    inputs = (
        checks.Row(e.row, (e.context, f"{e.start} {choice}".lstrip()))
        for e in examples
        for choice in e.choices
    )
    tokens = checks.InputCounts(inputs, tokenizer, max_seq_length, "choice")
    twice = sum(len(set(_stripped(e))) < len(e.choices) for e in examples)
    choices = ", ".join(
        f"{size} in {counted(sizes[size])}" for size in sorted(sizes)
    )
    positions = ", ".join(
        f"{n} {right[n]:,} ({percent(right[n] / len(rows))})" for n in even
    )
    facts = [
        Fact("inputs", sum(len(e.choices) for e in examples)),
        Fact(
            "choices",
            {str(size): sizes[size] for size in sorted(sizes)},
            [f"choices: {choices}"],
        ),
        Fact(
            "right",
            {str(n): right[n] for n in even},
            [f"right ones, by position: {positions}"],
        ),
        Fact("right_if_even", {str(n): count for n, count in even.items()}),
        Fact(
            "same_choice_twice",
            twice,
            [f"one choice twice: {counted(twice)}"] if twice else (),
        ),
        *tokens.facts(path),
    ]
    return checks.SplitRows(path, rows, counted(len(rows)), facts)


def _stripped(example: ChoiceExample) -> list[str]:
    return [choice.strip() for choice in example.choices]
