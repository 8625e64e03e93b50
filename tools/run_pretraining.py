"""Pre-trains a BERT on records, or resumes an interrupted run.

bert-tf pretrain --data_dir=DIR --output_dir=DIR --size=mini
"""

from absl import flags

from bert_tf.pretraining.recipe import PretrainingRecipe

from . import command_line
from .recipe_flags import RecipeFlags

_FLAGS = RecipeFlags(lambda _: (PretrainingRecipe, {}))


def main() -> None:
    """Resolves the recipe and runs it."""
    from bert_tf.pretraining.run import run_pretraining

    given = _FLAGS.assignments()
    # The flag of one field resets the other in a recipe's file.
    if flags.FLAGS.size:
        given.insert(0, "config_file=")
    elif flags.FLAGS.config_file:
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
