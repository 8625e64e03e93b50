"""CoNLL-style files: a word a line, a blank line after each sentence."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.files import read_lines, write_text
from bert_tf.finetuning.recipe import UNMARKED
from bert_tf.finetuning.token_classification.entities import (
    IOB2,
    OUTSIDE,
    EntityScores,
    is_tag,
    scheme_of,
    score_entities,
    to_iob2,
)
from bert_tf.progress import notice

DOCUMENT_MARK = "-DOCSTART-"
_BLANKS = " \t\r\n"
_SEPARATORS = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class ConllLayout:
    """How a file is laid out.

    Attributes:
      token_column: the column of the word, from 0, or from -1 backwards.
      tag_column: the column of the tag; None where no tags are to be read.
      comment: what lines before the first word of a sentence begin with that
        are to be passed over; empty where there are none.
      unmarked: what a document is in a file without document marks: each of
        the "sentences", or the whole "file".
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.
    """

    token_column: int = 0
    tag_column: int | None = -1
    comment: str = ""
    unmarked: str = "sentences"
    encoding_errors: str = "strict"


# The word first and its tag last, as in the files of CoNLL-2003.
WORD_FIRST_TAG_LAST = ConllLayout()


@dataclasses.dataclass(frozen=True)
class TaggedWords:
    """The words of a file, end to end.

    Attributes:
      path: the file.
      words: its W words.
      tags: their tags in IOB2; None where the file has none.
      given_tags: their tags as the file has them; None likewise.
      rows: int64 [W], the line of each word, counted from 1.
      sentence_starts: int64 [N + 1], where each sentence begins in `words`.
      document_starts: int64 [D + 1], where each document begins, in sentences.
      separator: what stands between the columns: a tab, or else a blank.
      marks: how many document marks there are.
    """

    path: str
    words: list[str]
    tags: list[str] | None
    given_tags: list[str] | None
    rows: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    separator: str = " "
    marks: int = 0

    @property
    def scheme(self) -> str:
        """The scheme of the file's tags; IOB2 where it has none."""
        if self.given_tags is None:
            return IOB2
        return scheme_of(self.given_tags, self.sentence_starts)

    @property
    def num_sentences(self) -> int:
        """How many sentences there are."""
        return len(self.sentence_starts) - 1

    @property
    def known_tags(self) -> list[str]:
        """The tags, of a file that has them."""
        assert self.tags is not None
        return self.tags

    @property
    def known_given_tags(self) -> list[str]:
        """The tags as the file has them, of one that has any."""
        assert self.given_tags is not None
        return self.given_tags

    def __len__(self) -> int:
        return self.num_sentences

    def sentences(self) -> Iterator[slice]:
        """Where the words of each sentence stand in `words` and `tags`."""
        bounds = self.sentence_starts.tolist()
        for first, end in zip(bounds, bounds[1:], strict=False):
            yield slice(first, end)


def read_conll(
    path: str, layout: ConllLayout = WORD_FIRST_TAG_LAST
) -> TaggedWords:
    """Reads a CoNLL-style file.

    Columns are what stands between tabs if the first word's line has one, and
    else between blanks. Every word's line has as many as the first. Tags may
    be IOB1, IOB2 or of another scheme; see `tag_schemes.entities`.

    Args:
      path: the file; .gz is unpacked.
      layout: its columns.

    Raises:
      UserError: the file cannot be read, has no words or not the columns, or
        a line has fewer or more columns than others, an empty word or
        something else than a tag.
    """
    if layout.unmarked not in UNMARKED:
        raise UserError(
            f"unmarked is {layout.unmarked!r}; it takes one of "
            f"{', '.join(UNMARKED)}."
        )
    words: list[str] = []
    tags: list[str] = []
    rows: list[int] = []
    sentence_starts, document_starts = [0], [0]
    columns = _Columns(path, layout)
    marks = comments = 0
    for row, line in read_lines(path, layout.encoding_errors):
        line = line.strip("\r\n")
        first_word = len(words) == sentence_starts[-1]
        if first_word and layout.comment and line.startswith(layout.comment):
            comments += 1
            continue
        is_mark = _is_mark(line)
        if not is_mark and line.strip(_BLANKS):
            word, tag = columns.read(row, line)
            words.append(word)
            tags.append(tag)
            rows.append(row)
            continue
        _close(sentence_starts, len(words))
        if is_mark:
            _close(document_starts, len(sentence_starts) - 1)
            marks += 1
    if not words:
        raise UserError(f"{path}: has no words.")
    _close(sentence_starts, len(words))
    _close(document_starts, len(sentence_starts) - 1)
    if not marks and layout.unmarked == "sentences":
        document_starts = list(range(len(sentence_starts)))
    _tell_oddities(path, words, columns.tabs, comments)
    tagged = layout.tag_column is not None
    return TaggedWords(
        path=path,
        words=words,
        tags=to_iob2(tags, sentence_starts) if tagged else None,
        given_tags=tags if tagged else None,
        rows=np.array(rows, np.int64),
        sentence_starts=np.array(sentence_starts, np.int64),
        document_starts=np.array(document_starts, np.int64),
        separator="\t" if columns.tabs else " ",
        marks=marks,
    )


def _tell_oddities(
    path: str, words: list[str], tabs: bool, comments: int
) -> None:
    if comments:
        notice(f"{path}: {comments} comment lines are passed over.")
    # Intended, or else a file that has tabs between some columns alone.
    if tabs and (odd := [word for word in words if " " in word]):
        notice(
            f"{path}: {len(odd)} of {len(words)} words hold blanks "
            f"({excerpt(odd[0])} first), since tabs divide the columns."
        )


def _is_mark(line: str) -> bool:
    # The quick look first: it is one line in hundreds.
    return DOCUMENT_MARK in line and any(
        cell.startswith(DOCUMENT_MARK) for cell in line.split()
    )


def _close(starts: list[int], end: int) -> None:
    """Ends a sentence or a document, unless there is nothing in it."""
    if end > starts[-1]:
        starts.append(end)


class _Columns:
    """Finds the word and the tag in the lines of one file."""

    def __init__(self, path: str, layout: ConllLayout):
        self.tabs = False
        self._path = path
        self._layout = layout
        self._first_row = 0
        self._width = 0
        self._known_tags: set[str] = set()

    def read(self, row: int, line: str) -> tuple[str, str]:
        """The word and the tag, empty where none is to be read."""
        if not self._width:
            self._measure(row, line)
        cells = self._split(line)
        if len(cells) != self._width:
            raise UserError(
                f"{self._path}, row {row}: has {_columns(len(cells))} and row "
                f"{self._first_row} has {self._width} ({excerpt(line)}); "
                f"columns are divided by {'tabs' if self.tabs else 'blanks'}, "
                "and every word has as many."
            )
        word = cells[self._layout.token_column]
        if not word:
            raise UserError(
                f"{self._path}, row {row}: has an empty word "
                f"({excerpt(line)}); remove the line, or choose another "
                "column with `token_column`."
            )
        if self._layout.tag_column is None:
            return word, ""
        tag = cells[self._layout.tag_column]
        if tag not in self._known_tags:
            self._check_tag(row, tag)
        return word, tag

    def _split(self, line: str) -> list[str]:
        if self.tabs:
            return [cell.strip(_BLANKS) for cell in line.split("\t")]
        return _SEPARATORS.split(line.strip(_BLANKS))

    def _measure(self, row: int, line: str) -> None:
        """Takes the number of columns from the first word's line."""
        self.tabs = "\t" in line.strip(_BLANKS)
        self._first_row = row
        self._width = width = len(self._split(line))
        chosen = {}
        for name in ("token_column", "tag_column"):
            column = getattr(self._layout, name)
            if column is None:
                continue
            if not -width <= column < width:
                raise UserError(
                    f"{self._path}, row {row}: has {_columns(width)} "
                    f"({excerpt(line)}), so {name}={column} is not there; "
                    f"columns are counted from 0, or from -1 backwards."
                )
            chosen[name] = column % width
        if len(set(chosen.values())) < len(chosen):
            raise UserError(
                f"{self._path}, row {row}: has {_columns(width)} "
                f"({excerpt(line)}), so token_column and tag_column are the "
                "same; word and tag stand in two, divided by blanks or tabs."
            )

    def _check_tag(self, row: int, tag: str) -> None:
        if not is_tag(tag):
            raise UserError(
                f"{self._path}, row {row}: {excerpt(tag)} is no tag; O is one, "
                "and B- or I- with a type, such as B-PER. Choose another "
                "column with `tag_column`."
            )
        self._known_tags.add(tag)


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def write_tag_predictions(
    path: str, data: TaggedWords, predictions: Sequence[str]
) -> None:
    """Writes a prediction file.

    Args:
      path: where to.
      data: the W words.
      predictions: their tags, in the order of the words; written as they are.
    """
    columns = [data.words, predictions]
    if data.given_tags is not None:
        columns.insert(1, data.given_tags)
    lines = map(data.separator.join, zip(*columns, strict=True))
    text = "".join(
        "".join(f"{line}\n" for line in itertools.islice(lines, count)) + "\n"
        for count in np.diff(data.sentence_starts).tolist()
    )
    write_text(path, text)


def read_tag_predictions(
    path: str,
    references: TaggedWords,
    layout: ConllLayout = WORD_FIRST_TAG_LAST,
) -> list[str]:
    """Reads the predictions for the words of a file.

    Args:
      path: a CoNLL-style file with the same words; the tag that `layout`
        names, the last one by default, is the predicted one.
      references: the words.
      layout: the columns of the prediction file.

    Returns:
      The predicted tags as the file has them, in the order of the words.

    Raises:
      UserError: the file is broken, or has other words or sentences.
    """
    found = read_conll(path, layout)
    for number, (word, wanted) in enumerate(
        zip(found.words, references.words, strict=False)
    ):
        if word != wanted:
            raise UserError(
                f"{path}, row {found.rows[number]}: predicts {excerpt(word)} "
                f"where {references.path}, row {references.rows[number]}, has "
                f"{excerpt(wanted)}; predict every word, in its order."
            )
    if len(found.words) != len(references.words):
        raise UserError(
            f"{path}: has {len(found.words)} words and {references.path} has "
            f"{len(references.words)}; predict every word, in its order."
        )
    for end, wanted in zip(
        found.sentence_starts, references.sentence_starts, strict=False
    ):
        if end != wanted:
            raise UserError(
                f"{path}, row {found.rows[min(end, wanted) - 1]}: "
                f"{'ends' if end < wanted else 'does not end'} a sentence, "
                f"unlike {references.path}, row "
                f"{references.rows[min(end, wanted) - 1]}; a blank line ends "
                "one."
            )
    return found.known_given_tags


def score_tag_file(
    references: str,
    predictions: str,
    layout: ConllLayout = WORD_FIRST_TAG_LAST,
    prediction_layout: ConllLayout = WORD_FIRST_TAG_LAST,
) -> EntityScores:
    """Scores a prediction file against a file with the right tags.

    Tags are compared as the files have them, which is of no matter to entities;
    a line tells where the files are of different schemes.

    Args:
      references: path of a CoNLL-style file.
      predictions: path of one with the same words.
      layout: the columns of the references.
      prediction_layout: the columns of the predictions.

    Raises:
      UserError: a file is broken, or their words or sentences differ.
    """
    right = read_conll(references, layout)
    found = read_tag_predictions(predictions, right, prediction_layout)
    scheme = scheme_of(found, right.sentence_starts)
    if scheme != right.scheme and set(found) != {OUTSIDE}:
        notice(
            f"{predictions}: has tags in {scheme} and {references} in "
            f"{right.scheme}; accuracy compares them as they are, like "
            "conlleval, so put them in one scheme. Other scores are the same."
        )
    return score_entities(right.known_given_tags, found, right.sentence_starts)
