"""Creates pre-training records from text, or resumes an interrupted run.

bert-tf create-pretraining-data --input='corpus/*.txt' --vocab_file=vocab.txt \\
    --output_dir=records

The text has one sentence per line and a blank line between documents, or is one
of these:

--input=book.txt --input_format=text    sentences are split; --document_end
--input=enwiki-latest-pages-articles-multistream.xml.bz2    a Wikipedia dump
--input='web/*.jsonl.gz' --text_columns=content    JSON lines
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
from bert_tf.libraries import import_tensorflow
from bert_tf.progress import log
from bert_tf.records.recipe import BEAM, LOCAL, RUNNERS, RecordsRecipe

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
    LOCAL,
    RUNNERS,
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
_RECIPE = define_fields(RecordsRecipe, ["text_field"])


def main() -> None:
    """Builds the records and prints a summary."""
    recipe = _RECIPE()
    if _RUNNER.value == BEAM or PREFIX in _INPUT.value:
        import_tensorflow()
    # NumPy and more, which the help does not need.
    from bert_tf.records.build import create_records

    report = create_records(
        _INPUT.value,
        _VOCAB_FILE.value,
        _OUTPUT_DIR.value,
        recipe,
        _WORKERS.value,
        _OVERWRITE.value,
        log,
        runner=_RUNNER.value,
        beam_options=_BEAM_OPTIONS.value,
    )
    print(report)


if __name__ == "__main__":
    # TensorFlow takes 0.5 GB and seconds, and English text does not need it.
    command_line.run(main, tensorflow=False)
