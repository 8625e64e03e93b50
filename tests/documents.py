"""The commands and programs that pages of the documentation print."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")))


def text_of(page: str) -> str:
    """The text of a page, such as "docs/serving.md"."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a language in a page."""
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


def commands(block: str) -> list[str]:
    """The commands of a block that has one a line, or goes on after a \\."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def files(page: str) -> dict[str, str]:
    """The contents of the files that a page shows in full, by their names."""
    shown = r'```\w+ title="([^"]+)"\n(.*?)```'
    return dict(re.findall(shown, text_of(page), re.DOTALL))
