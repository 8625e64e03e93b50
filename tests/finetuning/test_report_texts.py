"""A user's texts on a page: nothing becomes markup, long ones are shortened."""

from bert_tf.report.render import environment
from bert_tf.report.sections import Page as PageOf
from bert_tf.report.texts import Mark, MarkedText, showable
from tests.finetuning.report_pages import Page

TEMPLATE = environment().get_template("page.html.jinja")


def drawn(text, *marks):
    """A text as a page draws it."""
    module = TEMPLATE.make_module({"page": PageOf("", {}, [])})
    return module.passage(MarkedText(text, marks=marks))


def test_long_texts_are_cut_in_the_middle():
    text = "first " + "word " * 2000 + "last"
    page = Page(drawn(text))
    short = "".join(page.texts[:3])
    assert short.startswith("first word")
    assert short.endswith("word last")
    assert "\u2026" in short
    assert len(short) < 300
    assert f"Full text, {len(text):,} characters" in page.texts
    assert text in page.texts
    unbroken = Page(drawn("x" * 5000))
    assert unbroken.texts[0].strip() == "x" * 200
    assert "<details>" not in drawn("short")
    assert "empty" in drawn(" \n")


def test_isolates_end_where_their_text_ends():
    assert showable("a\u2066b\u2067c") == "a\u2066b\u2067c\u2069\u2069"
    assert showable("\u2069a\u2068b\u2069\u2069c") == "a\u2068b\u2069c"
    kept = "\u05d0\u200f\u202eb\u202c"
    assert showable(kept) == kept


def test_characters_that_html_may_not_hold():
    assert showable("a\x00b\x7f") == "a\u2400b\u2421"
    assert showable("\ud800\x9f\uffff") == "\ufffd" * 3
    assert showable("a\r\nb\tc") == "a\nb\tc"


def test_templates_escape_every_value():
    page = environment().from_string("<p title='{{ text }}'>{{ text }}</p>")
    text = "<\"'&>\x00"
    assert page.render(text=text) == "<p title='{0}'>{0}</p>".format(
        "&lt;&#34;&#39;&amp;&gt;\u2400"
    )


def text_of(html):
    return "".join(Page(html).texts).strip()


def test_marks_may_overlap():
    gold, given = Mark(4, 13, "true", "gold"), Mark(8, 18, "given", "given")
    html = drawn("one two three four", gold, given)
    assert text_of(html) == "one truetwo giventhree four"
    styles = [each["class"] for each in Page(html).named("mark")]
    assert styles == ["gold", "gold given", "given"]
    # One in the other, and one of no length.
    marks = Mark(0, 3, "A", "x"), Mark(1, 2, "B", "y"), Mark(2, 2, "C", "z")
    html = drawn("abc", *marks)
    assert text_of(html) == "AaBbc"


def test_long_texts_are_shown_around_their_marks():
    text = "left " * 200 + "GOLD " + "between " * 100 + "GIVEN" + " right" * 200
    first, last = text.index("GOLD"), text.index("GIVEN")
    gold = Mark(first, first + 4, "true", "gold")
    html = drawn(text, gold, Mark(last, last + 5, "p", "g"))
    short, whole = html.split("<details>")
    short = text_of(short)
    assert short.count("\u2026") == 3
    assert "trueGOLD" in short
    assert len(short) < 700
    words = "left trueGOLD between pGIVEN right".split()
    assert set(short.replace("\u2026", "").split()) == set(words)
    assert f"Full text, {len(text):,} characters" in whole
    assert "\u2026" not in whole
