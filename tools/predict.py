"""Writes a model's answers to a file of new texts.

python -m tools.predict --model=out/sst2 --input=new.csv --output=answers.jsonl

A line of the output has row (the line of the input that the row begins on),
index (how many rows come before it, as in a table), the columns that are kept
(id, and what --keep_columns names), what was asked, and the answer: label and
probabilities, score, entities, the answer with its place, the choice, or what
belongs at each [MASK]. Rows keep their order. One that has no answer is a line
in OUTPUT.errors.jsonl, which says why, and not the end: the exit code is 0 if
any row has an answer, and the last line says how many have. A run that was
killed resumes behind what it wrote, in OUTPUT.partial, when the same command is
given again. An output that is there and does not answer this input is not
overwritten.
"""

from absl import flags

from bert_tf.inference.rows import PredictSettings

from . import command_line
from .recipe_flags import define_fields
from .usage_flags import UsageFlags

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "A folder that tools.run_finetuning left, or a fine-tuned or pre-trained "
    "model: a folder of any family, hf://organisation/name or "
    "keras_hub://preset.",
)
_INPUT = flags.DEFINE_string(
    "input",
    None,
    "A file of new texts: .csv, .tsv, .jsonl, .txt (a text a line), or one of "
    "them .gz; - is standard input.",
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File to write, .jsonl or .csv; - is JSON lines on standard output.",
)
_SETTINGS = define_fields(PredictSettings)
_USAGE = UsageFlags()


def main() -> None:
    """Predicts what the flags describe."""
    from bert_tf.inference.predict import predict_file
    from bert_tf.progress import log
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    command_line.name_arguments({"folder": "--model"})
    summary = predict_file(
        command_line.required(_MODEL),
        command_line.required(_INPUT),
        command_line.required(_OUTPUT),
        PredictSettings(**{n: f.value for n, f in _SETTINGS.items()}),
        _USAGE.options(),
    )
    # Standard output may be the answers' place.
    log(summary)


if __name__ == "__main__":
    command_line.require("model", "input", "output")
    command_line.run(main)
