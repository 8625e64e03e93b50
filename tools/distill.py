"""Trains a small student to do as a larger teacher does.

On a task, of the teacher that was fine-tuned for it:

python -m tools.distill --task=mrpc --data_dir=glue --teacher=out/mrpc \\
    --layers=0,2,4 --output_dir=out/mrpc-small

On text without labels, of a pre-trained teacher:

python -m tools.distill --data_dir=records --teacher=bert-base \\
    --layers=0,2,4,7,9,11 --architecture=distilbert --output_dir=out/distilbert

The student is some of the teacher's layers (--layers), new (--size) or a model
that there is (--init_from). It is trained a second time without the teacher, in
undistilled/ of the folder, and distillation.html has all three side by side:
score, size and speed. The same command goes on where a killed one stopped.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.recipe import read_json_object
from bert_tf.teacher_settings import StudentSettings, TeacherSettings

from . import command_line
from .recipe_flags import RecipeFlags, define_fields
from .task_files import load_task, recipe_of, task_named, task_names

_FLAGS = RecipeFlags(
    FinetuningRecipe,
    "Settings of the teacher, of a task (on text label_weight=2, "
    "soft_target_weight=5 and cosine_weight=1):\n"
    + TeacherSettings.describe()
    + "\nThe others are those of tools.run_finetuning and, without --task, of "
    "tools.run_pretraining.",
    {
        "task": f"One of {', '.join(task_names())}, or the path of your own "
        "task file; without it the student learns from text.",
        "teacher": "Model to learn from; for a task, a folder that "
        "tools.run_finetuning left.",
        "data_dir": "Folder of the task's files, or of records.",
    },
)
_STUDENT = define_fields(StudentSettings)
_UNDISTILLED = flags.DEFINE_bool(
    "undistilled", True, "Train the same student without the teacher too."
)


def _names_a_task(given: Sequence[str], recipe_file: str) -> bool:
    """Whether flags or a recipe are those of a fine-tuning."""
    if any(each.partition("=")[0].strip() == "task" for each in given):
        return True
    return bool(recipe_file) and "task" in read_json_object(recipe_file)


def main() -> None:
    """Resolves the recipe, trains and prints the table."""
    student = StudentSettings(**{n: f.value for n, f in _STUDENT.items()})
    given, recipe_file = _FLAGS.assignments(), _FLAGS.recipe_file
    output_dir, devices = _FLAGS.output_dir, _FLAGS.devices
    if _names_a_task(given, recipe_file):
        name = task_named(given, recipe_file)
        task = load_task(name)
        of_task = recipe_of(task, name, given, recipe_file)

        from bert_tf.distillation.run import distill_task

        done = distill_task(
            task, of_task, student, output_dir, _UNDISTILLED.value, devices
        )
    else:
        command_line.name_fields(PretrainingRecipe.kinds())
        if recipe_file:
            recipe = PretrainingRecipe.from_json(recipe_file, given, "--set")
        else:
            recipe = PretrainingRecipe(objective="masked_lm")
            recipe = recipe.override(given, "--set")

        from bert_tf.distillation.run import distill_text

        done = distill_text(
            recipe, student, output_dir, _UNDISTILLED.value, devices
        )
    print(done.table())


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.require("output_dir")
    command_line.run(main)
