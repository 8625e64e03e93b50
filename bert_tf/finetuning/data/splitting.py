"""Splitting dev rows off the training rows: seeded and stratified."""

import collections
from collections.abc import Hashable, Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example

# Numbers are stratified by tenths of their distribution.
_BINS = 10


def split_off_dev(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Splits examples in two, each label in the same proportion.

    Rows of the same text stay on one side, so that none is seen in training.

    Args:
      examples: examples with labels: classes, numbers or sets of labels.
      share: of the rows that become dev.
      seed: of the draw.

    Returns:
      The training and the dev examples, each in the order of the file.

    Raises:
      UserError: too few rows to give both sides some.
    """
    strata: dict[Hashable, dict[Hashable, list[int]]] = {}
    text_stratum: dict[Hashable, Hashable] = {}
    labels = _stratum_of_each([example.label for example in examples])
    for index, (example, label) in enumerate(
        zip(examples, labels, strict=True)
    ):
        key = text_key(example)
        stratum = text_stratum.setdefault(key, label)
        strata.setdefault(stratum, {}).setdefault(key, []).append(index)
    generator = np.random.default_rng(seed)
    dev: set[int] = set()
    wanted = 0.0
    # Rare labels first: what they cannot give is made up for by the others.
    order = sorted(strata, key=lambda label: (len(strata[label]), str(label)))
    for stratum in order:
        groups = list(strata[stratum].values())
        wanted += share * sum(map(len, groups))
        # One text of each label stays for training.
        for place in generator.permutation(len(groups))[:-1]:
            group = groups[place]
            if len(dev) + len(group) / 2 <= wanted:
                dev.update(group)
    if not dev:
        raise UserError(
            f"{examples[0].path}: {len(examples)} rows of {len(strata)} "
            f"different labels leave none for dev at dev_share={share}, since "
            "a text of each label stays for training; is label_column right? "
            "If so, pass `dev_file`=... or a larger `dev_share`."
        )
    train = [e for i, e in enumerate(examples) if i not in dev]
    return train, [e for i, e in enumerate(examples) if i in dev]


def text_key(example: Example) -> tuple[str, str | None]:
    """What makes two rows the same text: all but white space at the ends."""
    text_b = example.text_b
    return example.text_a.strip(), text_b.strip() if text_b else text_b


def _stratum_of_each(labels: Sequence) -> list[Hashable]:
    """The stratum of each row."""
    if isinstance(labels[0], float):
        edges = np.quantile(labels, np.arange(1, _BINS) / _BINS)
        return [int(bin_) for bin_ in np.searchsorted(edges, labels)]
    if isinstance(labels[0], tuple):
        # A set of labels is a class of its own, unless it is rare.
        counts = collections.Counter(labels)
        return [label if counts[label] > 1 else () for label in labels]
    return list(labels)
