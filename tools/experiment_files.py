"""What --experiment names: a file in experiments/, or the user's own."""

from bert_tf.experiments import Experiment

from .named_files import NamedFiles, package_beside

EXPERIMENTS = NamedFiles(
    "experiment",
    package_beside("experiments", "paper_experiments"),
    Experiment,
    "an Experiment",
    "Experiment(...), as experiments/table5.py does",
    "what an experiment file needs is imported from bert_tf.experiments, "
    "as in experiments/table5.py",
)
