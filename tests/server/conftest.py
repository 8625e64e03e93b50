"""Models and servers that several tests share."""

import gc
import json
import logging
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from bert_tf.server.batching import BATCHING_ON_CPU, BatchingParameters
from bert_tf.server.config import ModelConfig
from tests.server.browser import CHROMIUM, Browser
from tests.server.page_actions import choose
from tests.server.page_models import DESCRIPTION
from tests.server.served_models import Background, fetch, served, write_versions


@pytest.fixture(scope="session", autouse=True)
def _as_in_a_process_of_its_own() -> None:
    """A quiet loader, and no garbage to be looked for but the servers' own."""
    logging.getLogger("tensorflow").setLevel("ERROR")
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def versions(tmp_path_factory) -> pathlib.Path:
    """A folder with the versions 1 and 2 of Answers, to be copied."""
    folder = tmp_path_factory.mktemp("versions")
    write_versions(folder)
    return folder


@pytest.fixture(scope="session")
def server(versions) -> Iterator[Background]:
    """A server of version 2, which batches as `bert-tf serve` by itself."""
    with served(versions, batching=BATCHING_ON_CPU) as background:
        yield background


@pytest.fixture(scope="session")
def batching_server(versions) -> Iterator[Background]:
    """The same with batching."""
    parameters = BatchingParameters(max_batch_size=16, num_batch_threads=2)
    with served(versions, batching=parameters) as background:
        yield background


@pytest.fixture(scope="session")
def strict_server(versions) -> Iterator[Background]:
    """One with narrow limits, which goes on whatever breaks them."""
    with served(
        versions,
        max_request_bytes=1000,
        client_timeout=0.5,
        request_timeout=0.5,
        cors=True,
    ) as background:
        yield background
        url = f"{background.rest}/v1/models/m:predict"
        statuses = (fetch(url, {"instances": ["x"]})[0] for _ in range(60))
        assert 200 in statuses


@pytest.fixture(scope="session")
def site(versions, tmp_path_factory):
    """A server of the models film, other and own."""
    own = tmp_path_factory.mktemp("own")
    for number in (3, 10):
        shutil.copytree(versions / "2", own / str(number))
        extra = own / str(number) / "assets.extra"
        extra.mkdir()
        (extra / "model.json").write_text(json.dumps(DESCRIPTION))
    models = (
        ModelConfig("film", versions),
        ModelConfig("other", versions),
        ModelConfig("own", own, "all", labels=(("stable", 3),)),
    )
    with served(models=models) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def page(browser, site):
    """The page, ready for the signature serving_default of film."""
    browser.messages.clear()
    browser.open(site.rest + "/")
    browser.until("document.querySelector('#input-text') !== null")
    yield browser
    assert browser.messages == []


@pytest.fixture
def own(page):
    """The page, ready for the model own."""
    choose(page, "own", "model")
    page.until("document.querySelector('#curl').textContent.includes('/own:')")
    choose(page, "embed")
    page.until(
        "document.querySelector('#signature').value === 'embed'"
        " && document.querySelector('#input-second') !== null"
    )
    return page
