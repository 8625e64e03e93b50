"""Prunes attention heads and feed-forward columns of a fine-tuned model.

bert-tf prune --model=out/mrpc --output_dir=out/mrpc-half --keep_heads=0.5 \\
    --keep_columns=0.5

Keeps those with the highest importance on the task's training data (Michel et
al. 2019). The output is a model folder for every other command; its
pruning.json has the importances, and scores on dev, speed and size before and
after, which are printed. Fields of the model's recipe.json are flags too, such
as --data_dir of moved data: --model=out/mrpc --help lists them. To continue
training:

bert-tf finetune --recipe=out/mrpc-half/recipe.json --model=out/mrpc-half \\
    --output_dir=out/mrpc-half-tuned
"""

import pathlib

from bert_tf.errors import UserError
from bert_tf.families.recipe import PruningSettings

from . import command_line
from .shared_flags import (
    FieldFlags,
    define_fields,
    required_string,
    task_and_recipe,
    task_fields,
)

_MODEL = required_string("model", "An output folder of bert-tf finetune.")
_OUTPUT_DIR = required_string(
    "output_dir", "Folder to write, which must not exist."
)
_SETTINGS = define_fields(PruningSettings)


def _recipe_file(model: str) -> str:
    path = pathlib.Path(model, "recipe.json")
    if not path.is_file():
        raise UserError(
            f"--model={model}: has no recipe.json; give an output folder of "
            "bert-tf finetune."
        )
    return str(path)


_RECIPE = FieldFlags(
    lambda known: task_fields(known, _recipe_file(known.model)),
    fields={"task": "The model's task, if it is a Python file of your own."},
)


def main() -> None:
    """Prunes the model and prints the table."""
    from bert_tf.finetuning.pruning import prune

    settings = _SETTINGS()
    folder = _MODEL.value
    task, recipe = task_and_recipe(_RECIPE.assignments(), _recipe_file(folder))
    output_dir = _OUTPUT_DIR.value
    done = prune(task, recipe, pathlib.Path(folder), output_dir, settings)
    print(done.table())


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.run(main)
