"""Prunes attention heads and feed-forward columns of a fine-tuned model.

bert-tf prune --model=out/mrpc --output_dir=out/mrpc-half --keep_heads=0.5 \\
    --keep_columns=0.5

Keeps those with the highest importance on the task's training data (Michel et
al. 2019). The output is a model folder for every other command; its
pruning.json has the importances, and scores on dev, speed and size before and
after, which are printed. To continue training: bert-tf finetune
--recipe=out/mrpc-half/recipe.json --init_from=out/mrpc-half
--output_dir=out/mrpc-half-tuned.
"""

import pathlib

from absl import flags

from bert_tf.families.recipe import PruningSettings

from . import command_line
from .recipe_flags import define_fields
from .task_files import task_and_recipe

_MODEL = flags.DEFINE_string(
    "model", None, "An output folder of bert-tf finetune."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder to write, which must not exist."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of the task's files, if they were moved."
)
_SET = flags.DEFINE_multi_string(
    "set",
    [],
    "key=value to override a field of the model's recipe.json, such as "
    "train_file, precision or eval_batch_size; may be repeated.",
)
_SETTINGS = define_fields(PruningSettings)


def main() -> None:
    """Prunes the model and prints the table."""
    from bert_tf.errors import UserError
    from bert_tf.finetuning.pruning import prune

    command_line.name_arguments({"folder": "--model"})
    settings = _SETTINGS()
    folder = pathlib.Path(command_line.required(_MODEL))
    recipe_file = folder / "recipe.json"
    if not recipe_file.is_file():
        raise UserError(
            f"`model`={folder}: has no recipe.json; give an output folder of "
            "bert-tf finetune."
        )
    given = list(_SET.value)
    if _DATA_DIR.value is not None:
        given.insert(0, f"data_dir={_DATA_DIR.value}")
    task, recipe = task_and_recipe(given, str(recipe_file))
    output_dir = command_line.required(_OUTPUT_DIR)
    done = prune(task, recipe, folder, output_dir, settings)
    print(done.table())


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.require("model", "output_dir")
    command_line.run(main)
