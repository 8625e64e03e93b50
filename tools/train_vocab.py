"""Learns a WordPiece vocabulary from text.

python -m tools.train_vocab --input='corpus/*.txt' --vocab_size=16384 \\
    --output=out/vocab.txt

With --extend=bert/vocab.txt the words that that vocabulary splits are added to
it, for a model that goes on with it (tools.convert_checkpoint --vocab_file).

The text may be in any format that tools.create_pretraining_data takes, and
several corpora are mixed as there.
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
    "are unpacked. NAME=PATH or NAME:WEIGHT=PATH puts it in a corpus to mix.",
)
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", None, "Number of tokens, special ones included."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "The vocabulary file to write, for example out/vocab.txt."
)
_LOWER_CASE = flags.DEFINE_bool(
    "lower_case", True, "Lower-case the text and strip its accents."
)
_STRIP_ACCENTS = flags.DEFINE_bool(
    "strip_accents", None, "Strip accents or keep them, whatever the case."
)
_TOKENIZE_CHINESE_CHARS = flags.DEFINE_bool(
    "tokenize_chinese_chars", True, "Make a word of every ideograph."
)
_GOOGLE_LAYOUT = flags.DEFINE_bool(
    "google_layout",
    False,
    "Place the special tokens and 994 [unused] ones as Google's files do.",
)
_EXTEND = flags.DEFINE_string(
    "extend",
    None,
    "A vocabulary file whose tokens keep their ids; what the text needs "
    "besides takes the places of [unused] tokens and follows behind.",
)
_MIN_FREQUENCY = flags.DEFINE_integer(
    "min_frequency", 2, "How often a piece must occur to be joined."
)
_CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage",
    0.9999,
    "Share of all characters that the alphabet covers; rarer ones are [UNK].",
)
_HELD_OUT = flags.DEFINE_float(
    "held_out", 0.01, "Share of lines kept apart to judge the vocabulary by."
)
_MAX_UNIQUE_WORDS = flags.DEFINE_integer(
    "max_unique_words",
    5_000_000,
    "Different words to remember at a time, about 120 bytes each; when there "
    "are more, the rarest are forgotten.",
)
_WORKERS = flags.DEFINE_integer(
    "workers",
    0,
    "Processes that split documents; 0 takes one for each processor.",
)
_RECIPE = define_fields(CorpusRecipe)


def main() -> None:
    """Trains and writes the vocabulary that the flags describe."""
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
    # Before the work, so that a place that cannot be written to shows now.
    output.parent.mkdir(parents=True, exist_ok=True)

    from bert_tf.corpora.vocabulary import train_corpus_vocab
    from bert_tf.text.tokenizer_config import TokenizerConfig
    from bert_tf.text.vocabulary_extension import vocabulary_to_extend
    from bert_tf.text.vocabulary_trainer import VocabularySettings

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
    recipe = CorpusRecipe(**{n: flag.value for n, flag in _RECIPE.items()})
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
