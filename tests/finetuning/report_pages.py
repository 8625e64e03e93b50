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
        self.source = source
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.cells: list[list[list[str]]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.cells.append([])
        elif tag == "tr":
            self.cells[-1].append([])
        elif tag in ("th", "td"):
            self.cells[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and {"th", "td"} & set(self.open[-4:]):
            self.cells[-1][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def tables(self) -> list[list[list[str]]]:
        """The cells of each row of each table."""
        return [
            [[" ".join(cell.split()) for cell in row] for row in table]
            for table in self.cells
        ]

    def check(self) -> None:
        """The page needs no other file, runs nothing, and is accessible."""
        assert self.named("html") == [{"lang": "en"}]
        assert not self.named("script")
        assert [each["href"] for each in self.named("link")] == ["data:,"]
        policy = self.named("meta")[1]["content"]
        assert policy.startswith("default-src 'none'")
        assert "script-src" not in policy
        assert "@import" not in self.source
        assert "url(" not in self.source
        for picture in self.named("img"):
            assert picture["src"].startswith("data:image/svg+xml;base64,")
            assert len(picture["alt"]) > 20
        assert all(
            each.get("scope") in ("col", "row", "colgroup")
            for each in self.named("th")
        )
        names = [each["id"] for _, each in self.tags if "id" in each]
        assert len(set(names)) == len(names)
        # A table is in a box that scrolls, so that the page never does.
        assert len(self.cells) == sum(
            "scroll" in each.get("class", "") and "wide" not in each["class"]
            for each in self.named("div")
        )
        assert "prefers-color-scheme" in self.source

    def named(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


def numbers_of(page: pathlib.Path) -> dict[str, Any]:
    """What report.json beside a page holds."""
    return json.loads(page.with_name("report.json").read_text("utf-8"))


def text_of(page: pathlib.Path) -> str:
    return Page(page.read_text(encoding="utf-8")).text
