"""Pages of reports, for tests."""

import html.parser
import json
import pathlib
from typing import Any

VOID = {"meta", "img", "br", "link", "input", "hr"}
HOSTILE = (
    "<script>alert('x')</script> \"quoted\" & 'single' </p></section> "
    "NUL \x00 escape \x1b \x85 lone \ud800 \u202eright to left\u2066 "
    "<img src=x onerror=alert(1)> &lt; \uffff \u05e9\u05dc\u05d5\u05dd"
)


class Page(html.parser.HTMLParser):
    """The tags and texts of a page; fails on tags that do not match."""

    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def named(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


def numbers_of(page: pathlib.Path) -> dict[str, Any]:
    """What report.json beside a page holds."""
    return json.loads(page.with_name("report.json").read_text("utf-8"))


def text_of(page: pathlib.Path) -> str:
    return Page(page.read_text(encoding="utf-8")).text
