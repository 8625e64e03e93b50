"""Scores a prediction file: the official metrics as JSON.

bert-tf score --task=mrpc --references=glue/MRPC/dev.tsv \\
    --predictions=out/predictions_dev.tsv

Fields of the task's recipe that describe the references are flags too, such as
--label_column: --task=sentence --help lists them.
"""

import json

from absl import flags

from . import command_line
from .shared_flags import (
    FieldFlags,
    load_task,
    recipe_of,
    required_string,
    task_fields,
    task_help,
)

_TASK = required_string("task", f"{task_help()}.")
_REFERENCES = required_string(
    "references", "File with the labels, in the format of the dev file."
)
_PREDICTIONS = required_string(
    "predictions",
    "File of predictions, in the format of bert-tf finetune: columns index "
    "(the row of the references, from 0) and prediction for sentences and "
    "choices; predictions.json for questions; words and tags for tagging.",
)
_NULL_ODDS = flags.DEFINE_string(
    "null_odds",
    "",
    "squad_v2: null_odds.json with the odds of no answer; adds the best "
    "thresholds.",
)
_RECIPE = FieldFlags(task_fields)


def main() -> None:
    """Reads the files and prints the scores."""
    task = load_task(_TASK.value)
    recipe = recipe_of(task, _TASK.value, _RECIPE.assignments())
    scores = task.resolve(recipe).score_file(
        recipe, _REFERENCES.value, _PREDICTIONS.value, _NULL_ODDS.value
    )
    print(json.dumps(scores))


if __name__ == "__main__":
    command_line.run(main, tensorflow=False)
