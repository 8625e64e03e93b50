"""Attributes an answer of a model to the words of its input.

bert-tf explain --model=out/sst2 --text="A film." --output=why.html

Prints the attribution of each word by integrated gradients, with their
completeness error, or by occlusion. The page or .json also has the attention of
every layer and head.
"""

from absl import flags

from . import command_line
from .shared_flags import define_usage, required_string

_MODEL = required_string(
    "model",
    "A fine-tuned model: a folder of any family, or hf://organisation/name.",
)
_TEXT = flags.DEFINE_string("text", None, "The text.")
_TEXT_B = flags.DEFINE_string("text_b", None, "The second text of a pair.")
_QUESTION = flags.DEFINE_string("question", None, "The question.")
_CONTEXT = flags.DEFINE_string("context", None, "The context of the question.")
_CHOICES = flags.DEFINE_multi_string(
    "choices", None, "A choice; repeated for each."
)
_START = flags.DEFINE_string(
    "start", None, "Beginning of every choice, as in SWAG."
)
_TARGET = flags.DEFINE_string(
    "target",
    None,
    "The answer to explain, by default the model's: a label, an answer in the "
    'context ("" for none), an entity or word of the text, a choice, or a '
    "token at the first [MASK].",
)
_METHOD = flags.DEFINE_enum(
    "method",
    "integrated_gradients",
    ["integrated_gradients", "occlusion"],
    "Integrated gradients, or replacement of each word by [MASK].",
)
_STEPS = flags.DEFINE_integer(
    "steps",
    None,
    "Steps of integrated gradients; by default until the completeness error "
    "is below 1 %.",
)
_USAGE = define_usage()
_OUTPUT = flags.DEFINE_string(
    "output", None, "File to write: a page (.html) or all numbers (.json)."
)


def main() -> None:
    """Explains an answer, prints a table and writes the page."""
    from bert_tf.files import check_output
    from bert_tf.inference.explanation import OUTPUTS
    from bert_tf.inference.load import load

    if _OUTPUT.value is not None:
        check_output(_OUTPUT.value, OUTPUTS)
    model = load(_MODEL.value, **_USAGE().given)
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
    command_line.run(main)
