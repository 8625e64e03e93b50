"""Folders of sentence-transformers, and the vectors that it computes."""

import functools
import json
import pathlib
import shutil
from typing import Any

import numpy as np

from bert_tf.checkpoints import read_arrays, write_arrays

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "sentence_transformers"


@functools.cache
def recorded() -> dict[str, Any]:
    """The texts, and the contents of the folders."""
    return json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))


@functools.cache
def _arrays(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / f"{name}.npz"))


CASES = tuple(recorded()["cases"])
TEXTS = recorded()["texts"]
PAIRS = [tuple(pair) for pair in recorded()["pairs"]]


def vectors_of(name: str) -> dict[str | None, np.ndarray]:
    """The vectors of `TEXTS` by prompt_name; "pairs" are those of `PAIRS`."""
    case, rows = recorded()["cases"][name], _arrays("vectors")[name]
    found: dict[str | None, np.ndarray] = {}
    for prompt in (None, *case["prompts"]):
        found[prompt], rows = rows[: len(TEXTS)], rows[len(TEXTS) :]
    if len(rows):
        found["pairs"] = rows
    return found


def write_folder(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes a recorded folder."""
    case = recorded()["cases"][name]
    inner = folder / case["inner"]
    shutil.copytree(GOLDEN / case["base"], inner)
    vocabulary = "\n".join(recorded()["vocabulary"]) + "\n"
    (inner / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    for path, values in case["files"].items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    for path, names in case["weights"].items():
        write_arrays(
            folder / path / "model.safetensors",
            {key: _arrays("dense")[stored] for key, stored in names.items()},
        )
    return folder


CROSS_ENCODERS = tuple(recorded()["cross_encoders"])


def write_cross_encoder(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes a recorded folder of a CrossEncoder."""
    case = recorded()["cross_encoders"][name]
    shutil.copytree(GOLDEN / "bert", folder)
    config = json.dumps(case["config.json"])
    (folder / "config.json").write_text(config, encoding="utf-8")
    vocabulary = "\n".join(recorded()["vocabulary"]) + "\n"
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    arrays = read_arrays(folder / "model.safetensors")
    arrays = {f"bert.{key}": array for key, array in arrays.items()}
    for part in ("weight", "bias"):
        stored = f"classifier_{case['labels']}/{part}"
        arrays[f"classifier.{part}"] = _arrays("dense")[stored]
    write_arrays(folder / "model.safetensors", arrays, {"format": "pt"})
    return folder


def scores_of(name: str) -> np.ndarray:
    """The scores of `PAIRS` by the predict() of a CrossEncoder."""
    return _arrays("vectors")[f"cross_encoder/{name}"]
