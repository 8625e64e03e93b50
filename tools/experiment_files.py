"""The files that --experiment names."""

from bert_tf.experiments import Experiment

from .named_files import NamedFiles, package_beside

EXPERIMENTS = NamedFiles(
    "experiment",
    package_beside("experiments", "paper_experiments"),
    Experiment,
    "an Experiment",
    "Experiment(...), as experiments/table5.py does",
    "experiment files import from bert_tf.experiments, as "
    "experiments/table5.py does",
)
