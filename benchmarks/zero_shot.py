"""Zero-shot classification of a file of texts, beside transformers' pipeline.

    python -m benchmarks.zero_shot --peers=.venv-peers/bin/python \
        --model=FOLDER --input=texts.txt --texts=1000 --labels=20

Whole commands take turns, from the start of Python to the answers as JSON
lines. The model is an encoder with a new head of three outputs, which are named
as those of natural language inference. The pipeline is called with all texts,
and with batches of pairs.
"""

import functools
import json
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from absl import app, flags

import bert_tf
from benchmarks import comparison, measured_run
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.models import model_arrays

_PEERS = flags.DEFINE_string("peers", None, "Python of the peers.")
_MODEL = flags.DEFINE_string("model", None, "Folder of an encoder.")
_INPUT = flags.DEFINE_string("input", None, "File of a text a line.")
_TEXTS = flags.DEFINE_integer("texts", 1000, "How many of them.")
_LABELS = flags.DEFINE_integer("labels", 20, "How many labels.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each.")
flags.mark_flags_as_required(["peers", "model", "input"])
_PEER = "benchmarks/zero_shot_transformers.py"
_NAMES = ("contradiction", "neutral", "entailment")


def write_model(folder: pathlib.Path) -> None:
    """Writes the encoder with a new head in Hugging Face's layout."""
    encoder = bert_tf.BertEncoder.from_checkpoint(_MODEL.value)
    network = bert_tf.bert_classifier(encoder, len(_NAMES))
    source = load_checkpoint(_MODEL.value)
    made = Checkpoint(encoder.config, model_arrays(network), labels=_NAMES)
    made = made.with_tokenizer(source.require_tokenizer("model"))
    save_checkpoint(folder, made, "hugging_face")


def main(_: list[str]) -> None:
    """Prints seconds, processor seconds and the largest difference."""
    comparison.show_machine("benchmarks.zero_shot", "tensorflow")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model")
        lines = pathlib.Path(_INPUT.value).read_text("utf-8").splitlines()
        texts = folder / "texts.txt"
        chosen = [line for line in lines if line.strip()][: _TEXTS.value]
        texts.write_text("\n".join(chosen) + "\n", "utf-8")
        # Labels of one to three words.
        words = dict.fromkeys(" ".join(chosen).split())
        words = [word for word in words if word.isalpha()]
        names = [
            " ".join(words[n : n + 1 + n % 3]) for n in range(_LABELS.value)
        ]
        labels = ",".join(names)
        ours = (
            *(sys.executable, "-m", "tools.predict", "--runtime=keras"),
            *("--precision=float32", "--task=text_pair_classification"),
        )
        theirs = (_PEERS.value, _PEER, f"--threads={comparison.threads()}")
        commands = {
            "bert_tf": ours,
            "transformers": theirs,
            "transformers, batches of 32": (*theirs, "--batch_size=32"),
        }
        processor: dict[str, list[float]] = {name: [] for name in commands}

        def run(name: str) -> float:
            output = folder / f"{name}.jsonl"
            output.unlink(missing_ok=True)
            done = measured_run.run(
                [
                    *commands[name],
                    f"--model={folder / 'model'}",
                    f"--input={texts}",
                    f"--output={output}",
                    f"--candidate_labels={labels}",
                ]
            )
            processor[name].append(done.cpu_seconds)
            return done.seconds

        seconds = comparison.seconds_in_turns(
            {name: functools.partial(run, name) for name in commands},
            _ROUNDS.value,
        )
        found = {}
        for name in commands:
            lines = (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
            rows = [json.loads(line)["probabilities"] for line in lines]
            found[name] = np.array(
                [[row[label] for label in names] for row in rows]
            )
        for name in commands:
            median = statistics.median(seconds[name])
            used = statistics.median(processor[name])
            apart = np.abs(found[name] - found["bert_tf"]).max()
            print(
                f"{name}: {median:.1f} s, {used:.1f} processor s, "
                f"{len(chosen) * len(names) / median:,.0f} pairs/s, "
                f"largest difference {apart:.1e}"
            )


if __name__ == "__main__":
    app.run(main)
