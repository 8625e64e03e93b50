"""Trains a vocabulary on text: WordPiece, unigram or byte-level BPE.

bert-tf train-vocab --input='corpus/*.txt' --vocab_size=16384 \\
    --output=out/vocab.txt
bert-tf train-vocab --input='corpus/*.txt' --vocab_size=32000 --kind=unigram \\
    --output=out/spiece.model
bert-tf train-vocab --input='corpus/*.txt' --vocab_size=50265 --kind=byte_bpe \\
    --output=out/tokenizer.json

With --extend=bert/vocab.txt, words that this vocabulary splits are added to it,
for a model whose training continues (bert-tf convert --vocab_file).

Formats of text and mixtures of corpora: see bert-tf create-pretraining-data.
"""

import pathlib

from absl import flags

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import parse_inputs
from bert_tf.errors import UserError

from . import command_line
from .shared_flags import define_corpora, define_fields, required_string

_INPUT = define_corpora()
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size",
    None,
    "Number of tokens, including special ones; a small text gives fewer.",
    required=True,
)
_OUTPUT = required_string(
    "output", "The vocabulary file to write, for example out/vocab.txt."
)
_KIND = flags.DEFINE_enum(
    "kind",
    "wordpiece",
    ["wordpiece", "unigram", "byte_bpe"],
    "Kind of tokenizer; the file is spiece.model for unigram, tokenizer.json "
    "for byte_bpe.",
)
_LOWER_CASE = flags.DEFINE_bool(
    "lower_case",
    None,
    "Lower-case the text and strip its accents; by default for wordpiece. "
    "A unigram model is ALBERT's if true, else XLM-R's.",
)
_STRIP_ACCENTS = flags.DEFINE_bool(
    "strip_accents", None, "Strip accents; by default as --lower_case."
)
_TOKENIZE_CHINESE_CHARS = flags.DEFINE_bool(
    "tokenize_chinese_chars",
    None,
    "Split at every CJK ideograph; by default for wordpiece.",
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
    "min_frequency",
    None,
    "Minimum number of occurrences of a merged piece, 2 by default; not for "
    "unigram.",
)
_CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage",
    None,
    "Share of all characters in the alphabet, 0.9999 by default; rarer ones "
    "become [UNK]. Not for byte_bpe.",
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
_RECIPE = define_fields(CorpusRecipe, ["text_field"])


def main() -> None:
    """Trains and writes the vocabulary."""
    output = pathlib.Path(_OUTPUT.value)
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

    from bert_tf.corpora.vocabulary import (
        train_corpus_vocab,
        vocabulary_trainer,
    )

    trainer = vocabulary_trainer(
        _KIND.value,
        _VOCAB_SIZE.value,
        _HELD_OUT.value,
        _MAX_UNIQUE_WORDS.value,
        lower_case=_LOWER_CASE.value,
        strip_accents=_STRIP_ACCENTS.value,
        tokenize_chinese_chars=_TOKENIZE_CHINESE_CHARS.value,
        google_layout=_GOOGLE_LAYOUT.value,
        min_frequency=_MIN_FREQUENCY.value,
        character_coverage=_CHARACTER_COVERAGE.value,
        extend=_EXTEND.value,
    )
    trainer.check_name(output)
    recipe = _RECIPE()
    trained = train_corpus_vocab(
        parse_inputs(_INPUT.value, recipe),
        recipe,
        trainer,
        _WORKERS.value,
        progress=True,
    )
    trained.save(output)
    print(trained.report)
    print(f"written: {output}")


if __name__ == "__main__":
    command_line.run(main)
