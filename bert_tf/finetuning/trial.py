"""A model and a batch to measure a step of fine-tuning with."""

import numpy as np

from bert_tf.encoder import BertEncoder
from bert_tf.features import ENCODER_INPUTS
from bert_tf.finetuning.kinds.objectives import ClassesObjective
from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS
from bert_tf.finetuning.task_model import TaskModel
from bert_tf.models import bert_classifier
from bert_tf.training.memory import Workload


def classifier_trial(
    workload: Workload,
) -> tuple[TaskModel, ClassesObjective, dict[str, np.ndarray]]:
    """A new classifier of sentences, its objective and rows without padding.

    Args:
      workload: what to make them for.
    """
    encoder = BertEncoder(
        workload.config,
        dtype=workload.precision,
        rematerialize=workload.rematerialize,
    )
    network = bert_classifier(encoder, num_classes=2, unpadded=True)
    random = np.random.default_rng(0)
    rows, length = workload.batch_size, workload.max_seq_length
    largest = {
        "input_ids": workload.config.vocab_size,
        "segment_ids": workload.config.type_vocab_size,
    }
    batch = {
        feature.name: random.integers(
            0, largest.get(feature.name, 1), (rows, length)
        ).astype(feature.dtype)
        for feature in ENCODER_INPUTS
    }
    batch["input_mask"] += 1
    batch[ClassesObjective.label_name] = np.arange(rows, dtype="int32") % 2
    batch[EXAMPLE_WEIGHTS] = np.ones(rows, "float32")
    return TaskModel(network), ClassesObjective(), batch
