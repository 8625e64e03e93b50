"""Records of a small corpus, as the tests of pre-training have them."""

from collections.abc import Iterator

import pytest

from tests.pretraining.conftest import (  # noqa: F401
    config_file,
    make_records,
    small_corpus,
    small_vocab,
    without_curves,
)


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Leaves the figures of fine-tuned models empty."""
    from tests.contracts.task_cases import without_drawings

    with without_drawings():
        yield
