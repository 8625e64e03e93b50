"""A model and a batch to measure a step of fine-tuning with."""

import numpy as np

from bert_tf.finetuning.kinds.objectives import ClassesObjective
from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS
from bert_tf.finetuning.task_model import TaskModel
from bert_tf.models import bert_classifier
from bert_tf.training.memory import Workload
from bert_tf.training.trial import trial_encoder, trial_inputs


def classifier_trial(
    workload: Workload,
) -> tuple[TaskModel, ClassesObjective, dict[str, np.ndarray]]:
    """A new classifier of sentences, its objective and rows without padding.

    Args:
      workload: what to make them for.
    """
    network = bert_classifier(
        trial_encoder(workload), num_classes=2, unpadded=True
    )
    rows = workload.batch_size
    batch = trial_inputs(workload, np.random.default_rng(0))
    batch[ClassesObjective.label_name] = np.arange(rows, dtype="int32") % 2
    batch[EXAMPLE_WEIGHTS] = np.ones(rows, "float32")
    return TaskModel(network), ClassesObjective(), batch
