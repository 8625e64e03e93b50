"""What only a part needs is asked for in one line, with how to get it."""

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
import tomllib

import pytest

from bert_tf.extras import EXTRAS, require_extra

ROOT = pathlib.Path(__file__).resolve().parent.parent
WITHOUT = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = (
    lambda name, *rest: None if name == {library!r} else find(name, *rest)
)
{code}
"""


def in_pyproject(extra: str) -> set[str]:
    """The names of an extra's distributions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra]
    return {line.partition(">")[0] for line in lines}


@pytest.mark.parametrize("extra", EXTRAS)
def test_they_are_those_of_pyproject(extra):
    distributions = importlib.metadata.packages_distributions()
    found = {distributions[library][0].lower() for library in EXTRAS[extra]}
    assert found == in_pyproject(extra)


@pytest.mark.parametrize(
    ("extra", "library", "code", "what"),
    [
        ("serve", "aiohttp", "import bert_tf.server.config", "the server"),
        (
            "hub",
            "kagglehub",
            "from bert_tf.sources import local_folder\n"
            "local_folder('hf://a/b')",
            "hf://a/b",
        ),
        (
            "hub",
            "keras_hub",
            "from bert_tf.sources import local_folder\n"
            "local_folder('keras_hub://a')",
            "keras_hub://a",
        ),
        (
            "report",
            "matplotlib",
            "from bert_tf.finetuning.report import figures\n"
            "with figures._drawing(): pass",
            "a figure",
        ),
        (
            "report",
            "matplotlib",
            "from bert_tf.training.history import draw_curves\n"
            "draw_curves('a.png', None, [], {}, '')",
            "a learning curve",
        ),
    ],
)
def test_a_part_without_its_libraries(extra, library, code, what):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(library=library, code=code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1] == (
        f"bert_tf.errors.UserError: {what} needs {library}, which this "
        f'environment does not have; run pip install "bert_tf[{extra}]"'
    )


def test_what_is_there_is_not_asked_for():
    for extra in EXTRAS:
        require_extra(extra, "a test")
