"""Pre-training instances the plain way: the peer of records and their judge.

The algorithm of google-research/bert's create_pretraining_data.py written out
on lists: documents in memory, token by token truncation, one tf.train.Example
at a time. Slow and simple, to compare speed, distributions and features with.
"""

import dataclasses
import random
from collections.abc import Sequence

Document = list[list[int]]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The ids that the algorithm needs to know."""

    cls_id: int
    sep_id: int
    mask_id: int
    size: int
    continuations: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class Lengths:
    """The recipe's numbers."""

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    # google-research/albert: sentence order instead of next sentences.
    swaps: bool = False


@dataclasses.dataclass(frozen=True)
class Instance:
    """A masked pair; positions are sorted."""

    tokens: list[int]
    segment_ids: list[int]
    positions: list[int]
    labels: list[int]
    is_random: bool


def truncate(a: list[int], b: list[int], most: int, rng: random.Random) -> None:
    """Drops tokens one by one from the longer list."""
    while len(a) + len(b) > most:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask(
    tokens: list[int],
    vocabulary: Vocabulary,
    lengths: Lengths,
    rng: random.Random,
) -> tuple[list[int], list[int], list[int]]:
    """Masks tokens, or whole words where continuations are known."""
    groups: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token in (vocabulary.cls_id, vocabulary.sep_id):
            continue
        if groups and token in vocabulary.continuations:
            groups[-1].append(place)
        else:
            groups.append([place])
    rng.shuffle(groups)
    wanted = min(
        lengths.max_predictions_per_seq,
        max(1, round(len(tokens) * lengths.masked_lm_prob)),
    )
    chosen: list[int] = []
    for group in groups:
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(group) <= wanted:
            chosen += group
    masked = list(tokens)
    for place in chosen:
        if rng.random() < 0.8:
            masked[place] = vocabulary.mask_id
        elif rng.random() >= 0.5:
            masked[place] = rng.randrange(vocabulary.size)
    chosen.sort()
    return masked, chosen, [tokens[place] for place in chosen]


def document_instances(
    documents: Sequence[Document],
    index: int,
    vocabulary: Vocabulary,
    lengths: Lengths,
    rng: random.Random,
) -> list[Instance]:
    """The instances of one document in one pass."""
    document = documents[index]
    most = lengths.max_seq_length - 3
    target = most
    if rng.random() < lengths.short_seq_prob:
        target = rng.randint(2, most)
    instances, chunk, length, i = [], [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            b: list[int] = []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if len(chunk) == 1 or (is_random and not lengths.swaps):
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != index:
                        break
                start = rng.randint(0, len(documents[other]) - 1)
                for sentence in documents[other][start:]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
                if is_random:
                    a, b = b, a
            truncate(a, b, most, rng)
            tokens = [vocabulary.cls_id, *a, vocabulary.sep_id]
            segments = [0] * len(tokens) + [1] * (len(b) + 1)
            tokens += [*b, vocabulary.sep_id]
            masked, positions, labels = mask(tokens, vocabulary, lengths, rng)
            instances.append(
                Instance(masked, segments, positions, labels, is_random)
            )
            chunk, length = [], 0
        i += 1
    return instances


def all_instances(
    documents: Sequence[Document],
    vocabulary: Vocabulary,
    lengths: Lengths,
    dupe_factor: int,
    seed: int,
) -> list[Instance]:
    """The instances of all documents and passes, shuffled."""
    rng = random.Random(seed)
    documents = list(documents)
    rng.shuffle(documents)
    instances = []
    for _ in range(dupe_factor):
        for index in range(len(documents)):
            instances += document_instances(
                documents, index, vocabulary, lengths, rng
            )
    rng.shuffle(instances)
    return instances


def features(
    instance: Instance, lengths: Lengths
) -> dict[str, list[int] | list[float]]:
    """The features of one record, zero-padded."""

    def padded(values: list, size: int) -> list:
        return values + [0] * (size - len(values))

    sequence, predictions = (
        lengths.max_seq_length,
        lengths.max_predictions_per_seq,
    )
    weights = [1.0] * len(instance.labels)
    return {
        "input_ids": padded(instance.tokens, sequence),
        "input_mask": padded([1] * len(instance.tokens), sequence),
        "segment_ids": padded(instance.segment_ids, sequence),
        "masked_lm_positions": padded(instance.positions, predictions),
        "masked_lm_ids": padded(instance.labels, predictions),
        "masked_lm_weights": [float(w) for w in padded(weights, predictions)],
        "next_sentence_labels": [int(instance.is_random)],
    }


def write(path: str, instances: Sequence[Instance], lengths: Lengths) -> None:
    """Writes a TFRecord file with TensorFlow's own writer."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(path) as writer:
        for instance in instances:
            example = tf.train.Example()
            for name, values in features(instance, lengths).items():
                if name == "masked_lm_weights":
                    example.features.feature[name].float_list.value.extend(
                        values
                    )
                else:
                    example.features.feature[name].int64_list.value.extend(
                        values
                    )
            writer.write(example.SerializeToString())
