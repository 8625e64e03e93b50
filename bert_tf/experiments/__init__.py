"""Experiments: tables whose cells are scores of runs.

Files in experiments/ import the names of this module.
"""

from bert_tf.experiments.experiment import (
    AfterSteps,
    Cell,
    Experiment,
    Finetuning,
    Pretraining,
)

__all__ = ["AfterSteps", "Cell", "Experiment", "Finetuning", "Pretraining"]
