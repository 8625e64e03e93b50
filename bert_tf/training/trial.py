"""What the models and batches to measure a training step with share."""

import numpy as np

from bert_tf.encoder import BertEncoder
from bert_tf.training.memory import Workload


def trial_encoder(workload: Workload) -> BertEncoder:
    """A new encoder, as a workload has it."""
    return BertEncoder(
        workload.config,
        dtype=workload.precision,
        rematerialize=workload.rematerialize,
    )


def trial_inputs(
    workload: Workload, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """What an encoder takes: random rows without padding, int32 [B, S].

    Args:
      workload: says B and S.
      random: draws the ids.
    """
    shape = (workload.batch_size, workload.max_seq_length)
    config = workload.config
    return {
        "input_ids": random.integers(0, config.vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": random.integers(
            0, config.type_vocab_size, shape, np.int32
        ),
    }
