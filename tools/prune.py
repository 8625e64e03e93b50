"""Cuts heads and feed-forward columns off a fine-tuned model, to be faster.

python -m tools.prune --model=out/mrpc --output_dir=out/mrpc-half \\
    --keep_heads=0.5 --keep_columns=0.5

Those stay that matter most to the task, by its own training data (Michel et al.
2019). The output is a model folder like the one of the fine-tuning, for every
other command; pruning.json in it has the importances, and what is printed:
scores on dev, speed and size before and after. To train what is left
further: tools.run_finetuning --recipe=out/mrpc-half/recipe.json
--init_from=out/mrpc-half --output_dir=out/mrpc-half-tuned.
"""

import pathlib

from absl import flags

from bert_tf.families.recipe import PruningSettings

from . import command_line
from .recipe_flags import define_fields
from .task_files import load_task, recipe_of, task_named

_MODEL = flags.DEFINE_string(
    "model", None, "A folder that tools.run_finetuning left."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder to write, which is not there yet."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of the task's files, where these have moved."
)
_SET = flags.DEFINE_multi_string(
    "set",
    [],
    "key=value for a field of the model's recipe.json that does not hold any "
    "more, such as train_file, precision or eval_batch_size; may be repeated.",
)
_SETTINGS = define_fields(PruningSettings)


def main() -> None:
    """Prunes what the flags describe and prints the table."""
    from bert_tf.errors import UserError
    from bert_tf.finetuning.pruning import prune

    command_line.name_arguments({"folder": "--model"})
    settings = PruningSettings(**{n: f.value for n, f in _SETTINGS.items()})
    folder = pathlib.Path(command_line.required(_MODEL))
    recipe_file = folder / "recipe.json"
    if not recipe_file.is_file():
        raise UserError(
            f"`model`={folder}: has no recipe.json, so it is no folder that "
            "tools.run_finetuning left; give the folder of a fine-tuning."
        )
    given = list(_SET.value)
    if _DATA_DIR.value is not None:
        given.insert(0, f"data_dir={_DATA_DIR.value}")
    name = task_named(given, str(recipe_file))
    task = load_task(name)
    recipe = recipe_of(task, name, given, str(recipe_file))
    output_dir = command_line.required(_OUTPUT_DIR)
    done = prune(task, recipe, folder, output_dir, settings)
    print(done.table())


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.require("model", "output_dir")
    command_line.run(main)
