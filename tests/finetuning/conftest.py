"""Fixtures of the fine-tuning tests."""

from collections.abc import Iterator

import pytest

from tests.contracts.task_cases import Finished
from tests.finetuning.quick import quickly


@pytest.fixture(scope="session")
def classes(finish_case) -> Finished:
    """The shared run of classes, made before a test runs anything eagerly."""
    return finish_case("classes")


@pytest.fixture
def quick() -> Iterator[None]:
    """See `quickly`."""
    with quickly():
        yield
