"""Fine-tunes a model on a task, evaluates it and predicts the test rows.

bert-tf finetune --task=mrpc --data_dir=glue --model=MODEL \\
    --output_dir=DIR --mode=train,eval,predict

Your own file (CSV, TSV or JSON lines) needs no code:

bert-tf finetune --task=sentence --train_file=reviews.csv \\
    --text_columns=review --label_column=stars --model=MODEL \\
    --output_dir=DIR

Own files of questions, choices and tagged words are --task=questions, choice
and tagging. --task=NAME --help lists the flags of a task.

Before training, the data doctor examines the rows; --mode=check does only that.
The output is a model folder with the best weights (the last are in last/),
report.html and a model card, README.md; predict writes the file that
gluebenchmark.com takes. --model may be fine-tuned already: its head is reused
if its labels have the same names, in any order, or none. --seeds=5 gives mean,
median and spread of each score, and the best model. With --lora_rank=8 the
folder holds an adapter in peft's files, which other commands merge with its
base, and bert-tf export --beside serves many on one base.
"""

from absl import flags

from bert_tf.training.recipe import MODES

from . import command_line
from .shared_flags import (
    RecipeFlags,
    task_and_recipe,
    task_fields,
    task_help,
)

_MODE = flags.DEFINE_string(
    "mode",
    "train,eval",
    "One or more of train, eval, predict, and check (only examine the data), "
    "comma-separated.",
)
command_line.name_choices("mode", lambda: MODES)
_OVERWRITE = flags.DEFINE_bool(
    "overwrite",
    False,
    "Replace any fine-tuning in output_dir, once the new one is checked.",
)
_FLAGS = RecipeFlags(
    task_fields,
    show_all=True,
    fields={"task": f"{task_help()}."},
)


def main() -> None:
    """Resolves the recipe and runs it."""
    command_line.name_arguments({"modes": "--mode"})
    task, recipe = task_and_recipe(_FLAGS.assignments(), _FLAGS.recipe_file)
    # Names of columns that are left out are reported before TensorFlow is
    # imported, which takes seconds.
    task.resolve(recipe)

    from bert_tf.finetuning.run import run_finetuning
    from bert_tf.side_by_side import one_core_a_batch

    modes = [mode.strip() for mode in _MODE.value.split(",") if mode.strip()]
    # Several devices share the batches already.
    if "train" not in modes and recipe.strategy == "one_device":
        one_core_a_batch()
    run_finetuning(
        task,
        recipe,
        _FLAGS.output_dir,
        modes,
        _FLAGS.devices,
        _OVERWRITE.value,
    )


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.run(main)
