"""Seconds from the start of Python to the first and the second answer.

benchmarks/start.py starts it for each of its rows, with the Python of either
environment. It prints one line of JSON: processor and wall seconds of imports,
loading and both answers, the first answer's numbers, and the peak of memory.

    python benchmarks/start_parts.py classify bert_tf FOLDER
    python benchmarks/start_parts.py embed sentence-transformers FOLDER
"""

import json
import os
import pathlib
import sys
import time

_TEXT = "A lovely film, and a moving one."
_SECOND = "A film that nobody needs to see twice."


def _classifier_of_bert_tf(folder: str):
    import bert_tf

    yield bert_tf.LoadedModel
    model = bert_tf.load(folder)
    yield
    for text in (_TEXT, _SECOND):
        yield sorted(model(text)["probabilities"].values())


def _classifier_of_transformers(folder: str):
    from transformers import pipeline

    yield pipeline
    classify = pipeline("text-classification", model=folder, top_k=None)
    yield
    for text in (_TEXT, _SECOND):
        # A row of a batch is a list of labels with their scores.
        (scores,) = classify([text])
        yield sorted(each["score"] for each in scores)


def _embedder_of_bert_tf(folder: str):
    import bert_tf

    yield bert_tf.LoadedModel
    model = bert_tf.load(folder)
    yield
    for text in (_TEXT, _SECOND):
        yield list(map(float, model(text)["embedding"]))


def _embedder_of_sentence_transformers(folder: str):
    from sentence_transformers import SentenceTransformer

    yield SentenceTransformer
    model = SentenceTransformer(folder, device="cpu")
    yield
    for text in (_TEXT, _SECOND):
        yield model.encode(text).tolist()


_PROGRAMS = {
    ("classify", "bert_tf"): _classifier_of_bert_tf,
    ("classify", "transformers"): _classifier_of_transformers,
    ("embed", "bert_tf"): _embedder_of_bert_tf,
    ("embed", "sentence-transformers"): _embedder_of_sentence_transformers,
}


def main() -> None:
    """Prints the seconds of each part."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    task, side, folder = sys.argv[1:]
    steps = _PROGRAMS[task, side](folder)
    parts, results = {}, []
    # Since the start of the process: what Python itself took is of the imports.
    before = (0.0, time.perf_counter())
    for name in ("imports", "loading", "first answer", "second answer"):
        results.append(next(steps))
        now = (time.process_time(), time.perf_counter())
        parts[name] = [b - a for a, b in zip(before, now, strict=True)]
        before = now
    # Unlike that of getrusage, it is not inherited from the parent.
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"parts": parts, "answer": results[2], "peak": peak}))


if __name__ == "__main__":
    main()
