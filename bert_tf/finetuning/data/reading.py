"""Rows of a table as examples, their labels still as the file has them."""

from typing import Any, TypeVar

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.data.table_formats import Cell, excerpt
from bert_tf.finetuning.data.tables import Dialect, Table, read_table
from bert_tf.progress import notice

# An example of any kind of task: its texts first.
E = TypeVar("E", bound=Any)


def read_examples(
    path: str,
    texts: tuple[str, ...],
    label: str | None,
    empty_text: str,
    dialect: Dialect,
    label_needed: bool = True,
) -> list[Example]:
    """Reads the examples of a file.

    Args:
      path: the file.
      texts: the columns of the text, or of the two texts.
      label: the column of the label; None where the file has none.
      empty_text: what becomes of empty texts; see `handle_empty_texts`.
      dialect: how to read the file.
      label_needed: whether the label's column must be there.

    Returns:
      Examples with the label's cell as their label, or None. An example's
      identifier is its place in the file, from 0, so it stays when others are
      dropped.

    Raises:
      UserError: see `read_table`; or an empty text that is not allowed.
    """
    wanted, optional = list(texts), list[str]()
    if label is not None:
        (wanted if label_needed else optional).append(label)
    table = read_table(path, wanted, optional, dialect)
    examples = []
    for row in table.rows:
        cells = row.cells
        example = Example(
            text_a=_text(table, row.number, texts[0], cells[0]),
            text_b=_text(table, row.number, texts[1], cells[1])
            if len(texts) == 2
            else None,
            label=cells[len(texts)] if label is not None else None,
            identifier=str(row.position),
            row=row.number,
            path=path,
        )
        examples.append(example)
    return handle_empty_texts(examples, texts, empty_text)


def _text(table: Table, row: int, column: str, cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    raise UserError(
        f"{table.path}, row {row}: {column!r} is a list, {excerpt(cell)}; a "
        "text is wanted."
    )


def handle_empty_texts(
    examples: list[E], texts: tuple[str, ...], empty_text: str
) -> list[E]:
    """Keeps, drops or refuses examples with an empty text.

    Args:
      examples: the examples of one file.
      texts: what its text columns are called, for the error.
      empty_text: "error", "keep" or "drop".

    Raises:
      UserError: there is one and empty_text is "error", or nothing is left.
    """
    if empty_text == "keep":
        return examples
    kept = []
    for example in examples:
        empty = [
            (column, text)
            for column, text in zip(texts, example[:2], strict=False)
            if not text.strip()
        ]
        if not empty:
            kept.append(example)
        elif empty_text == "error":
            column, text = empty[0]
            raise UserError(
                f"{example.path}, row {example.row}: the text in {column!r} "
                f"is empty ({excerpt(text)}); mend the row, or pass "
                "`empty_text`=keep or `empty_text`=drop."
            )
    dropped = len(examples) - len(kept)
    if not kept:
        raise UserError(f"{examples[0].path}: all texts are empty.")
    if dropped:
        notice(
            f"{examples[0].path}: {dropped} of {len(examples)} rows have an "
            "empty text and are dropped (empty_text=drop)."
        )
    return kept
