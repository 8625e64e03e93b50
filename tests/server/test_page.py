"""The page to try models, as served and in a real browser."""

import asyncio
import json
import re
import shutil
import subprocess
import sys

import aiohttp
import pytest

from bert_tf.server.config import ModelConfig
from bert_tf.server.page import _FOLDER
from tests.server import page_models
from tests.server.browser import CHROMIUM, Browser
from tests.server.page_models import CONTEXT, EVIL, write_page_model
from tests.server.served_models import served


def get(url: str) -> tuple[int, dict, str]:
    async def ask():
        async with aiohttp.ClientSession() as session, session.get(url) as got:
            return got.status, dict(got.headers), await got.text()

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def site(versions, tmp_path_factory):
    """A server of the models film, other and own."""
    own = tmp_path_factory.mktemp("own")
    for number in (3, 10):
        write_page_model(own, number)
    models = (
        ModelConfig("film", versions),
        ModelConfig("other", versions),
        ModelConfig("own", own, "all", labels=(("stable", 3),)),
    )
    with served(models=models) as server:
        yield server


def test_the_page_needs_nothing_from_elsewhere(site):
    names = {path.name for path in _FOLDER.iterdir() if path.is_file()}
    names -= {"page.html", "__init__.py"}
    assert {"page.css", "page.js", "views.js"} < names
    for path in ("/", *(f"/{name}" for name in names)):
        status, headers, text = get(site.rest + path)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"https?://", text)
        assert "innerHTML" not in text
        assert " style=" not in text
        assert " onclick" not in text


def test_the_list_of_models(site):
    status, _, text = get(f"{site.rest}/page/models")
    assert status == 200
    film, _, own = json.loads(text)["models"]
    assert film == {"name": "film", "versions": [2], "labels": {}}
    assert own["versions"] == [3, 10]
    assert own["labels"] == {"stable": 3}


def test_what_folders_say(site):
    def said(model, version):
        url = f"{site.rest}/page/description?model={model}&version={version}"
        status, _, text = get(url)
        assert status == 200
        return json.loads(text)

    assert said("own", 10) == page_models.DESCRIPTION
    for model, version in (("film", 2), ("own", 4), ("own", "x"), ("", "")):
        assert said(model, version) == {}


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


@pytest.fixture
def own(page):
    """The page, ready for the model own."""
    choose(page, "own", "model")
    page.until(
        "document.querySelector('#signature').value === 'embed'"
        " && document.querySelector('#input-second') !== null"
    )
    return page


def choose(page: Browser, name: str, select: str = "signature") -> None:
    page.value(
        f"""{{ const s = document.querySelector('#{select}');
        s.value = {name!r}; s.dispatchEvent(new Event('change')); }}"""
    )


def fill(page: Browser, **fields: str) -> None:
    for name, text in fields.items():
        page.value(f"document.querySelector('#input-{name}').select()")
        page.type(text)


def shown(page: Browser, selector: str) -> str:
    return page.value(f"document.querySelector({selector!r}).innerText")


def rows(page: Browser) -> list[list[str]]:
    """The cells of all tables of the answer, without bars."""
    return page.value(
        "[...document.querySelectorAll('#answer tr')].map(r =>"
        " [...r.querySelectorAll('th, td:not(.bar)')].map(c => c.textContent))"
    )


def refused(page: Browser) -> str:
    page.value("document.querySelector('#send').click()")
    return page.until("document.querySelector('#error').innerText")


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
    for _ in range(6):
        page.press("Tab")
        focused.append(
            page.value(
                "document.activeElement.id || document.activeElement.innerText"
            )
        )
    assert focused == [
        *("model", "version", "signature", "Praise", "Complaint"),
        "input-text",
    ]
    page.type("a good film")
    page.press("Enter", modifiers=2)
    page.until(
        "document.querySelector('#status').innerText.startsWith('Answered')"
    )
    assert view(page) == "labels"
    head, *found = rows(page)
    assert head == ["Label", "Probability"]
    assert {label for label, _ in found} == {"bad", "fair", "good"}
    widths = page.value(
        "[...document.querySelectorAll('.fill')].map(f => f.style.width)"
    )
    shares = [float(width.rstrip("%")) for width in widths]
    assert abs(sum(shares) - 100) < 0.1
    assert shares == sorted(shares, reverse=True)
    assert shown(page, "tr.best th") == found[0][0]
    assert found[0][1] == f"{shares[0]:.1f}%"
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
    page.until(
        "document.querySelector('#curl').textContent.includes('/other:')"
    )
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
    assert "no answer: 25.0%" in text


def test_entities_are_coloured(page):
    choose(page, "tags")
    fill(page, text="Zoë Rome is fine")
    text = answer(page)
    assert view(page) == "tags"
    assert "2 entities" in text
    assert rows(page) == [
        ["Entity", "Label", "Characters", "Probability"],
        ["Zoë", "PER", "0\u20133", "75.0%"],
        ["Rome", "LOC", "4\u20138", "50.0%"],
    ]
    assert marks(page) == ["Zoë\u00a0PER", "Rome\u00a0LOC"]
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
    assert "75.0%" in text
    fill(page, text="No word is missing.")
    assert "Write [MASK]" in refused(page)


def test_choices_are_lines(page):
    choose(page, "choice")
    fill(page, text="What?", choices="one\nthree\n\ntwo")
    text = answer(page)
    assert view(page) == "choice"
    assert text.startswith("three")
    assert (
        page.value("document.querySelectorAll('#answer tbody tr').length") == 3
    )
    fill(page, choices="one")
    assert "at least two choices" in refused(page)


def test_scores_vectors_and_others(page):
    choose(page, "pair")
    fill(page, text="abcd", text_b="a")
    assert answer(page) == "3"
    choose(page, "embed")
    assert page.value("document.querySelector('#input-text').value") == "abcd"
    answer(page)
    assert [row[:2] for row in rows(page)] == [
        ["Vector", "Dimensions"],
        ["mean", "3"],
        ["cls", "3"],
    ]
    choose(page, "version")
    answer(page)
    assert view(page) == "other"
    raw = page.value("document.querySelector('#json').textContent")
    assert '"version": 2' in raw


def test_an_error_is_said(page):
    choose(page, "picky")
    fill(page, text="bad")
    error = refused(page)
    assert error.startswith("The model does not take this input.")
    assert "must not be bad" not in error
    page.value("document.querySelector('#error summary').click()")
    assert "must not be bad" in shown(page, "#error details")
    # The browser itself logs that an answer was an error.
    page.messages.clear()
    fill(page, text=" ")
    assert "Write something under \u201cText\u201d." in refused(page)


def test_an_error_names_the_field(own):
    choose(own, "short")
    fill(own, text="a" * 11)
    error = refused(own)
    assert error.startswith(
        "The model does not take \u201cText\u201d: it is too long."
    )
    focused = "document.activeElement.getAttribute('aria-invalid')"
    assert own.value(focused) == "true"
    assert own.value("document.activeElement.id") == "input-text"
    fill(own, text="a")
    answer(own)
    assert own.value("document.querySelector('[aria-invalid]')") is None
    own.messages.clear()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "no longer served"),
        (413, "larger than the server takes"),
        (429, "busy"),
        (503, "busy"),
        (504, "longer than the server allows"),
        (500, "could not answer"),
        (None, "cannot be reached"),
    ],
)
def test_errors_are_told_in_words(status, words, page):
    """Whatever the server says is a click away, and never the headline."""
    page.value(
        """{ const real = window.fetch; window.fetch = async (url, options) => {
        if (!String(url).endsWith(":predict")) return real(url, options);
        if (STATUS === null) throw new TypeError("TensorFlow went away");
        const body = JSON.stringify({ error: "TensorFlow: [[node]]" });
        return new Response(body, { status: STATUS }); }; }""".replace(
            "STATUS", json.dumps(status)
        )
    )
    fill(page, text="a")
    error = refused(page)
    assert words in error
    assert "TensorFlow" not in error
    assert shown(page, "#status") == "No answer."
    assert not page.value("document.querySelector('#send').disabled")


def test_what_has_gone_leaves_the_lists(page):
    page.value(
        """{ const real = window.fetch; window.fetch = async (url, options) => {
        if (String(url).endsWith(":predict")) {
          return new Response('{"error": "x"}', { status: 404 });
        }
        if (String(url) !== "/page/models") return real(url, options);
        const models = [{ name: "own", versions: [3], labels: {} }];
        return new Response(JSON.stringify({ models })); }; }"""
    )
    fill(page, text="a")
    assert "no longer served" in refused(page)
    page.until("document.querySelector('#model').innerText === 'own'")
    versions = "[...document.querySelector('#version').options].length"
    assert page.value(versions) == 2
    assert "no longer served" in shown(page, "#error")


def test_candidates_are_whole_words(own):
    choose(own, "questions")
    fill(own, question="what", context=CONTEXT)
    text = answer(own)
    assert text.startswith("running\n")
    assert "The model marked \u201cunning\u201d" in text
    assert marks(own) == ["running"]
    assert shown(own, "#answer .text") == CONTEXT
    assert rows(own) == [
        ["Answer", "Probability"],
        ["running", "35.0%"],
        ["running water", "10.0%"],
        ["mills", "5.0%"],
        ["1,901", "4.0%"],
        ["東", "3.0%"],
    ]


def test_why_there_is_no_answer(own):
    choose(own, "questions")
    fill(own, question="what", context=CONTEXT)
    text = answer(own)
    # ln(0.1 / 0.35)
    assert "no answer: 10.0%. \u201cNo answer\u201d scores 1.253 below" in text
    assert "The threshold is 0.5 below the best answer" in text
    fill(own, question="none")
    text = answer(own)
    assert text.startswith("No answer in this context.")
    assert marks(own) == []
    # ln(0.7 / 0.35)
    assert "no answer: 70.0%. \u201cNo answer\u201d scores 0.6931 above" in text
    assert len(rows(own)) == 6
    assert own.value("document.querySelector('tr.best')") is None


def test_labels_are_no_markup(own):
    choose(own, "several")
    fill(own, text=EVIL)
    text = answer(own)
    assert view(own) == "several"
    assert text.startswith(f"{EVIL}, b\n")
    assert rows(own) == [
        ["Label", "Holds", "Probability"],
        [EVIL, "yes", ">99.9%"],
        ["b", "yes", "75.0%"],
        ["c", "no", "25.0%"],
        ["d", "no", "<0.1%"],
    ]
    # From the folder too.
    own.value("document.querySelector('#description').open = true")
    assert f"Task\n{EVIL}" in shown(own, "#facts")
    assert own.value("document.querySelectorAll('main img').length") == 0
    assert own.value("document.title") == "Try a model"


def test_many_labels(own):
    choose(own, "many")
    fill(own, text="a")
    answer(own)
    found = rows(own)
    assert found[1][0] == "label 13"
    assert [row[0] for row in found].count("Label") == 2
    assert shown(own, "#answer summary") == "4 more"


def test_two_texts_are_compared(own):
    fill(own, text="a b", second="abc defg")
    text = answer(own)
    # (3, 1) and (8, 1)
    assert text.startswith("Similarity 0.9806\n")
    assert rows(own)[1:] == [
        ["mean", "3.162, 8.062", "0.9806"],
        ["cls", "3.162, 8.062", "0.9806"],
    ]
    beside = own.value(
        "[...document.querySelectorAll('#inputs textarea')]"
        ".map(a => a.getBoundingClientRect().top)"
    )
    assert beside[0] == beside[1]


def test_what_the_model_is(own):
    own.value("document.querySelector('#description').open = true")
    facts = shown(own, "#facts")
    for row in (
        "Fine-tuned for\nsquad_v2, from uncased_L-4",
        "Scores\nf1 0.75, exact 0.5 on dev",
        "Data\n1,200 train, 30 dev examples",
        "Scripts\nLatin; lower-cased",
        "Vocabulary\n30,522 tokens",
    ):
        assert row in facts


def test_versions_and_labels(own):
    options = own.value(
        "[...document.querySelector('#version').options]"
        ".map(o => [o.value, o.innerText])"
    )
    assert options == [
        ["", "latest (10)"],
        ["/labels/stable", "stable (3)"],
        ["/versions/10", "10"],
        ["/versions/3", "3"],
    ]
    for chosen in ("/labels/stable", "/versions/3"):
        choose(own, chosen, "version")
        own.until(
            f"document.querySelector('#curl').textContent.includes({chosen!r})"
        )
        fill(own, text="a b")
        answer(own)
        raw = own.value("document.querySelector('#json').textContent")
        assert json.loads(raw)["mean"] == [3, 1]


def test_examples_can_be_asked(own):
    for signature in ("questions", "several", "embed"):
        choose(own, signature)
        own.value("document.querySelector('#examples button').click()")
        assert own.value("document.activeElement.id") == "send"
        filled = own.value(
            "[...document.querySelectorAll('#inputs textarea')]"
            ".every(a => a.value)"
        )
        assert filled
        if signature != "questions":
            answer(own)


def test_waiting_can_be_cancelled(own):
    choose(own, "slow")
    fill(own, text="6000")
    own.value("document.querySelector('#send').click()")
    own.until("!document.querySelector('#cancel').hidden")
    assert shown(own, "#status").startswith("Waiting")
    # A second press asks nothing more.
    own.value("document.querySelector('#send').click()")
    own.value("document.querySelector('#cancel').focus()")
    own.press("Enter")
    own.until("document.querySelector('#status').innerText === 'Cancelled.'")
    assert own.value("document.querySelector('#cancel').hidden")
    assert own.value("document.activeElement.id") == "send"
    assert shown(own, "#error") == ""
    fill(own, text="1")
    assert answer(own) == "200"


@pytest.mark.parametrize("program", ["curl", "python"])
def test_programs_ask_the_same(program, own):
    """What is copied is run as it stands, with an input full of traps."""
    if program == "curl" and shutil.which("curl") is None:
        pytest.skip("no curl here (Debian: apt install curl)")
    choose(own, "several")
    trap = 'it\'s "$HOME" `x` \\n \\ %s {x}\n\ttab \U0001f600 東 \u2028 @!'
    fill(own, text=trap)
    choose(own, "/labels/stable", "version")
    path = "/v1/models/own/labels/stable:predict"
    own.until(f"document.querySelector('#curl').textContent.includes({path!r})")
    choose(own, "embed")
    fill(own, text=trap, second="b 'c'")
    answer(own)
    text = own.value(f"document.querySelector('#{program}').textContent")
    assert path in text
    command = {"curl": ["bash", "-c"], "python": [sys.executable, "-c"]}
    done = subprocess.run(
        [*command[program], text], capture_output=True, text=True, check=True
    )
    length = len(trap)
    blanks = trap.count(" ")
    if program == "curl":
        found = json.loads(done.stdout)["outputs"]["mean"]
    else:
        found = eval(done.stdout)["mean"]
    assert found == [[length, blanks], [5, 1]]


def test_programs_are_copied(own):
    own.ask("Emulation.setFocusEmulationEnabled", enabled=True)
    own.ask(
        "Browser.grantPermissions",
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    own.value("document.querySelector('#programs summary').click()")
    for program, title in (("curl", "curl"), ("python", "Python")):
        own.value(f"document.querySelector('[data-copies={program}]').click()")
        own.until(
            "document.querySelector('#copied').innerText === "
            f"'Copied as {title}.'"
        )
        text = own.value(f"document.querySelector('#{program}').textContent")
        assert own.value("navigator.clipboard.readText()") == text


def test_numbers_and_places(page):
    """What the page computes, on its own."""

    def of(expression):
        return page.value(f"import('/format.js').then(m => m.{expression})")

    for value, text in (
        *((0, "<0.1%"), (0.0004999, "<0.1%"), (0.0005, "0.1%")),
        *((0.5, "50.0%"), (0.99949, "99.9%"), (0.9995, ">99.9%")),
        *((1, ">99.9%"), ("null", "not a number")),
    ):
        assert of(f"probability({value})") == text
    for value, text in ((-1.25, "\u22121.25"), (3, "3"), (123456, "123500")):
        assert of(f"number({value})") == text
    assert of("cosine([3, 4], [4, 3])") == pytest.approx(0.96)
    assert of("cosine([1, 0], [0, 2])") == 0
    for text, start, end, whole in (
        ("a running man", 3, 6, "running"),
        ("Lovell's", 1, 6, "Lovell"),
        ("Lovell's", 7, 8, "s"),
        ("1,901.", 3, 4, "1,901"),
        ("a, 1", 3, 4, "1"),
        ("\U0001f600ab \U00010400\U00010401c", 5, 6, "\U00010400\U00010401c"),
        ("東京都", 1, 2, "京"),
        ("cafe\u0301 x", 0, 2, "cafe\u0301"),
        ("x.y", 1, 2, "."),
    ):
        place = of(
            f"wholeWords(Array.from({json.dumps(text)}), {start}, {end})"
        )
        assert text[place["start"] : place["end"]] == whole


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
        for signature in ("embed", "tags", "fill_mask"):
            choose(page, signature)
            page.value("document.querySelector('#examples button').click()")
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
        .filter(e => !(e.labels?.length || e.textContent.trim()))
        .map(e => e.id)"""
    )
    assert unnamed == []
    assert page.value("document.documentElement.lang") == "en"
