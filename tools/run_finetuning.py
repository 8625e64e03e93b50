"""Fine-tunes a model on a task, scores it and answers the test rows.

python -m tools.run_finetuning --task=mrpc --data_dir=glue --init_from=MODEL \\
    --output_dir=DIR --mode=train,eval,predict
"""

from absl import flags

from bert_tf.finetuning.recipe import FinetuningRecipe
from tools import command_line

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the run; becomes a model folder."
)
_MODE = flags.DEFINE_string(
    "mode",
    "train,eval",
    "One or more of train, eval, predict, and check (look at the data only), "
    "comma-separated.",
)
_RECIPE = flags.DEFINE_string(
    "recipe", "", "recipe.json of a run to repeat; other flags override it."
)
_SET = flags.DEFINE_multi_string(
    "set",
    [],
    "key=value for a field of the recipe; may be repeated. Tasks have their "
    "own defaults for some. Fields and defaults:\n"
    + FinetuningRecipe.describe(),
)
_LOGICAL_CPUS = flags.DEFINE_integer(
    "logical_cpus",
    0,
    "Split the CPU into this many devices, to try --strategy=mirrored.",
)
# Fields of the recipe that have a flag of their own.
_FIELDS = {
    name: flags.DEFINE_string(name, None, text)
    for name, text in {
        "task": "A name in tasks/, or the path of your own task file.",
        "data_dir": "Folder of the task's files; without it TensorFlow "
        "Datasets is asked for them.",
        "init_from": "Model to fine-tune: a folder, hf://organisation/name "
        "or keras_hub://preset.",
        "strategy": "one_device or mirrored.",
        "precision": "float32, mixed_bfloat16 or mixed_float16.",
    }.items()
}


def main() -> None:
    """Resolves the recipe and runs it."""
    from bert_tf.errors import UserError
    from tools.task_files import load_task

    # The task is known first, since its defaults come below everything else.
    written = FinetuningRecipe()
    if _RECIPE.value:
        written = FinetuningRecipe.from_json(_RECIPE.value)
    given = [
        f"{name}={flag.value}"
        for name, flag in _FIELDS.items()
        if flag.value is not None
    ]
    given += _SET.value
    name = written.override(given).task
    if not name:
        raise UserError("--task: give a name in tasks/ or a task file.")
    task = load_task(name)
    if not _RECIPE.value:
        source = f"the defaults of {name}"
        written = FinetuningRecipe.from_dict(task.defaults, source)

    from bert_tf.finetuning.run import run_finetuning

    modes = [mode.strip() for mode in _MODE.value.split(",") if mode.strip()]
    run_finetuning(
        task,
        written.override(given),
        _OUTPUT_DIR.value,
        modes,
        _LOGICAL_CPUS.value,
    )


if __name__ == "__main__":
    command_line.require("output_dir")
    command_line.run(main)
