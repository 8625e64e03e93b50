"""`VectorFolder`, the vectors of a large number of texts, and their search.

vectors.json             what computed the vectors, and how many there are
vectors-00000.npy, ...   R vectors each, in any precision, for numpy.load
rows-00000.parquet, ...  their ids and texts
ranges.npy               the ranges of a byte per number, see
                         `quantized_vectors.number_ranges`

Instead of the two files, a shard may be vectors-00000.parquet with the columns
id, text and vector.
"""

import functools
import hashlib
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.config import VECTOR_PRECISIONS
from bert_tf.errors import UserError
from bert_tf.families.data.similarity import SIMILARITIES
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import DEFAULTS
from bert_tf.files import PARQUET, STANDARD_STREAM, written_beside
from bert_tf.inference.corpus import Corpus
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.quantized_vectors import BYTES, form
from bert_tf.inference.vectors import open_model
from bert_tf.layers.initialization import bytes_of
from bert_tf.recipe import Limits, check_kind, read_json_object
from bert_tf.tables.writing import to_json

DESCRIPTION, RANGES = "vectors.json", "ranges.npy"
ID, TEXT, VECTOR = "id", "text", "vector"
_KINDS = {
    "model": str,
    "model_digest": str,
    "width": int,
    "normalized": bool,
    "precision": str,
    "similarity": str,
    "file_format": str,
    "rows_per_file": int,
    "num_rows": int,
}


def shard_files(file_format: str, number: int) -> tuple[str, str]:
    """Returns the names of a shard's files of vectors and of rows."""
    if file_format == PARQUET:
        return (f"vectors-{number:05}.parquet",) * 2
    return f"vectors-{number:05}.npy", f"rows-{number:05}.parquet"


def model_digest(model: PretrainedModel) -> str:
    """Identifies the weights, tokens and modules that determine vectors."""
    digest = hashlib.sha256()
    # Vectors depend neither on heads nor on the pooler, which may be random.
    pooler = {id(each) for each in model.encoder.pooler.weights}
    used = {id(each) for each in model.encoder.weights} - pooler
    others = {
        id(each.value) for each in model.model.weights if id(each) not in used
    }
    for weight in model.weights:
        if id(weight) not in others:
            digest.update(bytes_of(weight))
    tokens = model.tokenizer.vocabulary.tokens
    digest.update(json.dumps([tokens, str(model.modules)]).encode())
    return digest.hexdigest()


class VectorFolder:
    """A finished folder of vectors.

    Args:
      path: the folder.

    Attributes:
      path: the folder.
      description: the content of vectors.json.
      corpus: the vectors.

    Raises:
      UserError: it is no such folder, unfinished or damaged.
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        file = self.path / DESCRIPTION
        if not file.is_file():
            raise UserError(
                f"`vectors`={path}: has no {DESCRIPTION}; give a folder that "
                "`bert-tf embed` wrote."
            )
        values = read_json_object(file)
        if values.get("num_rows") is None:
            raise UserError(
                f"`vectors`={path}: is not finished; the command that began it "
                "continues."
            )
        for name, kind in _KINDS.items():
            check_kind(name, kind, values.get(name), str(file))
        Limits(choices=VECTOR_PRECISIONS).check(
            f"{file}: precision", values["precision"]
        )
        Limits(choices=tuple(SIMILARITIES)).check(
            f"{file}: similarity", values["similarity"]
        )
        self.description: Mapping[str, Any] = values
        total, size = values["num_rows"], values["rows_per_file"]
        if total < 1 or size < 1:
            raise UserError(f"`vectors`={path}: holds no vectors.")
        sizes = [min(size, total - n) for n in range(0, total, size)]
        arrays = [
            functools.partial(self._array, number, count)
            for number, count in enumerate(sizes)
        ]
        ranges = None
        if values["precision"] in BYTES:
            ranges = np.load(self.path / RANGES)
        self.corpus = Corpus(
            *(arrays, sizes, values["width"], values["precision"], ranges)
        )

    def search(
        self, model: LoadedModel, queries: Sequence[str], top_k: int = 10
    ) -> list[list[dict[str, Any]]]:
        """Finds the texts whose vectors are nearest to those of queries.

        Args:
          model: the model that computed the vectors.
          queries: Q texts.
          top_k: K, the number of results of each.

        Returns:
          For each query its results, best first: dictionaries of id, score and
          text.

        Raises:
          UserError: another model computed the vectors.
        """
        stated = self.description
        if model_digest(open_model(model, DEFAULTS)) != stated["model_digest"]:
            raise UserError(
                f"`vectors`={self.path}: were computed by another model than "
                f"{model.folder}, from {stated['model']}; name that one, or "
                "embed the texts again."
            )
        vectors = model.encode_query(
            queries,
            normalize=stated["normalized"],
            truncate_dim=stated["width"],
        )
        indices, scores = self.corpus.search(
            vectors, top_k, stated["similarity"]
        )
        rows = self.rows(np.unique(indices))
        return [
            [
                {ID: rows[n][ID], "score": score, TEXT: rows[n][TEXT]}
                for n, score in zip(*pair, strict=True)
            ]
            for pair in zip(indices.tolist(), scores.tolist(), strict=True)
        ]

    def rows(self, indices: np.ndarray) -> dict[int, dict[str, Any]]:
        """Returns ids and texts by their indices, which are sorted."""
        import pyarrow.parquet

        found: dict[int, dict[str, Any]] = {}
        size = self.description["rows_per_file"]
        for number in np.unique(indices // size).tolist():
            _, file = shard_files(self.description["file_format"], number)
            table = pyarrow.parquet.read_table(
                self.path / file, columns=[ID, TEXT]
            )
            chosen = indices[indices // size == number]
            values = table.take(chosen - number * size).to_pylist()
            found.update(zip(chosen.tolist(), values, strict=True))
        return found

    def _array(self, number: int, count: int) -> np.ndarray:
        """Opens the vectors of a shard."""
        stated = self.description
        path = self.path / shard_files(stated["file_format"], number)[0]
        if not path.is_file():
            raise UserError(f"{path}: is missing; embed the texts again.")
        if path.suffix == ".npy":
            try:
                found = np.load(path, mmap_mode="r")
            except ValueError as error:
                raise UserError(f"{path}: damaged file ({error}).") from None
        else:
            import pyarrow.parquet

            column = pyarrow.parquet.read_table(path, columns=[VECTOR])[VECTOR]
            numbers = column.combine_chunks().flatten().to_numpy()
            found = numbers.reshape(len(column), -1)
        kind, width = form(stated["precision"], stated["width"])
        if found.shape != (count, width) or found.dtype != kind:
            raise UserError(
                f"{path}: holds {found.dtype} {list(found.shape)}, and "
                f"{DESCRIPTION} says {kind} {[count, width]}; embed the texts "
                "again."
            )
        return found


def write_results(
    output: str,
    queries: Sequence[str],
    results: Sequence[list[dict[str, Any]]],
    ids: Sequence[str | int] = (),
) -> None:
    """Writes JSON lines of query_id (if any), query and results.

    Args:
      output: the file, or "-" for standard output.
      queries: Q texts.
      results: those of each; see `VectorFolder.search`.
      ids: the ids of the queries, Q or none.
    """
    lines: list[dict[str, Any]] = [
        {"query": query, "results": found}
        for query, found in zip(queries, results, strict=True)
    ]
    if ids:
        pairs = zip(ids, lines, strict=True)
        lines = [{"query_id": each, **line} for each, line in pairs]
    if output == STANDARD_STREAM:
        sys.stdout.buffer.write(to_json(lines))
        sys.stdout.buffer.flush()
        return
    with written_beside(output) as beside:
        beside.write_bytes(to_json(lines))
