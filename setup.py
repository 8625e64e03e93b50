"""The packages: tools/, tasks/, experiments/ and examples/ go under bert_tf.

The files of experiments/ as bert_tf.paper_experiments, since bert_tf has a room
of that name that runs them; those of examples/ with the reviews of the demo.
"""

from setuptools import find_packages, setup

UNDER_BERT_TF = {
    "bert_tf.tools": "tools",
    "bert_tf.tasks": "tasks",
    "bert_tf.paper_experiments": "experiments",
    "bert_tf.examples": "examples",
}

setup(
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        *UNDER_BERT_TF,
    ],
    package_dir=UNDER_BERT_TF,
)
