"""Writes a model's predictions for a file of new texts.

bert-tf predict --model=out/sst2 --input=new.csv --output=answers.jsonl

A line of the output has row (the line of the input where the row begins), index
(the number of rows before it), the kept columns (id and --keep_columns), the
inputs, and the answer: label and probabilities, score, entities, the answer
with its offsets, the choice, or candidates for each [MASK]. Rows keep their
order. A row without an answer becomes a line with the error in
OUTPUT.errors.jsonl. The exit code is 0 if any row has an answer; the last line
counts them. The same command resumes an interrupted run after the rows in
OUTPUT.partial. An existing output of other rows is not overwritten.
"""

from absl import flags

from bert_tf.inference.rows import PredictSettings

from . import command_line
from .recipe_flags import define_fields
from .usage_flags import UsageFlags

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "A fine-tuned or pre-trained model: a folder of any family, "
    "hf://organisation/name or keras_hub://preset.",
)
_INPUT = flags.DEFINE_string(
    "input",
    None,
    "New texts: .csv, .tsv, .jsonl, .txt (one text per line), also as .gz, "
    ".bz2 or .zst; .parquet, .arrow, .feather; several files or globs, "
    "comma-separated; - is standard input.",
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File to write, .jsonl, .csv, .tsv or .parquet; - is JSON lines on "
    "standard output.",
)
_SETTINGS = define_fields(PredictSettings)
_USAGE = UsageFlags()


def main() -> None:
    """Predicts the rows of the input."""
    from bert_tf.inference.predict import predict_file
    from bert_tf.progress import log
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    command_line.name_arguments({"folder": "--model"})
    summary = predict_file(
        command_line.required(_MODEL),
        command_line.required(_INPUT),
        command_line.required(_OUTPUT),
        _SETTINGS(),
        _USAGE.options(),
    )
    # Predictions may go to standard output.
    log(summary)


if __name__ == "__main__":
    command_line.require("model", "input", "output")
    command_line.run(main)
