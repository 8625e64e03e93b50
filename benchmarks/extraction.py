"""Sentence vectors beside sentence-transformers and transformers.

A section of benchmarks/cpu_table.py. The same texts go through the same weights
in bfloat16: `bert_tf.embed` by Keras and by OpenVINO,
sentence-transformers (both sort by length), also by its OpenVINO and ONNX
backends where the peers have them, and transformers (batches in the
order of the texts, padded to their longest row, as its users write it). All are
loaded and warm, and count from strings to vectors in NumPy. Equality is the
least cosine to the vectors of sentence-transformers in float32.
"""

import functools
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np

from benchmarks.comparison import Section, Settings, start_peer, threads
from bert_tf.files import expand_inputs, write_text

_PEER = "benchmarks/extraction_transformers.py"
_REFERENCE = "sentence-transformers"
_OURS = {
    "bert_tf, Keras": {},
    "bert_tf, OpenVINO": {"runtime": "openvino"},
}


def _mixed_texts(settings: Settings) -> list[str]:
    """SST-2's sentences and lines of the corpora, half of each."""
    lines = [
        line.strip()
        for file in expand_inputs(settings.corpus)
        for line in file.read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    half = settings.texts // 2
    return [
        text
        for texts in (lines, settings.sentences)
        for text in texts[:: max(1, len(texts) // half)][:half]
    ]


def _least_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(axis=1) / norms).min())


def embeddings(settings: Settings) -> list[dict]:
    """The table of embeddings."""
    import bert_tf

    texts = _mixed_texts(settings)
    mean = np.mean([len(text) for text in texts])
    section = Section(
        f"embeddings ({len(texts)} mixed texts of {mean:.0f} characters, "
        "MiniLM, bfloat16)",
        "texts/s",
        _REFERENCE,
    )
    vectors: dict[str, Callable[[], np.ndarray]] = {}

    def ours(name: str, given: dict[str, str]) -> Callable:
        model = bert_tf.load(
            settings.embedder, precision="mixed_bfloat16", **given
        )
        vectors[name] = functools.partial(bert_tf.embed, model, texts)
        return vectors[name]

    for name, given in _OURS.items():
        section.add(name, functools.partial(ours, name, given))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "texts.txt")
        write_text(path, "".join(f"{text}\n" for text in texts))
        given = settings.embedder, path, folder, threads()
        peer = start_peer(settings, _PEER, *given)
        exact = None
        if peer is None:
            section.missing["the peers"] = "no environment of peers"
        else:
            section.missing |= peer.said["missing"]
            for name in peer.said["names"]:

                def ask(name: str = name) -> float:
                    return peer.ask(name)["seconds"]

                section.add(name, lambda ask=ask: ask)
                vectors[name] = functools.partial(
                    np.load, f"{folder}/{name}.npy"
                )
            exact = np.load(f"{folder}/exact.npy")
        table = section.measured(
            settings.rounds, lambda seconds: len(texts) / seconds, True
        )
        if exact is None:
            exact = bert_tf.embed(settings.embedder, texts, precision="float32")
        for name, row in table["rows"].items():
            cosine = _least_cosine(vectors[name](), exact)
            row["cells"] = {"least cosine": f"{cosine:.6f}"}
        if peer is not None:
            peer.close()
    return [table]
