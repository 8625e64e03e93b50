"""Writes what a model makes of texts: vectors of tokens, or one a text.

python -m tools.extract_features --model=DIR --input=lines.txt \\
    --output=features.npz --layers=-1,-2
python -m tools.extract_features --model=DIR --input=lines.txt \\
    --output=sentences.jsonl --pooling=auto

The input has a text a line, or a pair parted by " ||| ".
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from . import command_line

_MODEL = flags.DEFINE_string(
    "model", None, "Model folder of any family, or hf://organisation/name."
)
_INPUT = flags.DEFINE_string(
    "input",
    None,
    "Text files or globs, comma-separated; .jsonl is read as JSON objects, "
    ".gz is unpacked, - is standard input.",
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File to write, .jsonl or .npz; - is JSON lines on standard output.",
)
_LAYERS = flags.DEFINE_string(
    "layers",
    "",
    "Layers, comma-separated: 0 is the embeddings, 1 the first layer and so "
    "on, -1 the last, -2 the one before it. Empty: -1,-2,-3,-4 for vectors of "
    "tokens, -1 with pooling.",
)
_POOLING = flags.DEFINE_string(
    "pooling",
    "none",
    "none (a vector for each token), or one for each text: auto (what the "
    "folder says, as sentence-transformers' encode computes it: its modules, "
    "prompt and longest row; mean where it says nothing), cls (of a causal "
    "model the last [SEP], since its [CLS] sees only itself), mean, max, or "
    "pooled (by the model's pooler). All but auto read the Transformer alone.",
)
_PROMPT_NAME = flags.DEFINE_string(
    "prompt_name",
    None,
    "With --pooling=auto, which of the folder's prompts is put before every "
    "text, such as query; by default its default_prompt_name, if there is one.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    0,
    "Tokens of a text, with [CLS] and [SEP]; longer ones are cut. 0: as many "
    "as the model has positions, or, with --pooling=auto, as its folder says.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    32,
    "Texts computed at a time; fewer where they are longer than 128 tokens.",
)
_PRECISION = flags.DEFINE_string(
    "precision", "float32", "float32, mixed_bfloat16 or mixed_float16."
)
_TEXT_COLUMNS = flags.DEFINE_list(
    "text_columns",
    "text",
    "In .jsonl: key of the text, or two of a pair, comma-separated.",
)
_ENCODING_ERRORS = flags.DEFINE_enum(
    "encoding_errors",
    "strict",
    ["strict", "replace"],
    "What to do with bytes that are not UTF-8.",
)


def main() -> None:
    """Extracts what the flags describe."""
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
    if command_line.required(_INPUT) != STANDARD_STREAM:
        inputs = expand_inputs(command_line.required(_INPUT))
    summary = extract_features(
        command_line.required(_MODEL),
        inputs,
        command_line.required(_OUTPUT),
        settings,
        _PRECISION.value,
        _TEXT_COLUMNS.value,
        _ENCODING_ERRORS.value,
    )
    # Standard output may be the features' place.
    log(summary)


if __name__ == "__main__":
    command_line.require("model", "input", "output")
    command_line.run(main)
