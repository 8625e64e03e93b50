"""Models and servers that several tests share."""

import logging
import pathlib
from collections.abc import Iterator

import pytest

from bert_tf.server.batching import BatchingParameters
from tests.server.served_models import Background, served, write_model


@pytest.fixture(scope="session", autouse=True)
def _quiet_loader() -> None:
    logging.getLogger("tensorflow").setLevel("ERROR")


@pytest.fixture(scope="session")
def versions(tmp_path_factory) -> pathlib.Path:
    """A folder with the versions 1 and 2 of Answers, to be copied."""
    folder = tmp_path_factory.mktemp("versions")
    write_model(folder, 1)
    write_model(folder, 2)
    return folder


@pytest.fixture(scope="session")
def server(versions) -> Iterator[Background]:
    """A server of version 2, without batching."""
    with served(versions) as background:
        yield background


@pytest.fixture(scope="session")
def batching_server(versions) -> Iterator[Background]:
    """The same with batching."""
    parameters = BatchingParameters(max_batch_size=16, num_batch_threads=2)
    with served(versions, batching=parameters) as background:
        yield background
