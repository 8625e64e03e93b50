"""Trains the runs in finished_runs/, which tests/finished_runs.py copies.

Usage: .venv/bin/python -m tests.golden.make_finished_runs [NAME ...]

They are the cases of tests/contracts/task_cases.py of the same name, and are
made again when a finished run has other files. Saved states, the last model,
pictures and the report are left out: no command on a finished run reads them.
"""

import pathlib
import shutil
import sys
import tempfile

from tests.contracts.task_cases import finish
from tests.finished_runs import NAMES, PLACE, RUNS

FILES = (
    *("README.md", "bert_config.json", "bert_model.safetensors", "labels.json"),
    *("task.json", "tokenizer_config.json", "vocab.txt", "recipe.json"),
    *(
        "results.json",
        "history.jsonl",
        "eval_dev.json",
        "dev_predictions.jsonl",
    ),
    *("dev_predictions.json", "predictions_dev.tsv", "predictions_dev.txt"),
)


def main() -> None:
    """Trains each case and keeps its files, with `PLACE` for its folder."""
    for name in sys.argv[1:] or NAMES:
        shutil.rmtree(RUNS / name, ignore_errors=True)
        (RUNS / name).mkdir(parents=True)
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder, name)
            run = finish(name, place.parent)
            dev = run.case.files[1]
            for file in (run.files / dev, *run.folder.iterdir()):
                if file.name in (dev, *FILES):
                    content = file.read_bytes()
                    content = content.replace(str(place).encode(), PLACE)
                    (RUNS / name / file.name).write_bytes(content)


if __name__ == "__main__":
    main()
