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

from bert_tf.inference.rows import PredictSettings

from . import command_line
from .shared_flags import define_fields, define_usage, required_string

_MODEL = required_string(
    "model",
    "A fine-tuned or pre-trained model: a folder of any family, "
    "hf://organisation/name or keras_hub://preset.",
)
_INPUT = required_string(
    "input",
    "New texts: .csv, .tsv, .jsonl, .txt (one text per line), also as .gz, "
    ".bz2 or .zst; .parquet, .arrow, .feather; several files or globs, "
    "comma-separated; - is standard input.",
)
_OUTPUT = required_string(
    "output",
    "File to write, .jsonl, .csv, .tsv or .parquet; - is JSON lines on "
    "standard output.",
)
_SETTINGS = define_fields(PredictSettings, ("text_column", "text_b_column"))
_USAGE = define_usage()


def main() -> None:
    """Predicts the rows of the input."""
    from bert_tf.inference.predict import predict_file
    from bert_tf.progress import log
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    summary = predict_file(
        _MODEL.value, _INPUT.value, _OUTPUT.value, _SETTINGS(), _USAGE()
    )
    # Predictions may go to standard output.
    log(summary)


if __name__ == "__main__":
    command_line.run(main)
