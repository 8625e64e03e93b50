"""Folders of SPLADE and ColBERT models, and what encode gives of them."""

import functools
import json
import pathlib
import shutil
from typing import Any

import numpy as np

from bert_tf.checkpoints import read_arrays, write_arrays

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "token_vectors"


@functools.cache
def recorded() -> dict[str, Any]:
    """The texts, and the contents of the folders."""
    return json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))


@functools.cache
def _arrays() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / "arrays.npz"))


CASES = recorded()["cases"]
SPARSE = [name for name, case in CASES.items() if "tokens" in case]
LATE = [name for name in CASES if name not in SPARSE]
TEXTS = recorded()["texts"]


def weights_of(name: str, task: str) -> np.ndarray:
    """The weights of `TEXTS`, [N, V]; task is text, query or document."""
    return _arrays()[f"{name}/{task}"]


def vectors_of(name: str, task: str) -> list[np.ndarray]:
    """The vectors of the tokens of `TEXTS` as queries or documents."""
    counts = _arrays()[f"{name}/{task}_counts"]
    return np.split(_arrays()[f"{name}/{task}"], np.cumsum(counts)[:-1])


def scores_of(name: str) -> np.ndarray:
    """The similarity of `TEXTS` as queries to them as documents."""
    return _arrays()[f"{name}/similarity"]


def write_folder(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes a recorded folder."""
    folder.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / file, folder / file)
    vocabulary = "\n".join(recorded()["vocabulary"]) + "\n"
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    for path, values in CASES[name]["files"].items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    dense = f"{name}/1_Dense/model.safetensors/"
    arrays = {
        key.removeprefix(dense): array
        for key, array in _arrays().items()
        if key.startswith(dense)
    }
    if arrays:
        write_arrays(folder / "1_Dense" / "model.safetensors", arrays)
    if name.startswith("stanford"):
        path = folder / "config.json"
        values = json.loads(path.read_text(encoding="utf-8"))
        values["architectures"] = ["HF_ColBERT"]
        path.write_text(json.dumps(values), encoding="utf-8")
        whole = read_arrays(folder / "model.safetensors")
        arrays = {k: v for k, v in whole.items() if k.startswith("bert.")}
        arrays["linear.weight"] = _arrays()[f"{name}/linear.weight"]
        write_arrays(folder / "model.safetensors", arrays, {"format": "pt"})
    return folder
