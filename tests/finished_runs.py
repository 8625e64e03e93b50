"""Stored fine-tuning runs, for tests that need a finished one.

They were trained by tests/golden/make_finished_runs.py.
"""

import json
import pathlib

from tests.contracts.task_cases import CASES, Finished
from tools.shared_flags import task_and_recipe

RUNS = pathlib.Path(__file__).parent / "golden" / "finished_runs"
NAMES = (
    *("classes", "numbers", "several_labels"),
    *("tags", "questions", "choices"),
)
# Stands for the folder of a run in its files.
PLACE = b"@PLACE@"


def finished_run(name: str, folder: pathlib.Path) -> Finished:
    """Copies a stored run and writes its data.

    The run is in `folder / "run"`, the data are in `folder / "files"`, dev as
    the run had it. The model that it started from, `folder / "start"`, is not
    there.

    Args:
      name: of the case, one of `NAMES`.
      folder: takes both, made if it is not there.
    """
    case, run = CASES[name], folder / "run"
    run.mkdir(parents=True)
    for file in (RUNS / name).iterdir():
        content = file.read_bytes().replace(PLACE, str(folder).encode())
        (run / file.name).write_bytes(content)
    case.make(folder / "files", folder / "start")
    dev = case.files[1]
    (run / dev).replace(case.train_path(folder / "files").with_name(dev))
    task, recipe = task_and_recipe([], str(run / "recipe.json"))
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    scores = results["dev"]
    done = {"train": results, "eval": scores}
    return Finished(case, task, recipe, folder / "files", run, done)
