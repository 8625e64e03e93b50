"""Finds the texts that are nearest to queries in a folder of vectors.

bert-tf search --model=DIR --vectors=vectors "a calm sea"

The folder is one that `bert-tf embed` wrote, with the same model. Several
queries, each in quotes, may follow the flags, or --queries names a file. Prints
score, id and text of each result. The search is exact, and reads the vectors in
blocks.
"""

from absl import flags

from bert_tf.inference.text_rows import TextSettings
from bert_tf.libraries import RUNTIME_HELP

from . import command_line
from .shared_flags import define_fields, required_string

_MODEL = required_string(
    "model", "Model folder of any family, or hf://organisation/name."
)
_VECTORS = required_string("vectors", "Folder that `bert-tf embed` wrote.")
_QUERIES = flags.DEFINE_string(
    "queries", None, "Files of queries, as --input of `bert-tf embed`."
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File to write instead of printing, .jsonl: a line has a query, its id if "
    "--queries names a file, and results; - is standard output.",
)
_TOP_K = flags.DEFINE_integer("top_k", 10, "Results for each query.")
_RUNTIME = flags.DEFINE_string(
    "runtime", "keras", f"{RUNTIME_HELP[0].upper()}{RUNTIME_HELP[1:]}."
)
_SETTINGS = define_fields(TextSettings, ("text_column",))


def main(words: list[str]) -> None:
    """Searches for the queries."""
    from bert_tf.errors import UserError
    from bert_tf.files import STANDARD_STREAM, check_output
    from bert_tf.inference.load import load
    from bert_tf.inference.vector_folder import VectorFolder, write_results

    settings = _SETTINGS()
    if bool(words) == bool(_QUERIES.value):
        raise UserError(
            'give queries after the flags, for example "a calm sea", or a file '
            "of them as `queries`; one of the two."
        )
    output = _OUTPUT.value
    if output not in (None, STANDARD_STREAM):
        check_output(output, (".jsonl",))
    folder = VectorFolder(_VECTORS.value)
    ids: list[str | int] = []
    if _QUERIES.value:
        table = settings.table(_QUERIES.value, "queries")
        ids, words = map(list, zip(*settings.rows(table), strict=True))
    model = load(_MODEL.value, runtime=_RUNTIME.value)
    results = folder.search(model, words, _TOP_K.value)
    if output is not None:
        write_results(output, words, results, ids)
        return
    for query, found in zip(words, results, strict=True):
        print(query)
        for each in found:
            text = " ".join(each["text"].split())
            print(f"  {each['score']:.4f}  {each['id']}  {text}")


if __name__ == "__main__":
    command_line.run_on_words(main)
