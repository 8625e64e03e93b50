"""The budget: sizes that tests/budget.json limits.

    python -m tests.budget

writes the present figures to the file and prints those that change, old -> new:
the lines of each room, the modules that `import bert_tf` loads and, of four
walks, the modules loaded, the files of bert_tf in which a function is called,
and the lines of these files. A walk has a process of its own, so that no cache
hides a file.
"""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from collections import Counter
from collections.abc import Iterable, Iterator

from tests import commands

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGET = ROOT / "tests" / "budget.json"
RUNS = ROOT / "tests" / "golden" / "finished_runs"
# Code and templates.
COUNTED = (".py", ".jinja", ".html", ".css", ".js")


def main() -> None:
    """Writes tests/budget.json."""
    present = lines_of_rooms() | modules_of_import()
    for walk in WALKS:
        present |= figures_of_walk(walk)
    before = recorded()
    for name in before | present:
        old, new = before.get(name, 0), present.get(name, 0)
        if old != new:
            print(f"{name}: {old} -> {new}")
    BUDGET.write_text(f"{json.dumps(present, indent=1)}\n", encoding="utf-8")


def recorded() -> dict[str, int]:
    """Returns the figures in tests/budget.json."""
    return json.loads(BUDGET.read_text(encoding="utf-8"))


def growth(present: dict[str, int]) -> str:
    """Returns a line for each figure above the recorded one."""
    before = recorded()
    return "\n".join(
        f"{name}: {before.get(name, 0)} in tests/budget.json, now {figure}; "
        "make it smaller, or raise the figure (python -m tests.budget) in the "
        "same commit and say why in its message"
        for name, figure in present.items()
        if figure > before.get(name, 0)
    )


def lines_of_rooms(root: pathlib.Path = ROOT) -> dict[str, int]:
    """Returns the lines of code and templates of each room of a checkout."""
    lines: Counter[str] = Counter()
    for top in ("bert_tf", "tools", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in COUNTED:
                part = path.relative_to(root / top).parts[0]
                room = "*.py" if part == path.name else part
                lines[f"lines of {top}/{room}"] += num_lines([path])
    return dict(lines)


def modules_of_import() -> dict[str, int]:
    """Returns the number of modules that `import bert_tf` loads."""
    code = "import bert_tf, sys; print(*sys.modules)"
    words = [sys.executable, "-c", code]
    loaded = subprocess.check_output(words, cwd=ROOT, text=True)
    return {"modules loaded by import": num_modules(loaded.split())}


def figures_of_walk(name: str) -> dict[str, int]:
    """Returns the figures of a walk, one of `WALKS`."""
    done = commands.run_as_process("tests.budget", name, environment={})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def num_lines(paths: Iterable[pathlib.Path]) -> int:
    """Returns the number of lines of files together."""
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def num_modules(names: Iterable[str]) -> int:
    """Returns how many names are those of bert_tf or of modules in it."""
    return sum(name.split(".")[0] == "bert_tf" for name in names)


@contextlib.contextmanager
def files_entered() -> Iterator[set[pathlib.Path]]:
    """Collects the files of bert_tf in which a function is called."""
    library = f"{ROOT}/bert_tf/"
    files = set()

    def trace(frame: types.FrameType, *_: object) -> None:
        code = frame.f_code
        # What an import executes is called <module>.
        if code.co_filename.startswith(library) and code.co_name[0] != "<":
            files.add(pathlib.Path(code.co_filename))

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield files
    finally:
        sys.settrace(None)
        threading.settrace(None)


def load(folder: pathlib.Path) -> None:
    """Answers one text."""
    import bert_tf

    bert_tf.load(RUNS / "classes")("A very good film")


def csv(folder: pathlib.Path) -> None:
    """Fine-tunes a model on a CSV file and predicts the file's labels."""
    import bert_tf
    from bert_tf.inference.predict import predict_file

    table = ROOT / "examples" / "reviews.csv"
    run = bert_tf.finetune(
        pretrained_model(folder),
        table,
        text_columns="text",
        label_column="label",
        max_seq_length=32,
        num_train_epochs=1.0,
        output_dir=folder / "run",
    )
    predict_file(run.folder, table, folder / "answers.jsonl")


def convert(folder: pathlib.Path) -> None:
    """Converts a model to a checkpoint as Google's, and that one back."""
    from bert_tf.conversion import convert_checkpoint

    google = folder / "google"
    convert_checkpoint(pretrained_model(folder), "google_tf1", google)
    convert_checkpoint(google, "bert_tf", folder / "back")


def onnx(folder: pathlib.Path) -> None:
    """Exports a fine-tuned model to ONNX."""
    from bert_tf.inference.export_file import export_file

    export_file(RUNS / "classes", folder / "onnx", "onnx")


def pretrained_model(folder: pathlib.Path) -> pathlib.Path:
    """Copies a model with a pooler, without the file that states its task."""
    no_task = shutil.ignore_patterns("task.json")
    return shutil.copytree(RUNS / "choices", folder / "model", ignore=no_task)


WALKS = {walk.__name__: walk for walk in (load, csv, convert, onnx)}


def take(name: str) -> None:
    """Takes a walk in this process and prints its figures."""
    with tempfile.TemporaryDirectory() as folder, files_entered() as files:
        WALKS[name](pathlib.Path(folder))
    figures = {
        f"modules loaded by {name}": num_modules(sys.modules),
        f"files entered by {name}": len(files),
        f"lines of files entered by {name}": num_lines(files),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    take(sys.argv[1]) if len(sys.argv) > 1 else main()
