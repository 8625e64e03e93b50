"""Prediction files of taggers, which conlleval takes as they are.

A line has the word, its right tag as the data file has it, if that is known,
and the predicted tag, in the scheme of the data file and else in IOB2; a blank
line ends a sentence.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.table_formats import excerpt
from bert_tf.finetuning.tags.conll_file import (
    WORD_FIRST_TAG_LAST,
    ConllLayout,
    TaggedWords,
    read_conll,
)
from bert_tf.finetuning.tags.entity_metrics import EntityScores, score_entities
from bert_tf.finetuning.tags.tag_schemes import OUTSIDE, scheme_of
from bert_tf.progress import notice


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
