"""`bert-tf predict` beside a transformers pipeline sorted by length.

    python -m benchmarks.predict --peer_python=.venv-peers/bin/python \
        --model=out/sst2 --input=reviews.csv --text_column=sentence

The same job on the same cores: a file of texts becomes a file of JSON lines
with the label and all probabilities of each, in the order of the input. The
model is a fine-tuned folder of classes, which the peer gets as
`bert-tf convert` writes it for Hugging Face. Both are whole commands
and take turns; the seconds count from the start of Python to its end, and the
memory is the peak of the resident set of the process. The texts are repeated
until there are enough, each with its number behind it, so that none is the
same twice. Beside the speed stands how many labels are the same and the largest
difference of a probability.

The peer needs the environment of requirements-peers.txt.
"""

import json
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from absl import flags

from benchmarks import comparison, measured_run
from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.families.data.tables import read_table
from bert_tf.recipe import read_json_object
from tools import command_line

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python with transformers."
)
_MODEL = flags.DEFINE_string(
    "model", None, "Folder of a model of classes that was fine-tuned."
)
_INPUT = flags.DEFINE_string("input", None, "CSV, TSV or JSON lines.")
_TEXT_COLUMN = flags.DEFINE_string(
    "text_column", "text", "Where its texts are."
)
_ROWS = flags.DEFINE_integer("rows", 100_000, "Rows to answer.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Of both sides.")
_ROUNDS = flags.DEFINE_integer("rounds", 1, "Rounds to take the median of.")

_PEER = "benchmarks/predict_transformers.py"
_SIDES = ("bert_tf", "transformers")


def write_rows(path: pathlib.Path) -> float:
    """Writes the rows to answer; their mean number of characters."""
    texts = [
        str(row.cells[0])
        for row in read_table(_INPUT.value, [_TEXT_COLUMN.value])
    ]
    characters = 0
    with path.open("w", encoding="utf-8") as file:
        for number in range(_ROWS.value):
            text = f"{texts[number % len(texts)]} {number}"
            characters += len(text)
            file.write(json.dumps({"text": text}) + "\n")
    return characters / _ROWS.value


def answers(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """Labels, and the probabilities of all by name, float64 [N, C]."""
    labels, rows = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        labels.append(answer["label"])
        found = answer["probabilities"]
        rows.append([found[name] for name in sorted(found)])
    return labels, np.array(rows)


def main() -> None:
    """Prints the machine, the speeds, the memory and the differences."""
    config = read_json_object(pathlib.Path(_MODEL.value, "task.json"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / "in.jsonl"
        mean = write_rows(source)
        save_checkpoint(
            folder / "peer", load_checkpoint(_MODEL.value), "hugging_face"
        )
        outputs = {side: folder / f"{side}.jsonl" for side in _SIDES}
        commands = {
            "bert_tf": [
                *(sys.executable, "-m", "tools.predict"),
                f"--model={_MODEL.value}",
                f"--input={source}",
                f"--output={outputs['bert_tf']}",
                "--text_column=text",
                f"--batch_size={_BATCH_SIZE.value}",
            ],
            "transformers": [
                *(_PEER_PYTHON.value, _PEER),
                f"--model={folder / 'peer'}",
                f"--input={source}",
                f"--output={outputs['transformers']}",
                f"--batch_size={_BATCH_SIZE.value}",
                f"--max_seq_length={config['max_seq_length']}",
                f"--threads={comparison.threads()}",
            ],
        }
        runs: dict[str, list[measured_run.Measured]] = {s: [] for s in _SIDES}
        for _ in range(_ROUNDS.value):
            for side, command in commands.items():
                runs[side].append(measured_run.run(command, watch=True))
        (ours, mine), (theirs, other) = map(answers, outputs.values())
    comparison.show_heading("benchmarks.predict", _PEER_PYTHON.value)
    print(f"{_ROWS.value:,} rows of {mean:.0f} characters on average")
    print("| | rows/s | seconds | peak MB |\n|---|---|---|---|")
    for side, measured in runs.items():
        seconds = statistics.median(run.seconds for run in measured)
        peak = max(run.largest_peak for run in measured)
        print(
            f"| {side} | {_ROWS.value / seconds:,.0f} | {seconds:,.1f} | "
            f"{peak:,.0f} |"
        )
    same = np.mean([a == b for a, b in zip(ours, theirs, strict=True)])
    print(
        f"{100 * same:.3f} % of the labels are the same; probabilities differ "
        f"by {np.abs(mine - other).max():.1e} at most."
    )


if __name__ == "__main__":
    command_line.require("peer_python", "model", "input")
    command_line.run(main)
