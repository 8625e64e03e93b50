"""The report of a finished fine-tuning run: report.html and report.json."""

import json
import pathlib

from bert_tf.files import write_text
from bert_tf.finetuning.report.numbers import report_numbers
from bert_tf.finetuning.report.page import page
from bert_tf.finetuning.report.run_files import read_run


def make_report(output_dir: str | pathlib.Path) -> pathlib.Path:
    """Writes report.html and report.json from the files of a finished run.

    Only files are read: no model is built. The same files give the same
    bytes. The page is one file that needs no network and runs no script.

    Args:
      output_dir: the folder of the run, with results.json, recipe.json,
        history.jsonl and dev_predictions.jsonl.

    Returns:
      The path of report.html.

    Raises:
      UserError: a file is missing or is not what a finished run writes.
    """
    folder = pathlib.Path(output_dir)
    run = read_run(folder)
    numbers = report_numbers(run)
    html = page(numbers, run.kind)
    # Lone surrogates of a text stay escapes, as in the file they came from.
    text = json.dumps(numbers, indent=1, allow_nan=False)
    write_text(folder / "report.json", text + "\n")
    write_text(folder / "report.html", html)
    return folder / "report.html"
