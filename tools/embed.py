"""Writes a vector for each text of files of any size.

bert-tf embed --model=DIR --input=corpus.jsonl --output_dir=vectors

The folder has vectors-00000.npy and so on, which numpy.load and faiss open;
rows-00000.parquet and so on with their ids and texts; and vectors.json, which
describes them. The same command continues an interrupted run after the files
that are finished. `bert-tf search` searches the folder.
"""

from bert_tf.inference.text_rows import EmbedSettings

from . import command_line
from .shared_flags import define_fields, required_string

_MODEL = required_string(
    "model", "Model folder of any family, or hf://organisation/name."
)
_INPUT = required_string(
    "input",
    "Texts: .csv, .tsv, .jsonl, .txt (one text per line), also as .gz, .bz2 or "
    ".zst; .parquet, .arrow, .feather; several files or globs, "
    "comma-separated; - is standard input.",
)
_OUTPUT_DIR = required_string("output_dir", "Folder to write.")
_SETTINGS = define_fields(EmbedSettings, ("text_column",))


def main() -> None:
    """Embeds the texts."""
    from bert_tf.inference.embed_files import embed_files
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    print(
        embed_files(_MODEL.value, _INPUT.value, _OUTPUT_DIR.value, _SETTINGS())
    )


if __name__ == "__main__":
    command_line.run(main)
