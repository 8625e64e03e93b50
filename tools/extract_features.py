"""Extracts features of texts: vectors of tokens, or one vector per text.

bert-tf extract-features --model=DIR --input=lines.txt --output=features.npz \\
    --layers=-1,-2
bert-tf extract-features --model=DIR --input=lines.txt \\
    --output=sentences.jsonl --pooling=auto

The input has one text per line, or a pair separated by " ||| ".
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from bert_tf.config import AUTO, PRECISION_HELP
from bert_tf.libraries import RUNTIME_HELP

from . import command_line
from .shared_flags import define_text_columns, required_string

_MODEL = required_string(
    "model", "Model folder of any family, or hf://organisation/name."
)
_INPUT = required_string(
    "input",
    "Text files or globs, comma-separated; .jsonl has JSON objects, .csv, .tsv "
    "and .parquet have columns; .gz, .bz2 and "
    ".zst are decompressed, - is standard input.",
)
_OUTPUT = required_string(
    "output",
    "File to write, .jsonl or .npz; - is JSON lines on standard output.",
)
_LAYERS = flags.DEFINE_string(
    "layers",
    "",
    "Layers, comma-separated: 0 for the embeddings, 1 for the first layer, -1 "
    "for the last. Empty: -1,-2,-3,-4 for vectors of tokens, -1 with pooling.",
)
_POOLING = flags.DEFINE_string(
    "pooling",
    "none",
    "none (a vector per token), or a vector per text: auto (the folder's "
    "modules, prompt and longest row, as sentence-transformers' encode; by "
    "default mean), cls (of a causal model the last [SEP], because its [CLS] "
    "attends only to itself), mean, max, or pooled (the model's pooler). All "
    "but auto read only the Transformer.",
)
_PROMPT_NAME = flags.DEFINE_string(
    "prompt_name",
    None,
    "With --pooling=auto, the name of the folder's prompt before every text, "
    "such as query; by default its default_prompt_name, if any.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    0,
    "Maximum number of tokens, including [CLS] and [SEP]; longer texts are "
    "truncated. 0: the number of positions or, with --pooling=auto, as the "
    "folder states.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    32,
    "Texts per batch; fewer if they are longer than 128 tokens.",
)
_PRECISION = flags.DEFINE_string("precision", AUTO, f"{PRECISION_HELP}.")
_RUNTIME = flags.DEFINE_string(
    "runtime", AUTO, f"{RUNTIME_HELP[0].upper()}{RUNTIME_HELP[1:]}."
)
_TEXT_COLUMNS = define_text_columns(default="text")
_ENCODING_ERRORS = flags.DEFINE_enum(
    "encoding_errors",
    "strict",
    ["strict", "replace"],
    "Treatment of bytes that are not UTF-8.",
)


def main() -> None:
    """Extracts the features."""
    from bert_tf.families.pretrained.settings import Settings, parse_layers
    from bert_tf.files import STANDARD_STREAM, expand_inputs
    from bert_tf.inference.features import extract_features
    from bert_tf.progress import log
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    settings = Settings(
        parse_layers(_LAYERS.value, _POOLING.value),
        _POOLING.value,
        _MAX_SEQ_LENGTH.value,
        _BATCH_SIZE.value,
        _PROMPT_NAME.value,
    )
    inputs: Sequence[str | pathlib.Path] = [STANDARD_STREAM]
    if _INPUT.value != STANDARD_STREAM:
        inputs = expand_inputs(_INPUT.value)
    summary = extract_features(
        _MODEL.value,
        inputs,
        _OUTPUT.value,
        settings,
        _PRECISION.value,
        _TEXT_COLUMNS.value,
        _ENCODING_ERRORS.value,
        _RUNTIME.value,
    )
    # Features may go to standard output.
    log(summary)


if __name__ == "__main__":
    command_line.run(main)
