"""Pre-trains a BERT on records, or goes on where a killed run stopped.

python -m tools.run_pretraining --data_dir=DIR --output_dir=DIR --size=mini
"""

from absl import flags

from bert_tf.pretraining.recipe import PretrainingRecipe
from tools import command_line

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the run; becomes a model folder."
)
_RECIPE = flags.DEFINE_string(
    "recipe", "", "recipe.json of a run to repeat; other flags override it."
)
_SET = flags.DEFINE_multi_string(
    "set",
    [],
    "key=value for a field of the recipe; may be repeated. Fields and "
    "defaults:\n" + PretrainingRecipe.describe(),
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
        "data_dir": "Folder of records; or two, comma-separated: for the "
        "first phase and for the final one.",
        "size": "tiny, mini, small, medium, base or large.",
        "config_file": "bert_config.json, instead of --size.",
        "init_from": "Model folder to continue from.",
        "vocab_file": "Vocabulary of records that do not carry theirs.",
        "strategy": "one_device or mirrored.",
        "precision": "float32, mixed_bfloat16 or mixed_float16.",
    }.items()
}


def main() -> None:
    """Resolves the recipe and runs it."""
    from bert_tf.pretraining.run import run_pretraining

    recipe = PretrainingRecipe()
    if _RECIPE.value:
        recipe = PretrainingRecipe.from_json(_RECIPE.value)
    given = [
        f"{name}={flag.value}"
        for name, flag in _FIELDS.items()
        if flag.value is not None
    ]
    # One of the two ways to name an architecture takes the other's place.
    if _FIELDS["size"].value:
        given.append("config_file=")
    elif _FIELDS["config_file"].value:
        given.append("size=")
    recipe = recipe.override([*given, *_SET.value])
    run_pretraining(recipe, _OUTPUT_DIR.value, _LOGICAL_CPUS.value)


if __name__ == "__main__":
    command_line.require("output_dir")
    command_line.run(main)
