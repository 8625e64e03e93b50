"""How the page shows each kind of answer, in a real browser."""

import json

import pytest

from tests.server.page_actions import (
    answer,
    answered,
    choose,
    fill,
    marks,
    refused,
    rows,
    shown,
    view,
)
from tests.server.page_models import CONTEXT, EVIL


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


def test_masks_are_filled(own):
    choose(own, "fill_mask")
    fill(own, text="The [MASK] over the [MASK].")
    text = answer(own)
    assert view(own) == "masks"
    # The text of tokens of byte-level BPE, which spell bytes by letters.
    assert text.startswith("The red over the ský.")
    assert marks(own) == ["red", "ský"]
    assert [row[0] for row in rows(own)[1:3]] == ["red", "blue"]
    assert "75.0%" in text
    fill(own, text="No word is missing.")
    assert "Write [MASK]" in refused(own)


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


def test_labels_of_ones_own(page):
    """They are lines, and the template may be left out."""
    choose(page, "zero_shot")
    titles = page.value(
        "[...document.querySelectorAll('#inputs label')].map(l => l.innerText)"
    )
    assert titles == [
        *("Text", "Labels, one per line"),
        "Template with {} for the label (optional)",
    ]
    fill(page, text="abc", labels="boats\n\nsea")
    assert answer(page).startswith("|abc")
    assert view(page) == "labels"
    assert [row[:1] for row in rows(page)] == [["Label"], ["boats"], ["sea"]]
    fill(page, labels="sea", template="It is {}.")
    assert answer(page).startswith("It is {}.|abc")
    fill(page, labels=" ")
    assert "at least one label" in refused(page)


def test_scores_vectors_and_others(page):
    choose(page, "pair")
    fill(page, text="abcd", text_b="a")
    assert answer(page) == "3"
    choose(page, "embed")
    assert page.value("document.querySelector('#input-text').value") == "abcd"
    answer(page)
    assert [row[:2] for row in rows(page)] == [
        ["Vector", "Dimensions"],
        ["mean", "2"],
        ["cls", "2"],
    ]
    choose(page, "version")
    answer(page)
    assert view(page) == "other"
    raw = page.value("document.querySelector('#json').textContent")
    assert '"version": 2' in raw


def test_words_that_matter(page):
    def explained():
        page.value("document.querySelector('#explained button').click()")
        page.until("document.querySelector('#explained mark') !== null")
        answered(page)
        return page.value(
            "[...document.querySelectorAll('#explained mark')].map(m =>"
            " [m.textContent, m.className, m.title])"
        )

    choose(page, "pair")
    fill(page, text="ab \U0001f600 <i>", text_b="a film")
    # bytes of text less those of text_b
    assert answer(page) == "5"
    found = explained()
    assert found == [
        ["ab", "for", "2"],
        ["i", "for", "1"],
        ["a", "against", "\u22121"],
        ["film", "against", "\u22124"],
    ]
    text = shown(page, "#explained .text")
    assert text == "ab \U0001f600 <i>"
    assert "the score is lower" in shown(page, "#explained .hint")
    # Stronger words are darker.
    shades = page.value(
        "[...document.querySelectorAll('#explained mark')]"
        ".map(m => parseFloat(m.style.getPropertyValue('--strength')))"
    )
    assert shades == [37.5, 18.75, 18.75, 75]
    # What is asked next has its own explanation.
    choose(page, "serving_default")
    assert page.value("document.querySelector('#explained').innerText") == ""
    fill(page, text=" ".join(["good", *["so"] * 20]))
    answer(page)
    assert len(explained()) == 21
    hint = shown(page, "#explained .hint")
    assert f"the log odds of \u201c{rows(page)[1][0]}\u201d" in hint
    # One word alone, and answers that are no number, have none.
    fill(page, text="good")
    answer(page)
    assert page.value("document.querySelector('#explained').innerText") == ""
    choose(page, "embed")
    answer(page)
    assert page.value("document.querySelector('#explained').innerText") == ""


def test_candidates_are_whole_words(own):
    choose(own, "questions")
    fill(own, question="what", context=CONTEXT)
    text = answer(own)
    assert text.startswith("running\n")
    assert "\u201cunning\u201d" in text
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
    assert "no answer: 10.0%" in text
    assert "1.253 below" in text
    assert "0.5 below the best answer" in text
    fill(own, question="none")
    text = answer(own)
    assert text.startswith("No answer in this context.")
    assert marks(own) == []
    # ln(0.7 / 0.35)
    assert "no answer: 70.0%" in text
    assert "0.6931 above" in text
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
    assert beside[0] == beside[1] < beside[2]


def test_lines_are_searched(own):
    # The text is (3, 1); the lines (4, 0), (7, 3), (1, 0) and markup (8, 2).
    lines = "abcd\n\na b c d\nx\n<b>a b c"
    fill(own, text="a b", lines=lines)
    text = answer(own)
    assert text.startswith("Lines by their cosine similarity to the text")
    found = [["<b>a b c", "0.997"], ["a b c d", "0.997"]]
    assert sorted(rows(own)[1:3]) == found
    assert rows(own)[3:] == [["abcd", "0.949"], ["x", "0.949"]]
    # Equal ones keep the order of the lines.
    raw = json.loads(own.value("document.querySelector('#json').textContent"))
    assert [row["mean"] for row in raw] == [
        [3, 1],
        [4, 0],
        [7, 3],
        [1, 0],
        [8, 2],
    ]
    # A second text is compared besides.
    fill(own, second="a b")
    text = answer(own)
    assert text.startswith("Similarity 1\n")
    assert len(rows(own)) == 3 + 5
    own.value(
        "[...document.querySelectorAll('#examples button')]"
        ".find(b => b.textContent === 'Search').click()"
    )
    assert own.value("document.querySelector('#input-second').value") == ""
    curl = own.value("document.querySelector('#curl').textContent")
    assert curl.count("password") == 2


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
