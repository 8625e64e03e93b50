"""Makes pre-training records from text, or finishes what a killed run left.

python -m tools.create_pretraining_data --input='corpus/*.txt' \
    --vocab_file=vocab.txt --output_dir=records

The text holds one sentence a line and a blank line between documents.
"""

import dataclasses
import sys

from absl import flags

from bert_tf.files import expand_inputs
from bert_tf.records.recipe import RecordsRecipe
from tools import command_line

_INPUT = flags.DEFINE_string(
    "input", None, "Text files or globs, comma-separated; .gz is unpacked."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "WordPiece vocabulary, one token a line."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder that the records go to."
)
_WORKERS = flags.DEFINE_integer(
    "workers", 0, "Parallel workers; 0 takes one for each processor."
)
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace other records that are in output_dir."
)
_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
_RECIPE = {
    field.name: _DEFINE[RecordsRecipe.kinds()[field.name]](
        field.name, field.default, field.metadata["help"]
    )
    for field in dataclasses.fields(RecordsRecipe)
}


def main() -> None:
    """Builds the records that the flags describe."""
    from bert_tf.records.builder import create_records

    recipe = RecordsRecipe(**{n: flag.value for n, flag in _RECIPE.items()})
    report = create_records(
        expand_inputs(_INPUT.value),
        _VOCAB_FILE.value,
        _OUTPUT_DIR.value,
        recipe,
        _WORKERS.value,
        _OVERWRITE.value,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(report)


if __name__ == "__main__":
    command_line.require("input", "vocab_file", "output_dir")
    command_line.run(main)
