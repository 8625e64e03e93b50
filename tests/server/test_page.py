"""The page to try models, as served and in a real browser."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from bert_tf.server.page import _FOLDER
from tests.server import page_models
from tests.server.page_actions import (
    answer,
    answered,
    choose,
    fill,
    refused,
    rows,
    shown,
    view,
)
from tests.server.served_models import fetch, fetch_text


def test_the_page_needs_nothing_from_elsewhere(site):
    names = {path.name for path in _FOLDER.iterdir() if path.is_file()}
    names -= {"page.html", "__init__.py"}
    assert {"page.css", "page.js", "views.js"} < names
    for path in ("/", *(f"/{name}" for name in names)):
        status, headers, text = fetch_text(site.rest + path)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"https?://", text)
        assert "innerHTML" not in text
        assert " style=" not in text
        assert " onclick" not in text


def test_what_the_page_is_told_of_the_models(site):
    status, answer = fetch(f"{site.rest}/page/models")
    assert status == 200
    film, _, own = answer["models"]
    assert film == {"name": "film", "versions": [2], "labels": {}}
    assert own["versions"] == [3, 10]
    assert own["labels"] == {"stable": 3}
    for model, version, told in (
        ("own", 10, page_models.DESCRIPTION),
        *(("film", 2, {}), ("own", 4, {}), ("own", "x", {}), ("", "", {})),
    ):
        url = f"{site.rest}/page/description?model={model}&version={version}"
        assert fetch(url) == (200, told)


def test_with_the_keyboard_alone(page, site):
    page.value("document.body.focus()")
    focused = []
    for _ in range(6):
        page.press("Tab")
        active = "document.activeElement"
        focused.append(page.value(f"{active}.id || {active}.innerText"))
    selects = ["model", "version", "signature"]
    assert focused == [*selects, "Praise", "Complaint", "input-text"]
    page.type("a good film")
    page.press("Enter", modifiers=2)
    answered(page)
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
    answered(page)


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
    assert not {"tokens", "int32", "classify", "regress"} & set(names)


def test_an_error_is_said(page):
    choose(page, "picky")
    fill(page, text="bad")
    error = refused(page)
    assert error.startswith("The model rejects this input.")
    assert "must not be bad" not in error
    page.value("document.querySelector('#error summary').click()")
    assert "must not be bad" in shown(page, "#error details")
    # The browser itself logs that an answer was an error.
    page.messages.clear()
    fill(page, text=" ")
    assert "Enter a text for \u201cText\u201d." in refused(page)


def test_an_error_names_the_field(own):
    choose(own, "short")
    fill(own, text="a" * 11)
    error = refused(own)
    assert error.startswith(
        "The model rejects \u201cText\u201d: it is too long."
    )
    focused = "document.activeElement.getAttribute('aria-invalid')"
    assert own.value(focused) == "true"
    assert own.value("document.activeElement.id") == "input-text"
    fill(own, text="a")
    answer(own)
    assert own.value("document.querySelector('[aria-invalid]')") is None
    own.messages.clear()


def test_errors_are_told_in_words(page):
    """Whatever the server says is a click away, and never the headline."""
    page.value(
        """{ const real = window.fetch; window.fetch = async (url, options) => {
        if (!String(url).endsWith(":predict")) return real(url, options);
        if (window.given === null) throw new TypeError("TensorFlow went away");
        const body = JSON.stringify({ error: "TensorFlow: [[node]]" });
        return new Response(body, { status: window.given }); }; }"""
    )
    fill(page, text="a")
    for status, words in (
        (404, "no longer served"),
        (413, "larger than the server allows"),
        (429, "busy"),
        (503, "busy"),
        (504, "longer than the server allows"),
        (500, "could not answer"),
        (None, "cannot be reached"),
    ):
        page.value(f"window.given = {json.dumps(status)}")
        page.value("document.querySelector('#error').innerText = ''")
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


def test_what_the_model_is(own):
    own.value("document.querySelector('#description').open = true")
    facts = shown(own, "#facts")
    for row in (
        "Fine-tuned for\nsquad_v2, from uncased_L-4",
        "Scores\nf1 0.75, exact 0.5 on dev",
        "Data\n1,200 train, 30 dev examples",
        "Scripts\nLatin; lower-cased",
        "Vocabulary\nbyte-level BPE, 30,522 tokens",
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
            ".every(a => a.value || a.name === 'lines')"
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
    printed = subprocess.check_output([*command[program], text], text=True)
    if program == "curl":
        found = json.loads(printed)["outputs"]["mean"]
    else:
        found = eval(printed)["mean"]
    assert found == [[len(trap), trap.count(" ")], [5, 1]]


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
            paper = "getComputedStyle(document.body).backgroundColor"
            papers.add(page.value(paper))
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
