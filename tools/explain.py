"""Tells which words an answer of a model is due to.

python -m tools.explain --model=out/sst2 --text="A film." --output=why.html

Prints the share of each word, found by integrated gradients, with the error of
their sum, or by occlusion. The page, or the .json, has the attention of every
layer and head too.
"""

from absl import flags

from . import command_line
from .usage_flags import UsageFlags

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "A folder that tools.run_finetuning left, or a fine-tuned model of any "
    "family: a folder or hf://organisation/name.",
)
_TEXT = flags.DEFINE_string("text", None, "The text.")
_TEXT_B = flags.DEFINE_string("text_b", None, "The second text of a pair.")
_QUESTION = flags.DEFINE_string("question", None, "What is asked.")
_CONTEXT = flags.DEFINE_string(
    "context", None, "The text that the answer to the question is in."
)
_CHOICES = flags.DEFINE_multi_string(
    "choices", None, "A choice; once for each of them."
)
_START = flags.DEFINE_string(
    "start", None, "What every choice begins with, as in SWAG."
)
_TARGET = flags.DEFINE_string(
    "target",
    None,
    "What to explain in place of the answer given: a label, another answer "
    'in the context ("" for none), an entity or word of the text, a choice, or '
    "a token at the first [MASK].",
)
_METHOD = flags.DEFINE_enum(
    "method",
    "integrated_gradients",
    ["integrated_gradients", "occlusion"],
    "Integrated gradients, or each word replaced by [MASK] in turn.",
)
_STEPS = flags.DEFINE_integer(
    "steps",
    None,
    "Steps of integrated gradients; if none, as many as bring the error of "
    "the sum below 1 %.",
)
_USAGE = UsageFlags()
_OUTPUT = flags.DEFINE_string(
    "output", None, "A page (.html) or all numbers (.json)."
)


def main() -> None:
    """Explains an answer, prints a table and writes the page."""
    from bert_tf.files import check_output
    from bert_tf.inference.explanation import OUTPUTS
    from bert_tf.inference.load import load

    command_line.name_arguments({"folder": "--model"})
    if _OUTPUT.value is not None:
        check_output(_OUTPUT.value, OUTPUTS)
    model = load(command_line.required(_MODEL), **_USAGE.options().given)
    explanation = model.explain(
        _TEXT.value,
        _TEXT_B.value,
        question=_QUESTION.value,
        context=_CONTEXT.value,
        choices=_CHOICES.value,
        start=_START.value,
        target=_TARGET.value,
        method=_METHOD.value,
        steps=_STEPS.value,
    )
    print(explanation)
    if _OUTPUT.value is not None:
        explanation.write(_OUTPUT.value)
        print(_OUTPUT.value)


if __name__ == "__main__":
    command_line.require("model")
    command_line.run(main)
