"""Few rows: our defaults beside SetFit and logistic regression.

    python -m benchmarks.few_labels --model=MODEL --glue=GLUE \
        --peer_python=.venv-setfit/bin/python --output_dir=DIR

For each task, number of rows of a class and seed: rows are drawn from the
training data and all methods are trained on the same. `bert_tf.finetune` at its
defaults; the paper's settings (Devlin et al. 2019, appendix A.3: 3 epochs of
batches of 32 at 5e-5, a random head on [CLS]); SetFit and scikit-learn's
logistic regression on the vectors of `bert_tf.embed`, by few_labels_setfit.py.
A pair is one text for SetFit and "joined", and for "compared" the absolute
difference and the product of two vectors. No method selects a model by the test
rows: ours are evaluated once, at the end. Tasks: SST-2 and MRPC (the dev split
is the test), and examples/reviews.csv with the neutral sentences beside this
file, three classes. What is finished in DIR is not repeated. The table is
printed, and written to DIR with a picture.
"""

import csv
import functools
import json
import math
import pathlib
import random
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

import bert_tf
from tools import command_line

PEER = "benchmarks.few_labels_setfit"
OURS, PAPER = "ours", "paper's settings"

_MODEL = flags.DEFINE_string("model", None, "Folder of a sentence model.")
_GLUE = flags.DEFINE_string("glue", None, "Folder of GLUE's files.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder of the results.")
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python of SetFit's environment; none without it."
)
_ROWS = flags.DEFINE_list("rows", ["8", "16", "64"], "Rows of a class.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds of all methods.")
_TASKS = flags.DEFINE_list("tasks", ["sst2", "mrpc", "three"], "The tasks.")
_OURS = flags.DEFINE_list("ours", [OURS, PAPER], "Our methods.")
_TEST_ROWS = flags.DEFINE_integer("test_rows", 300, "The most test rows.")
_PEERS = flags.DEFINE_list(
    "peers", ["logistic", "setfit"], "Methods of the peers."
)

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "examples" / "reviews.csv"
NEUTRAL = HERE / "few_labels_neutral.csv"
_PAPER_SETTINGS = {
    "num_train_epochs": 3.0,
    "learning_rate": 5e-5,
    "train_batch_size": 32,
}
TITLES = {"mrpc": "MRPC", "sst2": "SST-2", "three": "three classes"}
Row = tuple[tuple[str, ...], str]


def _tsv(path: pathlib.Path, texts: Sequence[int], label: int) -> list[Row]:
    lines = path.read_text("utf-8-sig").split("\n")[1:]
    cells = [line.split("\t") for line in lines if line.strip()]
    return [(tuple(c[i].strip() for i in texts), c[label]) for c in cells]


def rows_of(task: str) -> tuple[list[Row], list[Row]]:
    """The rows to draw from, and the test rows; none if they are drawn too."""
    glue = pathlib.Path(_GLUE.value or ".")
    if task == "three":
        rows: list[Row] = []
        for path in (EXAMPLES, NEUTRAL):
            with open(path, encoding="utf-8", newline="") as file:
                read = csv.DictReader(file)
                rows += [((row["text"],), row["label"]) for row in read]
        return rows, []
    folder, texts, label = {
        "sst2": ("SST-2", (0,), 1),
        "mrpc": ("MRPC", (3, 4), 0),
    }[task]
    train, test = (
        _tsv(glue / folder / f"{split}.tsv", texts, label)
        for split in ("train", "dev")
    )
    random.Random(0).shuffle(test)
    return train, test[: _TEST_ROWS.value]


def draw(task: str, count: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Draws `count` rows of each class, and returns them and the test rows."""
    rows, test = rows_of(task)
    random.Random(seed).shuffle(rows)
    labels = sorted({label for _, label in rows})
    train = [
        row
        for label in labels
        for row in [row for row in rows if row[1] == label][:count]
    ]
    # The same test rows for every number of rows.
    most = max(map(int, _ROWS.value))
    drawn = [
        row
        for label in labels
        for row in [row for row in rows if row[1] == label][most:]
    ]
    return train, test or drawn


@functools.cache
def embedder() -> bert_tf.LoadedModel:
    """The sentence model, loaded once."""
    return bert_tf.load(_MODEL.value)


def write_job(folder: pathlib.Path, task: str, count: int, seed: int) -> None:
    """Writes the rows and the vectors of a job."""
    embed = functools.partial(bert_tf.embed, embedder())
    folder.mkdir(parents=True, exist_ok=True)
    splits = dict(zip(("train", "test"), draw(task, count, seed), strict=True))
    features: dict[str, np.ndarray] = {}
    for name, rows in splits.items():
        lines = [json.dumps({"texts": a, "label": b}) for a, b in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        features[f"joined/{name}"] = embed(" ".join(texts) for texts, _ in rows)
        if len(rows[0][0]) == 2:
            first, second = (embed(t[i] for t, _ in rows) for i in (0, 1))
            features[f"compared/{name}"] = np.concatenate(
                [np.abs(first - second), first * second], axis=1
            )
    np.savez(folder / "features.npz", **features)


def read(path: pathlib.Path) -> tuple[list[Any], list[str]]:
    """Texts, or pairs of them, and labels of a job's file."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [
        tuple(r["texts"]) if r["texts"][1:] else r["texts"][0] for r in rows
    ]
    return texts, [row["label"] for row in rows]


def ours(folder: pathlib.Path, seed: int, method: str) -> float:
    """The accuracy of a fine-tuning by us."""
    settings: dict[str, Any] = {"eval_steps": 10**6}
    if method == PAPER:
        settings |= {
            **_PAPER_SETTINGS,
            "classifier_pooling": "cls",
            "head_start": "given",
        }
    run = bert_tf.finetune(
        _MODEL.value,
        read(folder / "train.jsonl"),
        read(folder / "test.jsonl"),
        output_dir=folder / method.partition("'")[0],
        seed=seed,
        settings=settings,
    )
    return run.scores["dev"]["accuracy"]


def peers(folders: Sequence[pathlib.Path], jobs: Sequence[Any]) -> None:
    """Runs the methods of the peers that are not finished."""
    lines = [
        {
            "folder": str(folder),
            "method": method,
            "answers": str(folder / f"{method}.json"),
            "seed": seed,
        }
        for method in _PEERS.value
        for folder, (_, _, seed) in zip(folders, jobs, strict=True)
        if not (folder / f"{method}.json").exists()
    ]
    subprocess.run(
        [_PEER_PYTHON.value, "-m", PEER, _MODEL.value],
        input="\n".join(map(json.dumps, lines)),
        text=True,
        check=True,
        cwd=HERE.parent,
    )


def accuracies(folder: pathlib.Path) -> dict[str, float]:
    """The accuracy of each method of a job that is finished."""
    found = json.loads((folder / "ours.json").read_text())
    _, labels = read(folder / "test.jsonl")
    for method in _PEERS.value:
        path = folder / f"{method}.json"
        answers = json.loads(path.read_text()) if path.exists() else {}
        for name, given in answers.items():
            right = [a == b for a, b in zip(given, labels, strict=True)]
            found[name] = statistics.fmean(right)
    return found


def methods(means: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """The names of all methods, in the order of the table and the legend."""
    return list(dict.fromkeys(name for row in means.values() for name in row))


def table(
    means: Mapping[tuple[str, int], Mapping[str, Sequence[float]]],
) -> Iterator[str]:
    """The lines of the table in Markdown."""
    names = methods(means)
    yield "| task | rows a class | " + " | ".join(names) + " |"
    yield "|---|--:|" + "--:|" * len(names)
    for (task, count), row in means.items():
        cells = []
        for name in names:
            values = [100 * value for value in row.get(name, ())]
            cell = f"{statistics.fmean(values):.1f}" if values else "–"
            if len(values) > 1:
                cell += f" ± {statistics.stdev(values):.1f}"
            cells.append(cell)
        yield f"| {TITLES[task]} | {count} | " + " | ".join(cells) + " |"
    cells = []
    for name in names:
        rows = [
            statistics.fmean(row.get(name, [math.nan]))
            for row in means.values()
        ]
        mean = 100 * statistics.fmean(rows)
        cells.append("–" if math.isnan(mean) else f"{mean:.1f}")
    yield "| mean | | " + " | ".join(cells) + " |"


def draw_picture(
    path: pathlib.Path,
    means: Mapping[tuple[str, int], Mapping[str, Sequence[float]]],
) -> None:
    """Accuracy over the rows of a class, one panel for each task."""
    from matplotlib import pyplot

    tasks = list(dict.fromkeys(task for task, _ in means))
    names = methods(means)
    figure, panels = pyplot.subplots(
        1, len(tasks), figsize=(3.2 * len(tasks), 3), layout="constrained"
    )
    for task, axes in zip(tasks, np.atleast_1d(panels), strict=True):
        by_name: dict[str, list[tuple[int, float]]] = {}
        for (own, count), row in means.items():
            for name, values in row.items() if own == task else ():
                point = count, 100 * statistics.fmean(values)
                by_name.setdefault(name, []).append(point)
        for name, points in by_name.items():
            width = 2.5 if name == OURS else 1.2
            axes.plot(
                *zip(*points, strict=True),
                f"C{names.index(name)}o-",
                label=name,
                lw=width,
            )
        axes.set(title=TITLES[task], xlabel="rows a class", xscale="log")
        counts = sorted({count for own, count in means if own == task})
        axes.set_xticks(counts, map(str, counts))
        axes.minorticks_off()
    np.atleast_1d(panels)[0].set_ylabel("accuracy, %")
    lines: dict[str, Any] = {}
    for axes in np.atleast_1d(panels):
        handles, labels = axes.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    figure.legend(
        [lines[name] for name in names],
        names,
        loc="outside lower center",
        ncols=5,
        fontsize="small",
        frameon=False,
    )
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Runs what is not finished, and prints the table."""
    output = pathlib.Path(_OUTPUT_DIR.value)
    jobs = [
        (task, int(count), int(seed))
        for seed in _SEEDS.value
        for count in _ROWS.value
        for task in _TASKS.value
    ]
    folders = [output / f"{task}-{n}-{seed}" for task, n, seed in jobs]
    for folder, job in zip(folders, jobs, strict=True):
        if not (folder / "features.npz").exists():
            write_job(folder, *job)
    if _PEER_PYTHON.value:
        peers(folders, jobs)
    for folder, (_, _, seed) in zip(folders, jobs, strict=True):
        if not (folder / "ours.json").exists():
            found = {each: ours(folder, seed, each) for each in _OURS.value}
            (folder / "ours.json").write_text(json.dumps(found))
    means: dict[tuple[str, int], dict[str, list[float]]] = {}
    for folder, (task, count, _) in sorted(
        zip(folders, jobs, strict=True), key=lambda each: each[1]
    ):
        row = means.setdefault((task, count), {})
        for name, value in accuracies(folder).items():
            row.setdefault(name, []).append(value)
    lines = list(table(means))
    (output / "few_labels.md").write_text("\n".join(lines) + "\n")
    draw_picture(output / "few_labels.svg", means)
    print(*lines, sep="\n")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model", "output_dir"])
    command_line.run(main)
