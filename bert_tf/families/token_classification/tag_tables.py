"""Tables of tagged words: a word a row, or a sentence a row in lists."""

import contextlib
import re
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.token_classification.conll_files import (
    TaggedWords,
    add_wrong_tags,
)
from bert_tf.families.token_classification.recipe import UserTagRecipe
from bert_tf.files import read_faulty_lines
from bert_tf.tables.delimited import listed
from bert_tf.tables.faults import Faults
from bert_tf.tables.list_cells import entries_of
from bert_tf.tables.table import (
    ARROW,
    Cell,
    Dialect,
    Row,
    Table,
    files_of,
    known_format,
)

# Customary names of columns, in lower case.
_WORDS = ("tokens", "words", "token", "word")
_TAGS = ("ner_tags", "tags", "tag", "ner", "labels", "label")
_SENTENCES = ("sentence #", "sentence_id", "sentence", "sent_id")
_DELIMITERS = re.compile(r"[,;|\t]")


def is_tag_table(paths: str, recipe: UserTagRecipe) -> bool:
    """Whether files are tables, and not lines of a word and its tag each."""
    if recipe.text_columns or recipe.label_column:
        return True
    path = files_of(paths, "input")[0]
    kind = known_format(path)
    if kind in ("jsonl", *ARROW):
        return True
    with contextlib.closing(read_faulty_lines(path, "replace")) as lines:
        line = next((each.text for each in lines), "")
    names = {_plain(cell) for cell in _DELIMITERS.split(line)}
    is_named = not names.isdisjoint(_WORDS) and not names.isdisjoint(_TAGS)
    return line[:1] == "{" or is_named or (kind == "csv" and " " not in line)


def _plain(name: str) -> str:
    return name.strip().strip('"').lower()


def read_tag_table(
    paths: str, recipe: UserTagRecipe, tagged: bool = True
) -> TaggedWords:
    """Reads tagged words of one or several tables.

    A row has lists of words and tags; or a word and its tag, where a sentence
    ends at a blank row, and where the column that names it has another value.

    Args:
      paths: the files; see `Table`.
      recipe: names the columns, and tags that are numbers.
      tagged: whether the tags are read.

    Raises:
      UserError: see `Table`; or a row has an empty word, no tag or another
        number of tags than words, or a wrong tag; see `wrong_tags`.
    """
    table = Table(
        paths,
        Dialect(encoding_errors=recipe.encoding_errors, blank_rows=True),
    )
    names, optional = _columns_of(table, recipe, tagged)
    words: list[str] = []
    tags: list[str] = []
    places: list[tuple[int, str]] = []
    starts = [0]
    faults = Faults(table.name, unit="rows or words")
    sentence: Cell = None
    file = ""
    for row in table.rows(names, optional):
        cells = row.cells[: len(names)]
        is_blank = not row.fault and not any(cells)
        named: Cell = next(iter(row.cells[len(names) :]), None)
        begins = bool(named) and named != sentence
        if is_blank or begins or row.path != file:
            sentence = named or sentence
            file = row.path
            starts += [len(words)] * (len(words) > starts[-1])
        if is_blank:
            continue
        try:
            lists = _lists_of(row, cells)
            own, *given = lists or [(str(cell),) for cell in cells]
            _check_words(own, row.place)
        except Fault as fault:
            faults.add(row.number, fault, row.path)
            continue
        words += own
        tags += given[0] if given else [""] * len(own)
        places += [(row.number, row.path)] * len(own)
        if lists:
            starts += [len(words)] * (len(words) > starts[-1])
    num_wrong = 0
    if tagged and tags:
        tags = _named_tags(tags, recipe.label_names, table.name)
        num_wrong = add_wrong_tags(tags, places, faults)
    faults.settle(len(words) - num_wrong)
    if not words:
        raise UserError(f"{table.name}: has no words.")
    starts += [len(words)] * (len(words) > starts[-1])
    count = len(starts) - 1
    documents = (
        range(count + 1) if recipe.unmarked == "sentences" else (0, count)
    )
    return TaggedWords(
        path=table.name,
        words=words,
        tags=tags if tagged else [],
        rows=np.array([number for number, _ in places], np.int64),
        sentence_starts=np.array(starts, np.int64),
        document_starts=np.array(documents, np.int64),
        separator="\t",
    )


def _columns_of(
    table: Table, recipe: UserTagRecipe, tagged: bool
) -> tuple[list[str], list[str]]:
    """Returns the columns of words and tags, and that of sentences, if any.

    Raises:
      UserError: a column has no customary name, and no setting names it.
    """
    with contextlib.closing(table.rows((), whole=True)) as rows:
        keys = next((list(row.columns) for row in rows if not row.fault), [])
    lower = {_plain(key): key for key in keys}

    def find(stated: str, names: Sequence[str], setting: str) -> list[str]:
        found = [stated] * bool(stated)
        found += [lower[name] for name in names if name in lower]
        if setting and not found:
            raise UserError(
                f"{table.name}: has no column called {' or '.join(names)}, but "
                f"{listed(keys)}; name yours with `{setting}`=..."
            )
        return found[:1]

    chosen = find(recipe.text_columns, _WORDS, "text_columns")
    if tagged:
        chosen += find(recipe.label_column, _TAGS, "label_column")
    return chosen, find(recipe.sentence_column, _SENTENCES, "")


def _lists_of(row: Row, cells: Sequence[Cell]) -> list[tuple[str, ...]] | None:
    """Returns the lists of words and tags of a row; None of a word.

    Raises:
      Fault: the row is malformed, or the lists have different lengths.
    """
    if row.fault:
        raise row.fault
    found = [entries_of(cell) for cell in cells]
    lists = [each for each in found if each is not None]
    is_text = all(isinstance(cell, str) for cell in cells)
    # A word may look like a list of numbers; its tag does not.
    is_quoted = len(cells) > 1 or not {*"'\""}.isdisjoint(str(cells[0]))
    if is_text and not (is_quoted and len(lists) == len(cells)):
        return None
    if len(lists) < len(cells):
        raise Fault(
            "a list and a text",
            f"{row.place}: has words {excerpt(cells[0])} and tags "
            f"{excerpt(cells[-1])}; give a list of each, or one of each.",
        )
    if len({len(each) for each in lists}) > 1:
        raise Fault(
            "number of tags",
            f"{row.place}: has {len(lists[0])} words and {len(lists[1])} tags; "
            "give each word one.",
        )
    return lists


def _check_words(words: Sequence[str], place: str) -> None:
    for text in words:
        if not text.strip() or len(text.splitlines()) > 1 or "\t" in text:
            raise Fault(
                "an empty word" if not text.strip() else "a word of two lines",
                f"{place}: has the word {excerpt(text)}; a word has visible "
                "characters, and neither tabs nor line ends.",
            )


def _named_tags(tags: list[str], label_names: str, path: str) -> list[str]:
    """Returns tags, those that are numbers by their names.

    Raises:
      UserError: they are numbers without names, or a number has none.
    """
    if not all(map(str.isdecimal, tags)):
        return tags
    names = [name.strip() for name in label_names.split(",")]
    numbers = list(map(int, tags))
    if not label_names or max(numbers) >= len(names):
        count = max(numbers) + 1
        raise UserError(
            f"{path}: its tags are numbers from 0 to {count - 1}; name all in "
            "their order with `label_names`=O,B-PER,I-PER,..."
        )
    return [names[number] for number in numbers]
