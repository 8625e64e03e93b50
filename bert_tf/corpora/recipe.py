"""How the files of a corpus are read, as a frozen dataclass."""

import dataclasses

from bert_tf.files import ENCODING_ERRORS
from bert_tf.recipe import Settings, setting

AUTO, SENTENCES, TEXT = "auto", "sentences", "text"
WIKIPEDIA, JSONL, TFDS = "wikipedia", "jsonl", "tfds"
INPUT_FORMATS = (AUTO, SENTENCES, TEXT, WIKIPEDIA, JSONL)

BLANK_LINE, FILE, LINE = "blank_line", "file", "line"
DOCUMENT_ENDS = (BLANK_LINE, FILE, LINE)


@dataclasses.dataclass(frozen=True)
class CorpusRecipe(Settings):
    """How text is read and what share of each corpus is taken."""

    input_format: str = setting(
        AUTO,
        "what the input files hold: sentences (one a line, a blank line "
        "between documents), text (sentences are split), wikipedia (an XML "
        "dump), jsonl (an object with a text a line, in which a line end ends "
        "a paragraph), or auto: by the name, .xml and .jsonl (.gz and .bz2 "
        "behind them too), else sentences",
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
        "key of the text in JSON lines and TensorFlow Datasets",
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
        "exponent on the share of each named corpus: 1 takes them as they "
        "are, 0.7 is multilingual BERT's, 0 takes the same amount of each",
        at_least=0,
        at_most=1,
    )
