"""How the files of a corpus are read, as a frozen dataclass."""

import dataclasses

from bert_tf.files import ENCODING_ERRORS
from bert_tf.recipe import Settings, setting

AUTO, SENTENCES, TEXT = "auto", "sentences", "text"
WIKIPEDIA, JSONL, TABLE, TFDS = "wikipedia", "jsonl", "table", "tfds"
INPUT_FORMATS = (AUTO, SENTENCES, TEXT, WIKIPEDIA, JSONL, TABLE)

BLANK_LINE, FILE, LINE = "blank_line", "file", "line"
DOCUMENT_ENDS = (BLANK_LINE, FILE, LINE)


@dataclasses.dataclass(frozen=True)
class CorpusRecipe(Settings):
    """How text is read and how corpora are mixed."""

    input_format: str = setting(
        AUTO,
        "format of the input files: sentences (one per line, a blank line "
        "between documents), text (split into sentences), wikipedia (an XML "
        "dump), jsonl (one object with a text per line; a line end in the text "
        "ends a paragraph), table (a text per row, likewise, of .csv, .tsv, "
        ".parquet, .arrow or .feather), or auto: by file name (also with .gz, "
        ".bz2 or .zst), otherwise sentences",
        choices=INPUT_FORMATS,
    )
    document_end: str = setting(
        BLANK_LINE,
        "what ends a document with input_format=text: blank_line, file (blank "
        "lines end paragraphs) or line",
        choices=DOCUMENT_ENDS,
    )
    text_field: str = setting(
        "text",
        "key or column of the text in JSON lines, tables and TensorFlow "
        "Datasets",
        not_empty=True,
    )
    encoding_errors: str = setting(
        "strict",
        "bytes that are not UTF-8: strict stops and names the line, replace "
        "reads them as U+FFFD",
        choices=ENCODING_ERRORS,
    )
    smoothing: float = setting(
        1.0,
        "exponent on the share of each named corpus: 1 keeps the shares, 0.7 "
        "is multilingual BERT's, 0 samples every corpus equally",
        at_least=0,
        at_most=1,
    )
