"""Shared by the scripts that make golden data."""

import pathlib
import tarfile

import numpy as np

SIZES = {
    "vocab_size": 24,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 12,
}
# In the keys of DistilBERT.
DISTILBERT_SIZES = {
    **{"vocab_size": 24, "dim": 8, "n_layers": 2, "n_heads": 2},
    **{"hidden_dim": 12, "max_position_embeddings": 12},
}


def fill_torch(model) -> None:
    """Gives every parameter random values, norms around 1."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3)
            if name.lower().endswith("norm.weight"):
                parameter.add_(1.0)


def coarse_normal(random: np.random.Generator, shape) -> np.ndarray:
    """Draws multiples of a 64th, which compress well."""
    return np.round(random.normal(0.0, 0.3, shape) * 64) / 64


def fill_keras(model, seed: int) -> None:
    """Gives every weight random values that compress well, norms around 1."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        values = coarse_normal(random, weight.shape)
        weight.assign(values + ("gamma" in weight.name))


def pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
    """Packs a folder as "saved", without times and owners."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:xz") as file:
        file.add(folder, "saved", filter=plain)
