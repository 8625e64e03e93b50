"""Distils a larger teacher into a small student.

On a task, from a teacher that was fine-tuned for it:

bert-tf distill --task=mrpc --data_dir=glue --model=out/mrpc --layers=0,2,4 \\
    --output_dir=out/mrpc-small

On text without labels, from a pre-trained teacher:

bert-tf distill --data_dir=records --model=bert-base --layers=0,2,4,7,9,11 \\
    --architecture=distilbert --output_dir=out/distilbert

Into static vectors, a table of the tokens' vectors without a training:

bert-tf distill --to=static --model=bge-small --dev_file=sts.tsv \\
    --label_column=score --output_dir=out/static

The student consists of some of the teacher's layers (--layers), is new (--size)
or an existing model (--init_from). It is also trained without the teacher, in
undistilled/ of the folder; distillation.html compares score, size and speed of
all three. The same command resumes an interrupted run. Flags of a task are
those of bert-tf finetune: --task=mrpc --help lists them; --to=static --help
lists those of static vectors.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from bert_tf.errors import UserError
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.recipe import Settings, read_json_object
from bert_tf.teacher_settings import StudentSettings

from . import command_line
from .shared_flags import (
    RecipeFlags,
    define_fields,
    task_and_recipe,
    task_fields,
    task_help,
)


def _fields(
    known: flags.FlagValues,
) -> tuple[type[Settings], Mapping[str, Any]]:
    if known.to == STATIC:
        # Few distillations are.
        from bert_tf.distillation.static import StaticSettings

        return StaticSettings, {}
    if known.task or _is_of_task(known.set, known.recipe):
        return task_fields(known)
    return PretrainingRecipe, {"objective": "masked_lm"}


def _is_of_task(assignments: Sequence[str], recipe_file: str) -> bool:
    """Returns whether the student is trained on a task, not on text."""
    keys = {each.partition("=")[0].strip() for each in assignments}
    return "task" in keys or bool(
        recipe_file and "task" in read_json_object(recipe_file)
    )


TRANSFORMER, STATIC = "transformer", "static"
_TO = flags.DEFINE_enum(
    "to",
    TRANSFORMER,
    [TRANSFORMER, STATIC],
    "The student: a transformer, which is trained; or static, a table of "
    "vectors of tokens as model2vec makes it.",
)
_STUDENT = define_fields(StudentSettings)
_FLAGS = RecipeFlags(
    _fields,
    fields={
        "task": f"{task_help()}; without it the student is trained on text.",
        "teacher": "Teacher model; for a task, an output folder of "
        "bert-tf finetune.",
    },
    model="teacher",
)
_UNDISTILLED = flags.DEFINE_bool(
    "undistilled", True, "Also train the same student without the teacher."
)


def main() -> None:
    """Resolves the recipe, trains and prints the table."""
    student = _STUDENT()
    given, recipe_file = _FLAGS.assignments(), _FLAGS.recipe_file
    output_dir, devices = _FLAGS.output_dir, _FLAGS.devices
    if _TO.value == STATIC:
        if student != StudentSettings():
            raise UserError(
                f"`to`={STATIC}: a table has no layers; leave out `size`, "
                "`layers` and `architecture`."
            )
        from bert_tf.distillation.static import StaticSettings, distill_static

        from .language_reference import reference_documents

        sentences = itertools.chain.from_iterable(reference_documents())
        done = distill_static(
            _FLAGS.recipe(StaticSettings()), output_dir, [*sentences]
        )
    elif _is_of_task(given, recipe_file):
        task, task_recipe = task_and_recipe(given, recipe_file)

        from bert_tf.distillation.run import distill_task

        done = distill_task(
            task, task_recipe, student, output_dir, _UNDISTILLED.value, devices
        )
    else:
        recipe = _FLAGS.recipe(PretrainingRecipe(objective="masked_lm"))

        from bert_tf.distillation.run import distill_text

        done = distill_text(
            recipe, student, output_dir, _UNDISTILLED.value, devices
        )
    print(done.table())


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.run(main)
