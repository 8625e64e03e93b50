"""Experiments: tables whose cells are scores of runs, planned and computed.

What a file in experiments/ needs is imported from here.
"""

from bert_tf.experiments.experiment import (
    AfterSteps,
    Cell,
    Experiment,
    Finetuning,
    Pretraining,
)

__all__ = ["AfterSteps", "Cell", "Experiment", "Finetuning", "Pretraining"]
