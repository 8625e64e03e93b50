"""Pre-trains a BERT on records, or resumes an interrupted run.

bert-tf pretrain --data_dir=DIR --output_dir=DIR --size=mini
"""

from absl import flags

from bert_tf.pretraining.recipe import PretrainingRecipe

from . import command_line
from .shared_flags import RecipeFlags

_FLAGS = RecipeFlags(lambda _: (PretrainingRecipe, {}))


def main() -> None:
    """Resolves the recipe and runs it."""
    from bert_tf.pretraining.run import run_pretraining

    # The flag of one field resets the other in a recipe's file.
    reset = []
    if flags.FLAGS.size:
        reset = ["config_file="]
    elif flags.FLAGS.config_file:
        reset = ["size=", "architecture="]
    recipe = _FLAGS.recipe(PretrainingRecipe(), reset)
    run_pretraining(recipe, _FLAGS.output_dir, _FLAGS.devices)


if __name__ == "__main__":
    command_line.use_huge_pages()
    command_line.run(main)
