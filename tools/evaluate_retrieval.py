"""Scores the search of a model for relevant documents, beside BM25.

bert-tf evaluate-retrieval --model=MODEL --data=beir/scifact --output_dir=out
bert-tf evaluate-retrieval --model=MODEL --data=dev-v1.1.json \\
    --reranker=out/ranker --num_reranked=20 --output_dir=out

--data is a folder in BEIR's layout (queries.jsonl, corpus.jsonl and
qrels/test.tsv), or a file in SQuAD's, whose questions search their paragraphs.
Prints the scores x 100; --output_dir has report.html, report.json and
rankings.jsonl.
"""

from absl import flags

from . import command_line
from .shared_flags import required_string

_MODEL = required_string(
    "model",
    "Model of vectors: a folder of any family, hf://organisation/name or "
    "keras_hub://preset.",
)
_DATA = required_string(
    "data", "Folder in BEIR's layout, or JSON file in SQuAD's."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the report and the rankings."
)
_SPLIT = flags.DEFINE_string("split", "test", "File in qrels.")
_RERANKER = flags.DEFINE_string(
    "reranker",
    None,
    "Cross-encoder that ranks the first documents of each query again; see "
    "bert-tf rank.",
)
_NUM_RERANKED = flags.DEFINE_integer(
    "num_reranked", 100, "Documents of each query for --reranker."
)
_NUM_QUERIES = flags.DEFINE_integer(
    "num_queries", 0, "Queries to score, drawn with a fixed seed; 0 = all."
)
_IGNORE_IDENTICAL_IDS = flags.DEFINE_bool(
    "ignore_identical_ids",
    False,
    "Leaves out a document with the name of the query, as BEIR and MTEB do.",
)


def main() -> None:
    """Scores the rankings and prints the table."""
    from bert_tf.inference.retrieval import evaluate_retrieval
    from bert_tf.side_by_side import one_core_a_batch

    one_core_a_batch()
    found = evaluate_retrieval(
        _MODEL.value,
        _DATA.value,
        _OUTPUT_DIR.value,
        split=_SPLIT.value,
        reranker=_RERANKER.value,
        num_reranked=_NUM_RERANKED.value,
        num_queries=_NUM_QUERIES.value,
        ignore_identical_ids=_IGNORE_IDENTICAL_IDS.value,
    )
    print(found.table())


if __name__ == "__main__":
    command_line.run(main)
