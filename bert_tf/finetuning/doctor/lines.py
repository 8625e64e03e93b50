"""The data doctor's numbers as lines for a person."""

from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.errors import excerpt
from bert_tf.finetuning.doctor.suspicious_text import DESCRIPTIONS

_LABELS_SHOWN = 12
# From here on a share is worth a remark.
MUCH_CUT, MUCH_UNKNOWN = 0.05, 0.02
UNKNOWN_WORDS = (
    "many words are unknown to this vocabulary; is it of this language, cased "
    "or uncased as the texts are?"
)


def lines(numbers: Mapping[str, Any]) -> str:
    """What `data_doctor.check` found, as text.

    Args:
      numbers: its result.

    Returns:
      Lines without a line end behind the last one.
    """
    found = [f"data of {numbers['task']}:"]
    for split, part in numbers["splits"].items():
        found += _split_lines(split, part, numbers["max_seq_length"])
    found += _repeats(numbers)
    found += [f"  remark: {remark}" for remark in remarks(numbers)]
    return "\n".join(found)


def _split_lines(
    split: str, part: Mapping[str, Any], max_seq_length: int
) -> Iterator[str]:
    pair = ", pairs" if part["texts_per_row"] == 2 else ""
    yield f"  {split}: {_rows(part['rows'])}{pair} ({part['file']})"
    yield f"    labels: {_labels(part)}"
    tokens = part["tokens"]
    yield f"    tokens: {lengths_shown(tokens['percentiles'])}"
    yield (
        f"    cut at {max_seq_length} tokens: {_rows(tokens['cut'])}, "
        f"{percent(tokens['cut_share'])}"
    )
    words = ", ".join(excerpt(word) for word in tokens["unknown_words"])
    yield (
        f"    [UNK]: {percent(tokens['unknown_word_share'])} of words, in "
        f"{_rows(tokens['rows_with_unknown'])}{': ' if words else ''}{words}"
    )
    if part["empty_texts"]:
        yield f"    empty texts: {_rows(part['empty_texts'])}"
    for kind, seen in part["suspicious"].items():
        yield (
            f"    {DESCRIPTIONS[kind]}: {_rows(seen['rows'])}, first row "
            f"{seen['first_row']}, {excerpt(seen['excerpt'])}"
        )


def _labels(part: Mapping[str, Any]) -> str:
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
            f"{_rows(labels['rows_without'])} without"
        )
    return shown


def _repeats(numbers: Mapping[str, Any]) -> Iterator[str]:
    repeated, train = numbers["repeated"], numbers["train_split"]
    line = f"  texts that occur again in {train}: {_rows(repeated['rows'])}"
    if repeated["rows"]:
        first, second = repeated["first"]
        line += f", {percent(repeated['share'])} (rows {first} and {second})"
    yield line
    for split, shared in numbers["in_train"].items():
        line = (
            f"  texts of {split} that are in {train}: {_rows(shared['rows'])}"
        )
        if shared["rows"]:
            first, second = shared["first"]
            line += (
                f", {percent(shared['share'])}, {shared['with_another_label']}"
                f" with another label (row {first} of {train}, row {second} of "
                f"{split})"
            )
        yield line


def remarks(numbers: Mapping[str, Any]) -> Iterator[str]:
    """What is worth doing something about, and what would do."""
    train = numbers["splits"][numbers["train_split"]]
    tokens = train["tokens"]
    if tokens["cut_share"] > MUCH_CUT:
        yield (
            f"{percent(tokens['cut_share'])} of the inputs lose their end; "
            f"max_seq_length={tokens['percentiles']['99']} would cut 1 %."
        )
    if tokens["unknown_word_share"] > MUCH_UNKNOWN:
        yield UNKNOWN_WORDS
    contradicting = numbers["repeated"]["contradicting_texts"]
    if contradicting:
        yield (
            f"{contradicting} texts have two labels; the first is row "
            f"{numbers['repeated']['first_contradicting_row']}."
        )
    for split, shared in numbers["in_train"].items():
        if shared["rows"]:
            yield (
                f"{split} scores will flatter: {shared['rows']} of its rows "
                "are trained on; remove them from one side."
            )
    for split, labels in numbers["labels_not_in_train"].items():
        for label, count in labels.items():
            yield (
                f"label {excerpt(label)} of {split} ({_rows(count)}) is not in "
                f"{numbers['train_split']}."
            )
    if train["labels"].get("majority_share", 0) > 0.9:
        yield (
            "one label has more than 90 % of the rows; look at macro F1, and "
            "try class_weights=balanced."
        )
    for split, part in numbers["splits"].items():
        if part["suspicious"] and split == numbers["train_split"]:
            kinds = ", ".join(DESCRIPTIONS[kind] for kind in part["suspicious"])
            yield f"look at the rows of {split} with {kinds}."


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def lengths_shown(percentiles: Mapping[str, int]) -> str:
    """Lengths, each with the share of rows that have no more."""
    return ", ".join(
        f"{length} ({'longest' if share == '100' else share + ' %'})"
        for share, length in percentiles.items()
    )


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"
