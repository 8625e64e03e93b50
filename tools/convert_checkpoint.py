"""Converts a BERT checkpoint of any family and verifies its outputs.

bert-tf convert --model=uncased_L-12_H-768_A-12 --to=hugging_face \\
    --output_dir=out/bert

The input is a folder of ours, of google-research/bert or electra (TF1), of
TensorFlow Model Garden or Hub, of Hugging Face (PyTorch, TensorFlow and Flax)
or of KerasHub; or hf://organisation/name, or keras_hub://preset. Of an ELECTRA
in TF1 the discriminator is converted, or with --generator its generator.
"""

import contextlib
import ctypes
import os
import pathlib

from absl import flags

from . import command_line
from .shared_flags import required_string

_INPUT = required_string(
    "input",
    "Model folder of any family, hf://organisation/name or keras_hub://preset.",
)
command_line.name_model("input")
_TO = required_string(
    "to", "The layout to write: bert_tf, google_tf1 or hugging_face."
)
_OUTPUT_DIR = required_string(
    "output_dir", "The folder to write; must be missing or empty."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file",
    "",
    "The vocabulary of an input without one; or a new one, to which rows are "
    "copied by token; rows of new tokens are the mean of their old pieces.",
)
_LOWER_CASE = flags.DEFINE_bool(
    "lower_case",
    None,
    "Whether text is lower-cased; by default as the input's files state.",
)
_MAX_POSITION_EMBEDDINGS = flags.DEFINE_integer(
    "max_position_embeddings",
    0,
    "Shortens or extends the table of positions; 0 keeps it.",
)
_DROP_HEADS = flags.DEFINE_list(
    "drop_heads",
    [],
    "Heads to leave out, comma-separated: pooler, masked_lm, "
    "next_sentence, classifier, token_classifier, span, multiple_choice, "
    "replaced_tokens.",
)
_GENERATOR = flags.DEFINE_bool(
    "generator",
    False,
    "Convert the generator of a checkpoint of google-research/electra, not "
    "the discriminator.",
)
_IGNORE = flags.DEFINE_string(
    "ignore",
    "",
    "Regular expression, searched in names of arrays that are no part of the "
    "model and left out, such as '^crf'.",
)
_CHECK = flags.DEFINE_string(
    "check",
    "",
    "transformers: also loads both folders in Hugging Face's transformers and "
    "compares hidden states and logits.",
)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Seed of new rows and of the random ids of the comparison."
)


# mallopt(3): M_MMAP_THRESHOLD, the size above which freed allocations are
# returned to the system.
_THRESHOLD_OPTION, _THRESHOLD = -3, 1 << 20


def _limit_memory() -> None:
    """Reduces the memory of TensorFlow and the C library.

    oneDNN allocates from a pool that never shrinks, and the C library raises
    its threshold with freed sizes: together half of the size of a large model
    would stay allocated.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    # Only GNU's C library has this function.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_THRESHOLD_OPTION, _THRESHOLD)


def _next_step(folder: pathlib.Path, to: str, heads: tuple[str, ...]) -> str:
    """Returns a command or expression that uses the written folder."""
    from bert_tf.checkpoints import TASK_HEADS
    from bert_tf.checkpoints.tokenizers import read_tokenizer
    from bert_tf.recipe import read_json_object
    from bert_tf.sources import MODULES_FILE

    if to == "google_tf1":
        config = read_json_object(folder / "bert_config.json")
        if "model_type" in config:
            return (
                f"google-research/{config['model_type']}: --hparams "
                f'\'{{"init_checkpoint": "{folder}/bert_model.ckpt", '
                f'"vocab_file": "{folder}/vocab.txt"}}\''
            )
        return (
            f"google-research/bert: --init_checkpoint={folder}/bert_model.ckpt "
            f"--bert_config_file={folder}/bert_config.json "
            f"--vocab_file={folder}/vocab.txt"
        )
    if to == "hugging_face":
        # With the modules after the Transformer.
        if (folder / MODULES_FILE).is_file():
            return f'sentence_transformers.SentenceTransformer("{folder}")'
        (name,) = read_json_object(folder / "config.json")["architectures"]
        return f'transformers.{name}.from_pretrained("{folder}")'
    mask = read_tokenizer(folder).vocabulary.special.mask
    if mask and "masked_lm" in heads:
        return (
            f"bert-tf fill-mask --model={folder} "
            f'"Paris is the {mask} of France."'
        )
    if set(TASK_HEADS) & set(heads):
        return f'bert_tf.load("{folder}")'
    return f'bert_tf.embed("{folder}", ["A text."])'


def main() -> None:
    """Converts the checkpoint and prints a summary."""
    from bert_tf.conversion.convert import convert

    command_line.name_arguments({"path": "--output_dir"})
    report = convert(
        _INPUT.value,
        _TO.value,
        _OUTPUT_DIR.value,
        vocab_file=_VOCAB_FILE.value,
        lower_case=_LOWER_CASE.value,
        max_position_embeddings=_MAX_POSITION_EMBEDDINGS.value,
        drop_heads=_DROP_HEADS.value,
        seed=_SEED.value,
        generator=_GENERATOR.value,
        ignore=_IGNORE.value,
        check=_CHECK.value,
    )
    print(
        f"took {report.seconds:.1f} s, at most {report.peak_bytes / 1e6:.0f} "
        "MB of memory"
    )
    print(f"written: {report.output_dir} ({report.to})")
    step = _next_step(report.output_dir, report.to, report.heads)
    print(f"next: {step}")


if __name__ == "__main__":
    _limit_memory()
    command_line.run(main)
