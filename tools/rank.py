"""Ranks documents for a query with a cross-encoder.

bert-tf rank --model=out/ranker --query="Who wrote Emma?" --input=texts.txt \\
    --output=best.jsonl --top_k=10
bert-tf rank --model=out/ranker --input=queries.jsonl --output=ranked.jsonl

With --query, a row of the input is a document, and a line of the output is a
document, best first, with corpus_id (its row, from 0), score and text. Without
it, a row of the input has a query and a list of documents, and a line of the
output has the query and its ranked documents as results.
"""

from absl import flags

from . import command_line
from .shared_flags import define_usage, required_string

_MODEL = required_string(
    "model",
    "A cross-encoder: a folder of --task=ranking, or a CrossEncoder of "
    "sentence-transformers, also hf://organisation/name.",
)
_INPUT = required_string(
    "input",
    "Documents, or queries with lists of documents: .csv, .tsv, .jsonl, .txt "
    "(one document per line), .parquet and others; - is standard input.",
)
_OUTPUT = required_string(
    "output", "File to write, .jsonl; - is standard output."
)
_QUERY = flags.DEFINE_string(
    "query", "", "Query for which the rows of the input are ranked."
)
_QUERY_COLUMN = flags.DEFINE_string(
    "query_column", "query", "Without --query: column of the queries."
)
_DOCUMENT_COLUMN = flags.DEFINE_string(
    "document_column",
    "",
    "Column of the documents, or without --query of lists of them; by default "
    "text, or documents.",
)
_TOP_K = flags.DEFINE_integer(
    "top_k", None, "Documents to write of each query; by default all."
)
_USAGE = define_usage()


def main() -> None:
    """Ranks the documents of the input."""
    from bert_tf.inference.load import load
    from bert_tf.inference.rank import rank_file
    from bert_tf.progress import log
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    summary = rank_file(
        load(_MODEL.value, **_USAGE().given),
        _INPUT.value,
        _OUTPUT.value,
        _QUERY.value,
        _QUERY_COLUMN.value,
        _DOCUMENT_COLUMN.value,
        _TOP_K.value,
    )
    # Rankings may go to standard output.
    log(summary)


if __name__ == "__main__":
    command_line.run(main)
