"""Trains a WordPiece vocabulary on text.

python -m tools.train_vocab --input='corpus/*.txt' --vocab_size=16384 \\
    --output=out/vocab.txt

With --extend=bert/vocab.txt, words that this vocabulary splits are added to it,
for a model whose training continues (tools.convert_checkpoint --vocab_file).

Formats of text and mixtures of corpora: see tools.create_pretraining_data.
"""

import pathlib

from absl import flags

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import parse_inputs
from bert_tf.errors import UserError

from . import command_line
from .recipe_flags import define_fields

_INPUT = flags.DEFINE_string(
    "input",
    None,
    "Files or globs, or tfds:DATA_SET[@SPLIT], comma-separated; .gz and .bz2 "
    "are unpacked. NAME=PATH or NAME:WEIGHT=PATH defines a corpus to mix.",
)
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", None, "Number of tokens, including special ones."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "The vocabulary file to write, for example out/vocab.txt."
)
_LOWER_CASE = flags.DEFINE_bool(
    "lower_case", True, "Lower-case the text and strip its accents."
)
_STRIP_ACCENTS = flags.DEFINE_bool(
    "strip_accents", None, "Strip accents; by default as --lower_case."
)
_TOKENIZE_CHINESE_CHARS = flags.DEFINE_bool(
    "tokenize_chinese_chars", True, "Split at every CJK ideograph."
)
_GOOGLE_LAYOUT = flags.DEFINE_bool(
    "google_layout",
    False,
    "Order the special tokens and 994 [unused] ones as in Google's files.",
)
_EXTEND = flags.DEFINE_string(
    "extend",
    None,
    "A vocabulary file whose tokens keep their ids; new tokens replace "
    "[unused] ones and are then appended.",
)
_MIN_FREQUENCY = flags.DEFINE_integer(
    "min_frequency", 2, "Minimum number of occurrences of a merged piece."
)
_CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage",
    0.9999,
    "Share of all characters in the alphabet; rarer ones become [UNK].",
)
_HELD_OUT = flags.DEFINE_float(
    "held_out", 0.01, "Share of lines held out to evaluate the vocabulary."
)
_MAX_UNIQUE_WORDS = flags.DEFINE_integer(
    "max_unique_words",
    5_000_000,
    "Maximum number of distinct words in memory, about 120 bytes each; beyond "
    "it the rarest are dropped.",
)
_WORKERS = flags.DEFINE_integer(
    "workers", 0, "Processes that split documents; 0 for one per processor."
)
_RECIPE = define_fields(CorpusRecipe)


def main() -> None:
    """Trains and writes the vocabulary."""
    output = pathlib.Path(command_line.required(_OUTPUT))
    if output.is_dir():
        raise UserError(
            f"--output={output}: is a directory; name a file, for example "
            f"{output / 'vocab.txt'}"
        )
    if output.parent.exists() and not output.parent.is_dir():
        raise UserError(
            f"--output={output}: {output.parent} is a file, no folder."
        )
    # Fails before the training if the folder cannot be created.
    output.parent.mkdir(parents=True, exist_ok=True)

    from bert_tf.corpora.vocabulary import train_corpus_vocab
    from bert_tf.text.tokenizer_config import TokenizerConfig
    from bert_tf.text.vocabulary_trainer import (
        VocabularySettings,
        vocabulary_to_extend,
    )

    extend = _EXTEND.value
    config = TokenizerConfig.of(
        _LOWER_CASE.value, _STRIP_ACCENTS.value, _TOKENIZE_CHINESE_CHARS.value
    )
    settings = VocabularySettings(
        command_line.required(_VOCAB_SIZE),
        _GOOGLE_LAYOUT.value,
        _MIN_FREQUENCY.value,
        _CHARACTER_COVERAGE.value,
        _HELD_OUT.value,
        _MAX_UNIQUE_WORDS.value,
        None if extend is None else vocabulary_to_extend(extend, config),
    )
    recipe = _RECIPE()
    trained = train_corpus_vocab(
        parse_inputs(command_line.required(_INPUT), recipe),
        recipe,
        settings,
        config,
        _WORKERS.value,
        progress=True,
    )
    trained.save(output)
    print(trained.report)
    print(f"written: {output}")


if __name__ == "__main__":
    command_line.require("input", "vocab_size", "output")
    command_line.run(main)
