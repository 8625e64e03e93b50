"""A folder's card, read as huggingface.co's own library does."""

import contextlib
import io
import json
import pathlib
import re
import shlex
from typing import Any

from huggingface_hub import ModelCard

from tests.documents import blocks, commands


def read_card(folder: pathlib.Path) -> ModelCard:
    return ModelCard((folder / "README.md").read_text(encoding="utf-8"))


def scores_of(card: ModelCard) -> dict[tuple[str, str], float]:
    """What the metadata say, by split and metric."""
    return {
        (each.dataset_split, each.metric_type): each.metric_value
        for each in card.data.eval_results or []
    }


def table(card: ModelCard, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, its own head first."""
    section = card.text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    cells = [re.split(r"(?<!\\)\|", row) for row in rows]
    return [[cell.strip() for cell in row] for row in cells]


def ask(folder: pathlib.Path) -> dict[str, Any]:
    """Runs the card's Python, and returns the question of its curl."""
    page = str(folder / "README.md")
    (program,) = blocks(page, "python")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program.replace('"FOLDER"', repr(str(folder))), {})
    assert printed.getvalue().startswith("{")
    *_, curl = commands(blocks(page, "sh")[-1])
    body = json.loads(shlex.split(curl)[2])
    (question,) = body["instances"]
    return question
