"""Fills the [MASK]s of a text with a pre-trained model.

bert-tf fill-mask --model=DIR "The capital of France is [MASK]."

Several texts, each in quotes, may follow the flags. The mask of a RoBERTa or an
XLM-R is <mask>.
"""

from absl import flags

from . import command_line
from .shared_flags import required_string

_MODEL = required_string(
    "model",
    "Model folder of any family, hf://organisation/name or keras_hub://preset.",
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Candidates for each mask.")


def main(texts: list[str]) -> None:
    """Prints the candidates for each mask of each text."""
    from bert_tf.errors import UserError
    from bert_tf.inference.fill_mask import fill_mask, open_masked_lm

    if not texts:
        raise UserError(
            'give a text after the flags, for example "Paris is the [MASK] of '
            'France."'
        )
    model = open_masked_lm(_MODEL.value)
    mask = model.tokenizer.vocabulary.special.mask
    for text in texts:
        print(text)
        masks = fill_mask(model, text, _TOP_K.value)
        for number, best in enumerate(masks, 1):
            shown = "  ".join(f"{c.token} {c.probability:.2g}" for c in best)
            print(f"  {mask} {number}: {shown}")


if __name__ == "__main__":
    command_line.run_on_words(main)
