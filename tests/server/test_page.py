"""The page to try models, as served and in a real browser."""

import asyncio
import re

import aiohttp
import pytest

from bert_tf.server.config import ModelConfig
from tests.server.browser import CHROMIUM, Browser
from tests.server.served_models import served


def get(url: str) -> tuple[int, dict, str]:
    async def ask():
        async with aiohttp.ClientSession() as session, session.get(url) as got:
            return got.status, dict(got.headers), await got.text()

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def site(versions):
    """A server of the models film and other."""
    models = (ModelConfig("film", versions), ModelConfig("other", versions))
    with served(models=models) as server:
        yield server


def test_the_page_needs_nothing_from_elsewhere(site):
    for path in ("/", "/page.css", "/page.js", "/views.js"):
        status, headers, text = get(site.rest + path)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"https?://", text)
        assert " style=" not in text
        assert " onclick" not in text


def test_the_list_of_models(site):
    status, _, text = get(f"{site.rest}/page/models")
    assert status == 200
    assert '{"name": "film", "versions": [2]}' in text


@pytest.fixture(scope="module")
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


def choose(page: Browser, name: str) -> None:
    page.value(
        f"""{{ const s = document.querySelector('#signature');
        s.value = {name!r}; s.dispatchEvent(new Event('change')); }}"""
    )


def fill(page: Browser, **fields: str) -> None:
    for name, text in fields.items():
        page.value(f"document.querySelector('#input-{name}').focus()")
        page.type(text)


def answer(page: Browser) -> str:
    page.value("document.querySelector('#send').click()")
    page.until(
        "document.querySelector('#status').innerText.startsWith('Answered')"
    )
    return page.value("document.querySelector('#answer').innerText")


def view(page: Browser) -> str:
    return page.value("document.querySelector('#answer').dataset.view")


def marks(page: Browser) -> list[str]:
    return page.value(
        "[...document.querySelectorAll('#answer mark')].map(m => m.innerText)"
    )


def test_with_the_keyboard_alone(page, site):
    page.value("document.body.focus()")
    focused = []
    for _ in range(3):
        page.press("Tab")
        focused.append(page.value("document.activeElement.id"))
    assert focused == ["model", "signature", "input-text"]
    page.type("a good film")
    page.press("Enter", modifiers=2)
    page.until(
        "document.querySelector('#status').innerText.startsWith('Answered')"
    )
    assert view(page) == "labels"
    rows = page.value(
        "[...document.querySelectorAll('#answer tbody tr')]"
        ".map(r => r.innerText.trim().split(/\\s+/)[0])"
    )
    assert rows == ["bad", "fair", "good"]
    widths = page.value(
        "[...document.querySelectorAll('.fill')].map(f => f.style.width)"
    )
    shares = [float(width.rstrip("%")) for width in widths]
    assert abs(sum(shares) - 100) < 0.1
    best = page.value("document.querySelector('tr.best th').innerText")
    assert best == rows[shares.index(max(shares))]
    # On to the button, which works with Enter too.
    page.press("Tab")
    assert page.value("document.activeElement.id") == "send"
    page.value("document.querySelector('#status').innerText = ''")
    page.press("Enter")
    page.until(
        "document.querySelector('#status').innerText.startsWith('Answered')"
    )


def test_another_model(page):
    page.value("document.querySelector('#model').focus()")
    page.press("ArrowDown")
    page.until("document.querySelector('#model').value === 'other'")
    page.until("document.querySelector('#input-text') !== null")
    fill(page, text="bad")
    assert "%" in answer(page)


def test_only_signatures_of_text_are_offered(page):
    names = page.value(
        "[...document.querySelector('#signature').options].map(o => o.value)"
    )
    assert names[0] == "serving_default"
    assert {"span", "tags", "choice", "fill_mask", "embed"} < set(names)
    assert not {"tokens", "numbers", "classify", "regress"} & set(names)


def test_an_answer_in_its_context(page):
    choose(page, "span")
    order = page.value(
        "[...document.querySelectorAll('#inputs label')].map(l => l.innerText)"
    )
    assert order == ["Question", "Context"]
    # The first letter has two places in a JavaScript string.
    fill(page, question="film", context="\U0001f600 good film, <b>ü</b>.")
    text = answer(page)
    assert view(page) == "span"
    assert text.startswith("film")
    assert marks(page) == ["film"]
    shown = page.value("document.querySelector('#answer .text').innerText")
    assert shown == "\U0001f600 good film, <b>ü</b>."
    assert "no answer: 25.0 %" in text


def test_entities_are_coloured(page):
    choose(page, "tags")
    fill(page, text="Zoë Rome is fine")
    text = answer(page)
    assert view(page) == "tags"
    assert "2 entities" in text
    assert marks(page) == ["Zoë PER", "Rome LOC"]
    colours = page.value(
        "[...document.querySelectorAll('#answer mark')]"
        ".map(m => getComputedStyle(m).backgroundColor)"
    )
    assert len(set(colours)) == 2


def test_masks_are_filled(page):
    choose(page, "fill_mask")
    fill(page, text="The [MASK] over the [MASK].")
    text = answer(page)
    assert view(page) == "masks"
    assert text.startswith("The red over the sky.")
    assert marks(page) == ["red", "sky"]
    assert "75.0 %" in text


def test_choices_are_lines(page):
    choose(page, "choice")
    fill(page, text="What?", choices="one\nthree\n\ntwo")
    text = answer(page)
    assert view(page) == "choice"
    assert text.startswith("three")
    assert (
        page.value("document.querySelectorAll('#answer tbody tr').length") == 3
    )


def test_scores_vectors_and_others(page):
    choose(page, "pair")
    fill(page, text="abcd", text_b="a")
    assert answer(page) == "3"
    choose(page, "embed")
    assert page.value("document.querySelector('#input-text').value") == "abcd"
    text = answer(page)
    assert "cls: 3 dimensions" in text
    assert "mean: 3 dimensions" in text
    choose(page, "version")
    answer(page)
    assert view(page) == "other"
    raw = page.value("document.querySelector('#json').textContent")
    assert '"version": 2' in raw


def test_an_error_is_said(page):
    choose(page, "picky")
    fill(page, text="bad")
    page.value("document.querySelector('#send').click()")
    page.until("document.querySelector('#error').innerText !== ''")
    error = page.value("document.querySelector('#error').innerText")
    assert "must not be bad" in error
    # The browser itself logs that an answer was an error.
    page.messages.clear()


def test_a_narrow_screen_and_both_colour_schemes(page):
    page.ask(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=640,
        deviceScaleFactor=1,
        mobile=True,
    )
    try:
        choose(page, "span")
        fill(page, question="x", context="x" * 400)
        answer(page)
        assert page.value("document.documentElement.scrollWidth") <= 360
        papers = set()
        for scheme in ("light", "dark"):
            page.ask(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": scheme}],
            )
            papers.add(
                page.value("getComputedStyle(document.body).backgroundColor")
            )
        assert len(papers) == 2
    finally:
        page.ask("Emulation.clearDeviceMetricsOverride")
        page.ask("Emulation.setEmulatedMedia", features=[])


def test_every_field_has_a_label(page):
    unnamed = page.value(
        """[...document.querySelectorAll('select, textarea, button')]
        .filter(e => !(e.labels?.length || e.innerText.trim()))
        .map(e => e.id)"""
    )
    assert unnamed == []
    assert page.value("document.documentElement.lang") == "en"
