import pytest

from bert_tf.corpora.wikipedia import passages

UNSHOWN = frozenset({"file", "image", "category", "media", "datei"})
PAGE = """{{short description|x {{nested|{{deep}} }}}}
[[File:A.jpg|thumb|left|A caption with [[link|a link]] inside.]]
'''Zorb''' ({{lang|xx|Z}}; born 1950) is a ''made-up'' [[city|town]] in
[[Nowhere]]s.<ref name="q">Book, {{cite|a}}</ref> It has 5{{nbsp}}000
people,<ref name=x /> and <math>x^2</math> more &mdash; see
[http://x.example the site].<!-- hidden
comment -->

Another passage with <b>bold</b> and <nowiki>[[no link]] {{x}}</nowiki> text
on two&nbsp;lines.<br />After the break.

== Header ==
* item one
# item two
: indented
;term: definition
{| class="wikitable"
! head
|-
| cell || {{t}}
|
{| nested
| inner
|}
|}
----
<gallery>
File:B.jpg|text of it
</gallery>
<ul><li>list <ul><li>inner</li></ul> end</li></ul>
<syntaxhighlight lang="c">int x = {{0}};</syntaxhighlight>
=== Sub ===
The end.
[[Category:Towns]]
[[de:Zorb]]
__NOTOC__
"""


def test_a_page_with_every_construct() -> None:
    assert passages(PAGE, UNSHOWN) == [
        "Zorb (born 1950) is a made-up town in Nowheres. It has 5000 people, "
        "and more — see the site.",
        "Another passage with bold and [[no link]] {{x}} text on two lines.",
        "After the break.",
        "The end.",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a [[b|c]] d", "a c d"),
        ("a [[b]]s [[:File:x]] [[:de:Y]]", "a bs File:x de:Y"),
        ("a [[b_c#d|e|f]]", "a f"),
        ("see [[Wikipedia:X|the page]] [[s:Z]]", "see the page s:Z"),
        ("a[[Datei:q.png|mini|t [[u]]]] b[[Image:q]]", "a b"),
        ("a [https://x.example] b [//y.example c d] [1]", "a b c d [1]"),
        ("a [mailto:x@y.example post] b", "a post b"),
        ("a <sup>2</sup> <span class='x'>b</span>", "a 2 b"),
        ("a ''b'' '''c''' '''''d''''' l''''e''' f''", "a b c d l'e f"),
        ("x < y and y > z &amp; 5 &lt; 6", "x < y and y > z & 5 < 6"),
        ("a (  ; , ) b ({{x}}) 丙（{{y}}，）丁", "a b 丙丁"),
        ("a<ref>b</ref> c<ref name=d/>, e<references/>", "a c, e"),
        ("a <REF>b</REF>c<ref>open. d", "a copen. d"),
        ("-{zh-hans:甲;zh-hant:乙}-丙-{丁}-", "甲丙丁"),
        ("a {{b|{{{1|}}}|{x}}} c }} d", "a c d"),
        ("a <!-- b", "a"),
        ("{{x|y\na b", "a b"),
        ("{|\n| a\nb", "b"),
        ("{{a}} {|\n|b {{c|}}\n|} d", "d"),
        ("| row that a table left\n! head\na", "a"),
        ("a\n code = 1\n\n{{x}} b\n\n<ref>c</ref> d", "a b d"),
        ("[[File:q.png]] a<br> b\n\n<!-- c --> code", "a b"),
        ("{{As of|1}}, a,{{x}}, and {{y}}; ,b", "a, and ;b"),
        ("\x01" + "5\x02 a", "5 a"),
    ],
)
def test_constructs(source: str, expected: str) -> None:
    assert " ".join(passages(source, UNSHOWN)) == expected


def test_what_holds_no_text_gives_none() -> None:
    assert passages("#REDIRECT [[Town]]", UNSHOWN) == []
    assert passages("{{stub}}\n\n<!-- x -->\n. ;", UNSHOWN) == []
    assert passages("", UNSHOWN) == []


def test_open_braces_cost_no_more_than_their_number() -> None:
    source = "{{a|[[b|{|\n" * 5000 + "Kept at last."
    assert passages(source, UNSHOWN)[-1].endswith("Kept at last.")
