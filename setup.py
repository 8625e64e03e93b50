"""The packages: tools/, tasks/ and experiments/ are installed under bert_tf.

The files of experiments/ as bert_tf.paper_experiments, since bert_tf has a room
of that name that runs them.
"""

from setuptools import find_packages, setup

UNDER_BERT_TF = {
    "bert_tf.tools": "tools",
    "bert_tf.tasks": "tasks",
    "bert_tf.paper_experiments": "experiments",
}

setup(
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        *UNDER_BERT_TF,
    ],
    package_dir=UNDER_BERT_TF,
)
