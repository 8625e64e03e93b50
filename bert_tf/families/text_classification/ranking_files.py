"""Files of queries, their documents and the documents' labels.

Rows are pairs of a query and a document with a label; queries with lists of
documents and of labels; or queries with several columns of documents, of which
the first one is relevant.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.user_files import UserFiles, split_off_groups
from bert_tf.families.text_classification.recipe import (
    BCE,
    LISTNET,
    MARGIN_MSE,
    RankingRecipe,
)
from bert_tf.tables.faults import Faults
from bert_tf.tables.list_cells import entries_of
from bert_tf.tables.table import (
    Cell,
    Dialect,
    Row,
    Table,
    convert_rows,
    handle_empty_texts,
    named_columns,
    text_of,
)


class RankingExample(NamedTuple):
    """A query with its documents.

    Attributes:
      query: the query.
      documents: one or more documents.
      label: what the loss compares with the score of each document: its
        relevance, or the score of a teacher; None in test files.
      relevance: the relevance of each document, from 0, by which rankings are
        scored; None in test files.
      identifier: the name of the row in prediction files.
      row: its line in the file, counted from 1, for errors.
      path: its file, for errors.
    """

    query: str
    documents: tuple[str, ...]
    label: tuple[float, ...] | None
    relevance: tuple[float, ...] | None
    identifier: str
    row: int
    path: str = ""


class RankingFiles(UserFiles):
    """The files that a recipe names; rows of a query stay in one split.

    Args:
      documents: the columns of documents.
    """

    def __init__(self, documents: tuple[str, ...]):
        super().__init__(_split_off_queries)
        self.documents = documents

    def read_file(
        self, path: str, recipe: RankingRecipe, labelled: bool
    ) -> list[RankingExample]:
        """Reads the rows of a table.

        Args:
          path: the table; see `Table`.
          recipe: names the other columns, the format and the loss.
          labelled: whether rows need labels. Those with several columns of
            documents have them by the order of the columns.

        Raises:
          UserError: see `Table`; or a row has no documents, or labels that do
            not fit its documents or the loss.
        """
        columns = self.documents
        needs_label = labelled and len(columns) == 1
        label = [recipe.label_column] if recipe.label_column else []
        named = {
            "query_column": [recipe.query_column],
            "document_columns": columns,
        }
        if label or needs_label:
            named["label_column"] = label
        required = named_columns(named, path)
        if label and not needs_label:
            required.remove(*label)

        def make(row: Row) -> RankingExample:
            query, *texts = row.cells[: len(columns) + 1]
            cell = row.cells[-1] if label else None
            documents = _documents(texts, columns, cell, row.place)
            scores, relevance = None, None
            if cell or needs_label:
                scores = _labels(cell, documents, columns, row.place)
                relevance = tuple(max(score, 0.0) for score in scores)
            if len(columns) > 1:
                relevance = (1.0, *[0.0] * (len(columns) - 1))
                scores = scores or relevance
            return RankingExample(
                text_of(query, recipe.query_column, row.place),
                documents,
                scores,
                relevance,
                str(row.position),
                row.number,
                row.path,
            )

        dialect = Dialect.of_recipe(recipe)
        optional = [] if needs_label else label
        rows = handle_empty_texts(
            path,
            Table(path, dialect).rows(required, optional),
            (recipe.query_column, *columns),
            recipe.empty_text,
        )
        return list(convert_rows(rows, make, Faults(path, dialect.bad_rows)))


def _documents(
    cells: Sequence[Cell], columns: Sequence[str], label: Cell, place: str
) -> tuple[str, ...]:
    """Returns the documents in the cells of a row."""
    (name, *others), (cell, *_) = columns, cells
    # The text of a document may look like a list; that of a list has labels.
    has_list = isinstance(cell, tuple) or entries_of(label) is not None
    if others or not has_list:
        pairs = zip(cells, columns, strict=True)
        return tuple(text_of(cell, column, place) for cell, column in pairs)
    documents = entries_of(cell) or ()
    if not documents or not all(map(str.strip, documents)):
        raise Fault(
            "no list of documents",
            f"{place}: the list of documents in {name!r} is {excerpt(cell)}; "
            "it takes one document or more, none of them empty.",
        )
    return documents


def _labels(
    cell: Cell,
    documents: Sequence[str],
    columns: Sequence[str],
    place: str,
) -> tuple[float, ...]:
    """Returns the label of each document.

    Of several columns, labels may also be the margins of a teacher between the
    first document and each other one.
    """
    entries = entries_of(cell)
    if entries is None:
        entries = (str(cell or ""),)
    try:
        labels = tuple(map(float, entries))
    except ValueError:
        labels = (np.nan,)
    if not np.isfinite(labels).all():
        raise Fault(
            "a label that is no number",
            f"{place}: the label is {excerpt(cell)}; it takes a finite number "
            "for each document.",
        )
    if len(columns) > 1 and len(labels) == len(documents) - 1:
        return (0.0, *[-margin for margin in labels])
    if len(labels) != len(documents):
        raise Fault(
            "another number of labels",
            f"{place}: has {len(labels)} labels, {excerpt(cell)}, and "
            f"{len(documents)} documents; give a label for each.",
        )
    return labels


def loss_of(examples: Sequence[RankingExample]) -> str:
    """Returns the loss that fits the form of the rows; see `RankingRecipe`."""
    first = examples[0]
    if all(len(example.documents) == 1 for example in examples):
        return BCE
    return LISTNET if first.label == first.relevance else MARGIN_MSE


def check_labels(examples: Sequence[RankingExample], loss: str) -> None:
    """Raises `UserError` if the labels of a row do not fit a loss."""
    for example in examples:
        place = f"{example.path}, row {example.row}"
        if loss != BCE and len(example.documents) == 1:
            raise UserError(
                f"{place}: has one document, and `loss`={loss} compares those "
                "of a row; give a list of them and of their labels, or "
                f"`loss`={BCE}."
            )
        for label in example.label or ():
            if loss == BCE and not 0 <= label <= 1:
                raise UserError(
                    f"{place}: the label is {label:g}, and `loss`={BCE} takes "
                    f"0 to 1; scale it, or give lists and `loss`={LISTNET}."
                )


def _split_off_queries(
    examples: Sequence[RankingExample], share: float, seed: int
) -> tuple[list[RankingExample], list[RankingExample]]:
    """Splits off a share of the rows; those of a query stay together."""
    queries = [example.query for example in examples]
    same = f"{examples[0].path}: all rows have the same query"
    return split_off_groups(examples, queries, same, share, seed)
