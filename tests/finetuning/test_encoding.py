"""Rows of texts that are classified by windows, and their mean logits."""

import dataclasses

import numpy as np

from bert_tf.families.data.examples import Example
from bert_tf.families.rows import TextRows
from bert_tf.families.text_classification.kinds import SentenceTask
from bert_tf.families.text_classification.task import encode
from tests.finetuning.sentence_runs import FILLER, GOOD, texts, tokenizer
from tests.inference.serving_models import text_config

TOKENIZER = tokenizer()
WORDS = [*FILLER, *GOOD]


def test_windows_of_a_pair_repeat_the_first_text():
    first, second = " ".join(WORDS[:3]), " ".join(WORDS[2:12])
    example = Example(first, second, None, "0", 1)
    config = text_config(
        num_texts=2, long_inputs="windows", max_seq_length=10, doc_stride=3
    )
    rows = encode([example], TOKENIZER, config)
    all_ids, starts = rows.arrays
    ids = TOKENIZER.tokenize([first, second])
    assert len(rows) == 3
    for number in range(3):
        row = all_ids[starts[number] : starts[number + 1]]
        np.testing.assert_array_equal(row[1:4], ids[0].numpy())
        begin = 3 * number
        np.testing.assert_array_equal(
            row[5:-1], ids[1].numpy()[begin : begin + 4]
        )
    task = SentenceTask(name="x", data=None, labels=("a", "b"))
    config = dataclasses.replace(config, labels=task.labels)
    pair = [example._replace(label="b"), Example("a", "b", "a", "1", 2)]
    labelled = task.encode(pair, TOKENIZER, config, labelled=True)
    assert_equal = np.testing.assert_array_equal
    assert_equal(labelled.weights, np.float32([1 / 3, 1 / 3, 1 / 3, 1]))
    assert_equal(labelled.labels["label_ids"], [1, 1, 1, 0])


def test_no_examples():
    rows = encode([], TOKENIZER, text_config(max_seq_length=8))
    assert len(rows) == 0
    assert rows.arrays[0].shape == (0,)


def test_logits_of_windows_are_averaged():
    examples = texts(60, 0, pairs=True)
    config = text_config(
        num_texts=2, long_inputs="windows", max_seq_length=9, doc_stride=2
    )
    rows = encode(examples, TOKENIZER, config)
    logits = np.random.default_rng(1).normal(size=(len(rows), 3))
    order = np.random.default_rng(2).permutation(len(rows))
    batches = [
        # A batch may be filled up with rows that count for nothing.
        (chosen, {"logits": np.append(logits[chosen], [[9.0] * 3], axis=0)})
        for chosen in np.array_split(order, 5)
    ]
    means = TextRows(rows).gather(batches)["logits"]
    assert len(rows) > len(means) == len(examples)
    for number, mean in enumerate(means):
        mine = logits[rows.example == number]
        np.testing.assert_allclose(mean, mine.mean(axis=0), atol=1e-6)
