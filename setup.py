"""The packages: tools/ and tasks/ are installed under bert_tf."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        "bert_tf.tools",
        "bert_tf.tasks",
    ],
    package_dir={"bert_tf.tools": "tools", "bert_tf.tasks": "tasks"},
)
