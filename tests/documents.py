"""The commands and programs that pages of the documentation print."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a language in a page, such as "docs/serving.md"."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(block: str) -> list[str]:
    """The commands of a block that has one a line, or goes on after a \\."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
