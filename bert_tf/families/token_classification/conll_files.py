"""CoNLL-style files: a word per line, a blank line after each sentence.

One column of a line is the word and one its tag. A line with -DOCSTART- in a
column begins a document. In CoNLL-U, whose first column is the number of the
word, lines of several words (1-2) and of empty nodes (1.1) are skipped. Files
of predictions are valid input of conlleval: the predicted tag comes last,
after the gold tag if there is one, in the scheme of the data file or IOB2.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.user_files import draw_groups
from bert_tf.families.token_classification.entities import (
    IO,
    IOB2,
    OUTSIDE,
    in_scheme,
    scheme_of,
    sentence_of_words,
    wrong_tags,
)
from bert_tf.families.token_classification.recipe import TagRecipe
from bert_tf.files import read_faulty_lines, write_text
from bert_tf.progress import log
from bert_tf.tables.faults import Faults
from bert_tf.tables.table import only_file

DOCUMENT_MARK = "-DOCSTART-"
_BLANKS = " \t\r\n"
_SEPARATORS = re.compile("[ \t]+")
_CONLL_U_COLUMNS = 10
# The numbers of a range of words and of an empty node.
_NOT_A_WORD = re.compile(r"\d+[-.]\d+")

# The word first and its tag last, as in the files of CoNLL-2003.
_WORD_FIRST_TAG_LAST = TagRecipe()


@dataclasses.dataclass(frozen=True)
class TaggedWords:
    """The words of a file, concatenated.

    Attributes:
      path: the file.
      words: its W words.
      tags: their tags, unconverted; empty if none are read.
      rows: int64 [W], the line of each word, from 1.
      sentence_starts: int64 [N + 1], the first word of each sentence, and W.
      document_starts: int64 [D + 1], the first sentence of each document, and
        N.
      separator: separator of the columns, a tab or a space.
      marks: number of document marks.
    """

    path: str
    words: list[str]
    tags: list[str]
    rows: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    separator: str = " "
    marks: int = 0

    @functools.cached_property
    def scheme(self) -> str:
        """The scheme of the tags; IOB2 if there are none."""
        return scheme_of(self.tags, self.sentence_starts)

    @functools.cached_property
    def learned_tags(self) -> list[str]:
        """The tags that a model is trained on: IOB2, or IO without prefixes."""
        learned = IO if self.scheme == IO else IOB2
        return in_scheme(self.tags, self.sentence_starts, learned)

    def __len__(self) -> int:
        return len(self.sentence_starts) - 1

    def sentences(self) -> Iterator[slice]:
        """Yields the range of words of each sentence."""
        for bounds in itertools.pairwise(self.sentence_starts.tolist()):
            yield slice(*bounds)


def read_conll(
    path: str, recipe: TagRecipe = _WORD_FIRST_TAG_LAST, tagged: bool = True
) -> TaggedWords:
    """Reads a CoNLL-style file.

    Columns are separated by tabs if the line of the first word has one, and
    otherwise by blanks. All words have the same number of columns. Tags may be
    of any scheme, or labels; see `entities`.

    Args:
      path: the file; .gz is decompressed.
      recipe: states the columns and comments.
      tagged: whether the tags are read.

    Raises:
      UserError: the file cannot be read, has no words or not the columns, or
        a line has another number of columns, an empty word or a wrong tag; see
        `wrong_tags`.
    """
    path = only_file(path, "tagged words")
    words: list[str] = []
    tags: list[str] = []
    rows: list[int] = []
    sentence_starts, document_starts = [0], [0]
    columns: _Columns | None = None
    skipped: list[int] = []
    marks = comments = 0
    faults = Faults(path, unit="lines with a word")
    for row, line, fault in read_faulty_lines(
        path, recipe.encoding_errors, whole_lines=True
    ):
        if fault:
            faults.add(row, fault)
            continue
        line = line.strip("\r\n")
        first_word = len(words) == sentence_starts[-1]
        if first_word and recipe.comment and line.startswith(recipe.comment):
            comments += 1
            continue
        # The substring test is fast, and true for few lines.
        is_mark = DOCUMENT_MARK in line and any(
            cell.startswith(DOCUMENT_MARK) for cell in line.split()
        )
        if is_mark or not line.strip(_BLANKS):
            _close(sentence_starts, len(words))
            if is_mark:
                _close(document_starts, len(sentence_starts) - 1)
                marks += 1
            continue
        if columns is None:
            columns = _Columns(path, row, line, recipe, tagged)
        with faults.caught(row):
            if cells := columns.cells(row, line):
                words.append(cells[recipe.token_column])
                tags.append(cells[recipe.tag_column] if tagged else "")
                rows.append(row)
            else:
                skipped.append(row)
    num_wrong = 0
    if tagged:
        places = [(row, path) for row in rows]
        num_wrong = add_wrong_tags(tags, places, faults)
    faults.settle(len(words) - num_wrong)
    if columns is None or not words:
        raise UserError(f"{path}: has no words.")
    _close(sentence_starts, len(words))
    _close(document_starts, len(sentence_starts) - 1)
    if not marks and recipe.unmarked == "sentences":
        document_starts = list(range(len(sentence_starts)))
    if comments:
        log(f"{path}: {comments} comment lines are skipped.")
    if skipped:
        log(
            f"{path}: {len(skipped)} lines of CoNLL-U with several words "
            f"or none (1-2, 1.1) are skipped, first row {skipped[0]}; the "
            "single words are read."
        )
    # Either intended, or tabs separate only some of the columns.
    if columns.tabs and (odd := [word for word in words if " " in word]):
        log(
            f"{path}: {len(odd)} of {len(words)} words contain blanks "
            f"({excerpt(odd[0])} first), because tabs separate the columns."
        )
    return TaggedWords(
        path=path,
        words=words,
        tags=tags if tagged else [],
        rows=np.array(rows, np.int64),
        sentence_starts=np.array(sentence_starts, np.int64),
        document_starts=np.array(document_starts, np.int64),
        separator="\t" if columns.tabs else " ",
        marks=marks,
    )


def add_wrong_tags(
    tags: Sequence[str], places: Sequence[tuple[int, str]], faults: Faults
) -> int:
    """Adds the tags that cannot be read to the faults; returns their number.

    Args:
      tags: all tags of a file or table.
      places: row and file of each.
      faults: the faults of that file.
    """
    wrong = wrong_tags(set(tags))
    count = 0
    for (row, path), tag in zip(places if wrong else (), tags, strict=False):
        if tag in wrong:
            advice = f"{wrong[tag]}, or choose another column of tags"
            faults.add(row, _wrong_tag(path, row, tag, advice), path)
            count += 1
    return count


def _close(starts: list[int], end: int) -> None:
    """Ends a sentence or a document unless it is empty."""
    if end > starts[-1]:
        starts.append(end)


class _Columns:
    """Splits lines into as many columns as the first one has."""

    def __init__(
        self, path: str, row: int, line: str, recipe: TagRecipe, tagged: bool
    ):
        self._path, self._first_row = path, row
        self.tabs = "\t" in line.strip(_BLANKS)
        first = self._split(line)
        self._width = width = len(first)
        self._comment_hint = ""
        if line.startswith("# "):
            self._comment_hint = (
                f" If row {row} is a comment, pass `comment`=#."
            )
        word, tag = recipe.token_column, recipe.tag_column
        self._word = word
        is_conll_u = self.tabs and first[0].split("-")[0] == "1"
        self._is_numbered = is_conll_u and word % width != 0
        if is_conll_u and width == _CONLL_U_COLUMNS and not self._is_numbered:
            raise UserError(
                f"{path}, row {row}: has the columns of CoNLL-U "
                f"({excerpt(line)}), so column {word} is the word's number; "
                "pass `token_column`=1, and `tag_column`=3 for parts of speech."
            )
        has = f"{path}, row {row}: has {_columns(width)} ({excerpt(line)}), so"
        chosen = {"token_column": word}
        if tagged:
            chosen["tag_column"] = tag
        for name, column in chosen.items():
            if not -width <= column < width:
                raise UserError(
                    f"{has} {name}={column} is not there; columns are counted "
                    "from 0, or from -1 backwards."
                )
        if tagged and (word - tag) % width == 0:
            raise UserError(
                f"{has} token_column and tag_column are the same; put word and "
                "tag in two columns, separated by blanks or tabs."
            )

    def _split(self, line: str) -> list[str]:
        if self.tabs:
            return [cell.strip(_BLANKS) for cell in line.split("\t")]
        return _SEPARATORS.split(line.strip(_BLANKS))

    def cells(self, row: int, line: str) -> list[str]:
        """Returns the cells of a line; none if it is no word of CoNLL-U."""
        cells = self._split(line)
        if len(cells) != self._width:
            raise Fault(
                "number of columns",
                f"{self._path}, row {row}: has {_columns(len(cells))} and row "
                f"{self._first_row} has {self._width} ({excerpt(line)}); "
                f"columns are separated by {'tabs' if self.tabs else 'blanks'}"
                f", the same number in every line.{self._comment_hint}",
            )
        if self._is_numbered and _NOT_A_WORD.fullmatch(cells[0]):
            return []
        if not cells[self._word]:
            raise Fault(
                "an empty word",
                f"{self._path}, row {row}: has an empty word "
                f"({excerpt(line)}); remove the line, or choose another "
                "column with `token_column`.",
            )
        return cells


def _wrong_tag(path: str, row: int, tag: str, advice: str) -> Fault:
    return Fault(
        "a tag that cannot be read",
        f"{path}, row {row}: the tag {excerpt(tag)} {advice}.",
    )


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def split_off_documents(
    data: TaggedWords, share: float, seed: int
) -> tuple[TaggedWords, TaggedWords]:
    """Splits a share of the sentences off, in whole documents at random.

    Documents of the same words stay on one side. Of a single document, the
    last sentences become dev.

    Returns:
      The training and the dev part, each in the order of the file.

    Raises:
      UserError: one of the parts would be empty.
    """
    sizes = np.diff(data.document_starts)
    target = share * len(data)
    if len(sizes) == 1:
        in_dev = np.arange(len(data)) >= len(data) - max(round(target), 1)
    else:
        groups: dict[tuple[str, ...], list[int]] = {}
        bounds = data.sentence_starts[data.document_starts].tolist()
        for number, (first, end) in enumerate(itertools.pairwise(bounds)):
            groups.setdefault(tuple(data.words[first:end]), []).append(number)
        drawn = draw_groups(list(groups.values()), sizes, target, seed)
        in_dev = np.isin(sentence_of_words(data.document_starts), drawn)
    if in_dev.all() or not in_dev.any():
        raise UserError(
            f"{data.path}: its {len(data)} sentence(s) in {len(sizes)} "
            "document(s) cannot be split into training and dev; pass "
            "`dev_file`=..."
        )
    return _select(data, ~in_dev), _select(data, in_dev)


def _select(data: TaggedWords, is_chosen: np.ndarray) -> TaggedWords:
    """Returns some sentences, bool [N], with their documents."""
    chosen = np.flatnonzero(is_chosen[sentence_of_words(data.sentence_starts)])
    document = sentence_of_words(data.document_starts)[is_chosen]
    sizes = np.diff(data.sentence_starts)[is_chosen]
    return dataclasses.replace(
        data,
        words=[data.words[number] for number in chosen.tolist()],
        tags=[data.tags[number] for number in chosen.tolist()],
        rows=data.rows[chosen],
        sentence_starts=np.concatenate([[0], np.cumsum(sizes)]),
        document_starts=np.append(
            np.flatnonzero(np.diff(document, prepend=-1)), len(document)
        ),
    )


def write_tag_predictions(
    path: str, data: TaggedWords, predictions: Sequence[str]
) -> None:
    """Writes words, gold tags if there are any, and predicted tags."""
    columns = [data.words, *([data.tags] if data.tags else []), predictions]
    lines = map(data.separator.join, zip(*columns, strict=True))
    text = "".join(
        "".join(f"{line}\n" for line in itertools.islice(lines, count)) + "\n"
        for count in np.diff(data.sentence_starts).tolist()
    )
    write_text(path, text)


def read_tag_predictions(
    path: str, references: TaggedWords, encoding_errors: str = "strict"
) -> list[str]:
    """Reads the predicted tags, unconverted, from the last column.

    This makes no difference to entities; files of different schemes are
    reported in a notice.

    Raises:
      UserError: the file is broken, its words or sentences differ from the
        references, or its tags lack prefixes that those have.
    """
    found = read_conll(path, TagRecipe(encoding_errors=encoding_errors))
    wrong = wrong_tags({*found.tags, *references.tags})
    for row, tag in zip(found.rows, found.tags, strict=True):
        if tag in wrong:
            raise _wrong_tag(path, row, tag, wrong[tag])
    for number, (word, expected) in enumerate(
        zip(found.words, references.words, strict=False)
    ):
        if word != expected:
            raise UserError(
                f"{path}, row {found.rows[number]}: predicts {excerpt(word)} "
                f"where {references.path}, row {references.rows[number]}, has "
                f"{excerpt(expected)}; predict every word, in order."
            )
    if len(found.words) != len(references.words):
        raise UserError(
            f"{path}: has {len(found.words)} words and {references.path} has "
            f"{len(references.words)}; predict every word, in order."
        )
    for end, expected in zip(
        found.sentence_starts, references.sentence_starts, strict=False
    ):
        if end != expected:
            last = min(end, expected) - 1
            raise UserError(
                f"{path}, row {found.rows[last]}: "
                f"{'ends' if end < expected else 'does not end'} a sentence, "
                f"unlike {references.path}, row {references.rows[last]}; a "
                "blank line ends one."
            )
    scheme = scheme_of(found.tags, references.sentence_starts)
    if scheme != references.scheme and set(found.tags) != {OUTSIDE}:
        log(
            f"{path}: has tags in {scheme} and {references.path} in "
            f"{references.scheme}; accuracy compares them as they are, like "
            "conlleval, so put them in one scheme. Other scores are the same."
        )
    return found.tags
