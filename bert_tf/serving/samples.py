"""Texts of several lengths, with which a model is checked and warmed up."""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.serving.rows import lengths_up_to

_TEXT = """
The ferry to the island leaves at seven in the morning, and by half past six
the quay is full of people with bicycles, baskets and small dogs. Anna Larsen
has sold tickets here since 1998; she knows most of the passengers by name.
"It was quieter then," she says, "but nobody had time for coffee." In summer
more than 2,000 visitors cross the sound each day, three times as many as in
winter, when the boat belongs to the teachers of the school in Nordby and to
the engineers of the Baltic Wind Company. The crossing takes forty minutes. On
the left one sees the lighthouse, which was built in 1854 after the wreck of
the Margaret; on the right, if the fog allows it, the towers of Copenhagen.
Those who have made the journey often do not look up from their newspapers.
The others stand at the rail, wait for the gulls and take the same photograph
again and again. Is it worth the fare? Most of them would say yes: the bread
from Mr. Holm's bakery alone, still warm at eight o'clock, is a good reason to
come back.
"""
_WORDS = tuple(_TEXT.split())
# Fewer words than tokens, so that a text stays within its length.
_WORDS_A_TOKEN = 0.7
QUESTIONS = (
    "When does the ferry leave?",
    "Who sells the tickets?",
    "How long does the crossing take?",
    "What was built in 1854?",
)


def sample_text(words: int, start: int = 0) -> str:
    """A text of so many words."""
    endless = itertools.cycle(_WORDS)
    return " ".join(itertools.islice(endless, start, start + words))


def sample_lengths(max_seq_length: int) -> list[int]:
    """Words of texts that fill each of the lengths that rows are padded to."""
    lengths = lengths_up_to(max_seq_length)
    return [max(int(_WORDS_A_TOKEN * length), 1) for length in lengths]


def sample_texts(max_seq_length: int, columns: int) -> list[tuple[str, ...]]:
    """A row of one or two texts for each length, and an empty one."""
    rows = []
    for words in sample_lengths(max_seq_length):
        share = max(words // columns, 1)
        rows.append(
            tuple(sample_text(share, 7 * number) for number in range(columns))
        )
    return [*rows, ("",) * columns]


def example_bytes(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of strings as serialized tf.Examples."""
    found = np.empty(len(next(iter(columns.values()))), object)
    for row in range(len(found)):
        example = tf.train.Example()
        for name, values in columns.items():
            feature = example.features.feature[name]
            feature.bytes_list.value.append(values[row])
        found[row] = example.SerializeToString()
    return found
