"""What only a part needs is asked for in one line, with how to get it."""

import importlib.metadata
import importlib.util
import pathlib
import sys
import tomllib

import pytest

from bert_tf.errors import UserError
from bert_tf.inference.export_file import export_file
from bert_tf.libraries import EXTRAS, require_extra
from bert_tf.report import figures
from bert_tf.sources import local_folder

ROOT = pathlib.Path(__file__).resolve().parent.parent


def in_pyproject(extra: str) -> set[str]:
    """The names of an extra's distributions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra]
    return {line.partition(">")[0] for line in lines}


@pytest.mark.parametrize("extra", EXTRAS)
def test_they_are_those_of_pyproject(extra):
    distributions = importlib.metadata.packages_distributions()
    # torch and transformers, which no test needs, are called as they are.
    found = {
        distributions.get(library, [library])[0].lower()
        for library in EXTRAS[extra]
    }
    assert found == in_pyproject(extra)


def import_the_server(monkeypatch):
    monkeypatch.delitem(sys.modules, "bert_tf.server", raising=False)
    importlib.import_module("bert_tf.server")


def draw_a_figure(monkeypatch):
    figures.Curves([]).drawn()


@pytest.mark.parametrize(
    ("extra", "library", "use", "what"),
    [
        ("serve", "aiohttp", import_the_server, "the server"),
        *(
            (extra, library, lambda _, name=name: local_folder(name), name)
            for extra, library, name in (
                ("hub", "huggingface_hub", "hf://a/b"),
                ("keras_hub", "kagglehub", "keras_hub://a"),
                ("keras_hub", "keras_hub", "keras_hub://a"),
            )
        ),
        ("report", "matplotlib", draw_a_figure, "a figure"),
        (
            "onnx",
            "onnxruntime",
            lambda _: export_file("a", "b", "onnx"),
            "`file_format`=onnx",
        ),
        (
            "report",
            "matplotlib",
            lambda _: figures.write_learning_curve("a.png", [], ""),
            "a learning curve",
        ),
    ],
)
def test_a_part_without_its_libraries(monkeypatch, extra, library, use, what):
    require_extra(extra, what)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == library else find(name, *rest),
    )
    with pytest.raises(UserError) as caught:
        use(monkeypatch)
    assert str(caught.value).startswith(f"{what} needs {library}, ")
    assert str(caught.value).endswith(f'pip install "bert_tf[{extra}]"')
