"""Records and those of the plain algorithm, over 50,000 of each.

Both are made from the same corpora, one after the other, with other chance. A
number is compared by its differences corpus by corpus: their mean must be zero
within what their own spread allows, which takes into account that records of
one corpus are not independent.
"""

import numpy as np
import pytest
import tensorflow as tf
from records_corpus import VOCABULARY, documents

from benchmarks import reference_records as reference
from bert_tf.records.instances import make_instances
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.shards import static_records
from bert_tf.records.token_blocks import Documents

V = VOCABULARY
CORPORA = 250
LENGTH, PREDICTIONS = 64, 8
RECIPE = RecordsRecipe(
    max_seq_length=LENGTH,
    max_predictions_per_seq=PREDICTIONS,
    static_masking=True,
    dupe_factor=3,
)
# Standard errors that a mean difference may have: by the normal distribution
# one of fifteen numbers is beyond them once in a thousand times.
MOST_ERRORS = 4.0
Columns = dict[str, np.ndarray]


def ours(corpus: list, seed: int) -> Columns:
    """Records as they are written, read by TensorFlow."""
    sizes = [len(sentence) for document in corpus for sentence in document]
    flat = Documents(
        np.array([x for d in corpus for s in d for x in s], np.uint16),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([[0], np.cumsum([len(d) for d in corpus])]),
    )
    made = make_instances(flat, len(corpus), RECIPE, f"instances {seed}")
    records = static_records(flat.ids, made, RECIPE, V, f"masks {seed}")
    sizes = {
        "input_ids": LENGTH,
        "input_mask": LENGTH,
        "segment_ids": LENGTH,
        "masked_lm_positions": PREDICTIONS,
        "masked_lm_ids": PREDICTIONS,
        "next_sentence_labels": 1,
    }
    parsed = tf.io.parse_example(
        list(records),
        {n: tf.io.FixedLenFeature([k], tf.int64) for n, k in sizes.items()}
        | {"masked_lm_weights": tf.io.FixedLenFeature([PREDICTIONS], "float")},
    )
    return {name: value.numpy() for name, value in parsed.items()}


def theirs(corpus: list, seed: int) -> Columns:
    """The same features by the plain algorithm."""
    ids = reference.Vocabulary(V.cls_id, V.sep_id, V.mask_id, len(V))
    lengths = reference.Lengths(LENGTH, PREDICTIONS)
    made = reference.all_instances(
        corpus, ids, lengths, RECIPE.dupe_factor, seed
    )
    rows = [reference.features(instance, lengths) for instance in made]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def numbers(columns: Columns) -> dict[str, float]:
    """What is compared of the records of a corpus."""
    lengths = columns["input_mask"].sum(axis=1)
    second = columns["segment_ids"].sum(axis=1)
    is_random = columns["next_sentence_labels"][:, 0] == 1
    used = columns["masked_lm_weights"] > 0
    masks = used.sum(axis=1)
    positions = columns["masked_lm_positions"][used]
    new = np.take_along_axis(
        columns["input_ids"], columns["masked_lm_positions"], axis=1
    )[used]
    labels = columns["masked_lm_ids"][used]
    return {
        "records": len(lengths),
        "random next": is_random.mean(),
        "length": lengths.mean(),
        "square of length": (lengths.astype(float) ** 2).mean(),
        "full": (lengths == LENGTH).mean(),
        "at most a quarter": (lengths <= LENGTH // 4).mean(),
        "at most a half": (lengths <= LENGTH // 2).mean(),
        "length of B": second.mean(),
        "length of a random B": second[is_random].mean(),
        "length of a B that follows": second[~is_random].mean(),
        "masks": masks.mean(),
        "most masks": (masks == PREDICTIONS).mean(),
        "place of a mask": positions.mean(),
        "[MASK]": (new == V.mask_id).mean(),
        "kept": (new == labels).mean(),
    }


@pytest.mark.slow
def test_statistics_are_those_of_the_plain_algorithm() -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    records = np.zeros(2, int)
    for seed in range(CORPORA):
        corpus = documents(40, seed)
        made = [numbers(make(corpus, seed)) for make in (ours, theirs)]
        records += [int(one["records"]) for one in made]
        for name in made[0]:
            found.setdefault(name, []).append([one[name] for one in made])
    assert (records >= 50_000).all()
    for name, pairs in found.items():
        difference = np.subtract(*np.transpose(pairs))
        error = difference.std(ddof=1) / CORPORA**0.5
        assert abs(difference.mean()) <= MOST_ERRORS * error, (name, pairs)
        # So small an error that a wrong rule would show.
        assert error < 0.05 * np.mean(pairs), (name, error)
