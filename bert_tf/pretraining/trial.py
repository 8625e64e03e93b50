"""A model and a batch to measure a pre-training step with."""

import numpy as np

from bert_tf.encoder import BertEncoder
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.training.memory import Workload


def pretraining_trial(
    workload: Workload,
) -> tuple[BertPretrainer, PretrainingObjective, dict[str, np.ndarray]]:
    """A new model, its objective and a random batch without padding.

    Args:
      workload: what to make them for.
    """
    encoder = BertEncoder(
        workload.config,
        dtype=workload.precision,
        rematerialize=workload.rematerialize,
    )
    random = np.random.default_rng(0)
    rows, length = workload.batch_size, workload.max_seq_length
    words = workload.config.vocab_size
    predictions = (rows, workload.max_predictions_per_seq)
    batch = {
        "input_ids": random.integers(0, words, (rows, length)),
        "input_mask": np.ones((rows, length)),
        "segment_ids": random.integers(
            0, workload.config.type_vocab_size, (rows, length)
        ),
        "masked_lm_positions": random.integers(0, length, predictions),
        "masked_lm_ids": random.integers(0, words, predictions),
        "next_sentence_labels": random.integers(0, 2, rows),
    }
    batch = {name: value.astype("int32") for name, value in batch.items()}
    batch["masked_lm_weights"] = np.ones(predictions, "float32")
    return BertPretrainer(encoder), PretrainingObjective(), batch
