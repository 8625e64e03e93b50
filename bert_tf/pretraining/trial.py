"""A model and a batch to measure a pre-training step with."""

import numpy as np

from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.training.memory import Workload
from bert_tf.training.trial import trial_encoder, trial_inputs


def pretraining_trial(
    workload: Workload,
) -> tuple[BertPretrainer, PretrainingObjective, dict[str, np.ndarray]]:
    """A new model, its objective and a random batch without padding.

    Args:
      workload: what to make them for.
    """
    random = np.random.default_rng(0)
    rows, length = workload.batch_size, workload.max_seq_length
    words = workload.config.vocab_size
    predictions = (rows, workload.max_predictions_per_seq)
    batch = trial_inputs(workload, random) | {
        "masked_lm_positions": random.integers(
            0, length, predictions, np.int32
        ),
        "masked_lm_ids": random.integers(0, words, predictions, np.int32),
        "masked_lm_weights": np.ones(predictions, "float32"),
        "next_sentence_labels": random.integers(0, 2, rows, np.int32),
    }
    model = BertPretrainer(trial_encoder(workload))
    return model, PretrainingObjective(), batch
