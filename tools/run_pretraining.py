"""Pre-trains a BERT on records, or resumes an interrupted run.

bert-tf pretrain --data_dir=DIR --output_dir=DIR --size=mini
"""

from bert_tf.pretraining.recipe import PretrainingRecipe

from . import command_line
from .recipe_flags import RecipeFlags

_FLAGS = RecipeFlags(
    PretrainingRecipe,
    "Fields and defaults:\n" + PretrainingRecipe.describe(),
    {
        "data_dir": "Folder of records; or two, comma-separated, for the "
        "first and the final phase.",
        "size": "tiny, mini, small, medium, base or large, or "
        "layers/hidden/heads such as 3/768/12.",
        "architecture": "bert, roberta, albert, ... of --size.",
        "config_file": "bert_config.json, instead of --size.",
        "vocab_file": "Vocabulary of records without one.",
    },
)


def main() -> None:
    """Resolves the recipe and runs it."""
    from bert_tf.pretraining.run import run_pretraining

    command_line.name_fields(PretrainingRecipe.kinds())
    given = _FLAGS.assignments()
    # The flag of one field resets the other in a recipe's file.
    if _FLAGS.field("size"):
        given.insert(0, "config_file=")
    elif _FLAGS.field("config_file"):
        given[:0] = ["size=", "architecture="]
    if _FLAGS.recipe_file:
        recipe = PretrainingRecipe.from_json(_FLAGS.recipe_file, given, "--set")
    else:
        recipe = PretrainingRecipe().override(given, "--set")
    run_pretraining(recipe, _FLAGS.output_dir, _FLAGS.devices)


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.require("output_dir")
    command_line.run(main)
