"""Creates pre-training records from text, or resumes an interrupted run.

bert-tf create-pretraining-data --input='corpus/*.txt' --vocab_file=vocab.txt \\
    --output_dir=records

The text has one sentence per line and a blank line between documents, or is one
of these:

--input=book.txt --input_format=text    sentences are split; --document_end
--input=enwiki-latest-pages-articles-multistream.xml.bz2    a Wikipedia dump
--input='web/*.jsonl.gz' --text_field=content    JSON lines
--input=tfds:wikipedia/20230601.en    a data set of TensorFlow Datasets

Several corpora are mixed by weight, and languages by smoothed shares:

--input='wiki=wiki.xml.bz2,books:3=books/*.txt'    books three times
--input='en=en.jsonl,sw=sw.jsonl' --smoothing=0.7    as multilingual BERT

A tokenizer_config.json in the folder of vocab.txt states whether text is
lower-cased, strip_accents and tokenize_chinese_chars. Rows of BERT's relatives
(docs/relatives.md):

--vocab_file=tokenizer.json --sequences=full_sentences
--vocab_file=spiece.model --sequences=sentence_order --masked_ngram_length=3

--near_duplicates=0.8 removes near-duplicates of earlier documents.

An Apache Beam pipeline writes the same records (see docs/beam.md):

--runner=beam --beam_options='--runner=FlinkRunner --flink_master=HOST:8081'
"""

from absl import flags

from bert_tf.corpora.data_sets import PREFIX
from bert_tf.corpora.sources import parse_inputs
from bert_tf.errors import UserError
from bert_tf.libraries import import_tensorflow
from bert_tf.progress import log
from bert_tf.records.beam.options import parse_options
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.report import RecordsReport

from . import command_line
from .shared_flags import define_corpora, define_fields, required_string

_INPUT = define_corpora()
_VOCAB_FILE = required_string(
    "vocab_file",
    "Vocabulary: vocab.txt, spiece.model or sentencepiece.bpe.model, or the "
    "tokenizer.json of one of these kinds or of byte-level BPE.",
)
_OUTPUT_DIR = required_string("output_dir", "Folder of the records.")
_WORKERS = flags.DEFINE_integer(
    "workers", 0, "Parallel workers; 0 for one per processor."
)
_RUNNER = flags.DEFINE_enum(
    "runner",
    "local",
    ["local", "beam"],
    "What builds the records: this machine, or an Apache Beam pipeline.",
)
_BEAM_OPTIONS = flags.DEFINE_string(
    "beam_options",
    "",
    "Apache Beam's command-line options, quoted as one argument.",
)
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace other records in output_dir."
)
_RECIPE = define_fields(RecordsRecipe)


def _build_here(recipe: RecordsRecipe) -> RecordsReport:
    if _BEAM_OPTIONS.value:
        raise UserError(
            f"--beam_options={_BEAM_OPTIONS.value}: is for --runner=beam, and "
            "the runner is local."
        )
    # Imports TensorFlow; errors above are reported without that delay.
    from bert_tf.records.build import create_records

    return create_records(
        parse_inputs(_INPUT.value, recipe),
        _VOCAB_FILE.value,
        _OUTPUT_DIR.value,
        recipe,
        _WORKERS.value,
        _OVERWRITE.value,
        log,
    )


def _build_with_beam(recipe: RecordsRecipe) -> RecordsReport:
    if _WORKERS.value:
        raise UserError(
            f"--workers={_WORKERS.value}: is for --runner=local; for beam pass "
            "an option of its runner, as --beam_options=--direct_num_workers=2"
        )
    options = parse_options(_BEAM_OPTIONS.value)
    # Needs Apache Beam.
    from bert_tf.records.beam.files import expand
    from bert_tf.records.beam.runner import create_records_with_beam

    return create_records_with_beam(
        parse_inputs(_INPUT.value, recipe, expand=expand),
        _VOCAB_FILE.value,
        _OUTPUT_DIR.value,
        recipe,
        options,
        _OVERWRITE.value,
        log,
    )


def main() -> None:
    """Builds the records and prints a summary."""
    recipe = _RECIPE()
    if _RUNNER.value == "beam" or PREFIX in _INPUT.value:
        import_tensorflow()
    if _RUNNER.value == "beam":
        report = _build_with_beam(recipe)
    else:
        report = _build_here(recipe)
    print(report)


if __name__ == "__main__":
    # TensorFlow takes 0.5 GB and seconds, and English text does not need it.
    command_line.run(main, tensorflow=False)
