"""`bert-tf predict` by every runtime, beside a sorted transformers pipeline.

A section of benchmarks/cpu_table.py. The same job on the same cores: a file of
texts becomes a file of JSON lines with the label and all probabilities of each,
in the order of the input. All are whole commands, from the start of Python to
its end; the memory is the peak of the resident set of the process. The texts
are repeated until there are enough, each with its number behind it, so that
none is the same twice.
"""

import functools
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable

import numpy as np

from benchmarks import measured_run
from benchmarks.comparison import REFERENCE, Section, Settings, threads

_PEER = "benchmarks/predict_transformers.py"
_EXACT = "bert_tf, Keras, float32"
_BFLOAT16 = "--precision=mixed_bfloat16"
# Flags of `bert-tf predict`; auto is what it takes without any.
_OURS = {
    _EXACT: ("--runtime=keras", "--precision=float32"),
    "bert_tf, Keras, bfloat16": ("--runtime=keras", _BFLOAT16),
    "bert_tf, OpenVINO, float32": ("--runtime=openvino", "--precision=float32"),
    "bert_tf, OpenVINO, bfloat16": ("--runtime=openvino", _BFLOAT16),
    "bert_tf, ONNX Runtime, float32": ("--runtime=onnx", "--precision=float32"),
    "bert_tf, as it comes": (),
}
_THEIRS = {
    f"{REFERENCE}, float32": (),
    f"{REFERENCE}, bfloat16": ("--bfloat16",),
    "transformers, compiled and frozen, bfloat16": ("--bfloat16", "--compile"),
}


def _write_rows(path: pathlib.Path, texts: list[str], count: int) -> float:
    """Writes the rows to answer; their mean number of characters."""
    rows = [f"{texts[n % len(texts)]} {n}" for n in range(count)]
    with path.open("w", encoding="utf-8") as file:
        for text in rows:
            file.write(json.dumps({"text": text}) + "\n")
    return float(np.mean([len(text) for text in rows]))


def _answers(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """Labels, and the probabilities of all by name, float64 [N, C]."""
    labels, rows = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        labels.append(answer["label"])
        found = answer["probabilities"]
        rows.append([found[name] for name in sorted(found)])
    return labels, np.array(rows)


def predict(settings: Settings) -> list[dict]:
    """The table of whole commands, with their memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / "in.jsonl"
        few = folder / "few.jsonl"
        texts = settings.sentences
        _write_rows(few, texts, 64)
        mean = _write_rows(source, texts, settings.texts)
        section = Section(
            f"{settings.texts:,} SST-2 texts (MiniLM, {mean:.0f} characters "
            "each, whole commands)",
            "s",
            f"{REFERENCE}, float32",
        )
        outputs: dict[str, pathlib.Path] = {}
        peaks: dict[str, list[float]] = {}

        def work_of(name: str, command: list[str]) -> Callable[[], float]:
            outputs[name] = folder / f"{len(outputs)}.jsonl"
            peaks[name] = []

            def run(given: pathlib.Path) -> float:
                outputs[name].unlink(missing_ok=True)
                done = measured_run.run(
                    [
                        *command,
                        f"--input={given}",
                        f"--output={outputs[name]}",
                        "--batch_size=32",
                    ],
                    watch=True,
                )
                peaks[name].append(done.largest_peak)
                return done.seconds

            # A model is converted at its first start.
            run(few)
            peaks[name].clear()
            return functools.partial(run, source)

        def add(name: str, *command: str) -> None:
            section.add(name, lambda: work_of(name, list(command)), warm=False)

        int8 = {
            f"bert_tf, {name}, int8": (f"--runtime={path}",)
            for name, path in settings.int8.items()
        }
        for name, given in (_OURS | int8).items():
            program = (sys.executable, "-m", "tools.predict")
            model = f"--model={settings.classifier}"
            add(name, *program, model, "--text_column=text", *given)
        for name, given in _THEIRS.items():
            if settings.peers:
                program = (settings.peers, _PEER)
                model = f"--model={settings.converted}"
                more = ("--max_seq_length=128", f"--threads={threads()}")
                add(name, *program, model, *more, *given)
            else:
                section.missing[name] = "no environment of peers"
        table = section.measured(settings.rounds, float)
        labels, chances = _answers(outputs[_EXACT])
        for name, row in table["rows"].items():
            own, mine = _answers(outputs[name])
            flips = sum(a != b for a, b in zip(own, labels, strict=True))
            row["cells"] = {
                "other labels": str(flips),
                "largest difference": f"{np.abs(mine - chances).max():.1e}",
                "peak MB": f"{max(peaks[name]):,.0f}",
            }
    return [table]
