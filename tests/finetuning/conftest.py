"""Fixtures of the fine-tuning tests."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.contracts.task_cases import Finished, model_folder
from tests.finetuning.quick import quickly
from tests.finished_runs import finished_run


@pytest.fixture(scope="session")
def classes(tmp_path_factory) -> Finished:
    """A stored run of classes, which tests leave unchanged."""
    return finished_run("classes", tmp_path_factory.mktemp("classes") / "it")


@pytest.fixture(scope="session")
def start(tmp_path_factory) -> pathlib.Path:
    """The folder of a model to start from, which tests leave unchanged."""
    return model_folder(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture
def quick() -> Iterator[None]:
    """See `quickly`."""
    with quickly():
        yield
