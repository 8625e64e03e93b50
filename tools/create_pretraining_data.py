"""Makes pre-training records from text, or finishes what a killed run left.

python -m tools.create_pretraining_data --input='corpus/*.txt' \
    --vocab_file=vocab.txt --output_dir=records

The text holds one sentence a line and a blank line between documents, or is
one of these:

--input=book.txt --input_format=text    sentences are split; --document_end
--input=enwiki-latest-pages-articles-multistream.xml.bz2    a Wikipedia dump
--input='web/*.jsonl.gz' --text_field=content    JSON lines
--input=tfds:wikipedia/20230601.en    a data set of TensorFlow Datasets

Several corpora are mixed by weight, and languages by smoothed shares:

--input='wiki=wiki.xml.bz2,books:3=books/*.txt'    books three times
--input='en=en.jsonl,sw=sw.jsonl' --smoothing=0.7    as multilingual BERT

--near_duplicates=0.8 leaves out documents that nearly repeat earlier ones.
"""

import dataclasses
import sys

from absl import flags

from bert_tf.corpora.sources import parse_inputs
from bert_tf.records.recipe import RecordsRecipe
from tools import command_line

_INPUT = flags.DEFINE_string(
    "input",
    None,
    "Files or globs, or tfds:DATA_SET[@SPLIT], comma-separated; .gz and .bz2 "
    "are unpacked. NAME=PATH or NAME:WEIGHT=PATH puts it in a corpus to mix.",
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
        parse_inputs(_INPUT.value, recipe),
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
