"""Distils a larger teacher into a small student.

On a task, from a teacher that was fine-tuned for it:

bert-tf distill --task=mrpc --data_dir=glue --teacher=out/mrpc --layers=0,2,4 \\
    --output_dir=out/mrpc-small

On text without labels, from a pre-trained teacher:

bert-tf distill --data_dir=records --teacher=bert-base --layers=0,2,4,7,9,11 \\
    --architecture=distilbert --output_dir=out/distilbert

The student consists of some of the teacher's layers (--layers), is new (--size)
or an existing model (--init_from). It is also trained without the teacher, in
undistilled/ of the folder; distillation.html compares score, size and speed of
all three. The same command resumes an interrupted run.
"""

from absl import flags

from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.recipe import read_json_object
from bert_tf.teacher_settings import StudentSettings, TeacherSettings

from . import command_line
from .recipe_flags import RecipeFlags, define_fields
from .task_files import task_and_recipe, task_names

_FLAGS = RecipeFlags(
    FinetuningRecipe,
    "Settings of the teacher, of a task (on text label_weight=2, "
    "soft_target_weight=5 and cosine_weight=1):\n"
    + TeacherSettings.describe()
    + "\nThe others are those of bert-tf finetune and, without --task, of "
    "bert-tf pretrain.",
    {
        "task": f"One of {', '.join(task_names())}, or the path of your own "
        "task file; without it the student is trained on text.",
        "teacher": "Teacher model; for a task, an output folder of "
        "bert-tf finetune.",
        "data_dir": "Folder of the task's files, or of records.",
    },
)
_STUDENT = define_fields(StudentSettings)
_UNDISTILLED = flags.DEFINE_bool(
    "undistilled", True, "Also train the same student without the teacher."
)


def main() -> None:
    """Resolves the recipe, trains and prints the table."""
    student = _STUDENT()
    given, recipe_file = _FLAGS.assignments(), _FLAGS.recipe_file
    keys = {assignment.partition("=")[0].strip() for assignment in given}
    if recipe_file:
        keys |= read_json_object(recipe_file).keys()
    output_dir, devices = _FLAGS.output_dir, _FLAGS.devices
    if "task" in keys:
        task, task_recipe = task_and_recipe(given, recipe_file)

        from bert_tf.distillation.run import distill_task

        done = distill_task(
            task, task_recipe, student, output_dir, _UNDISTILLED.value, devices
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
