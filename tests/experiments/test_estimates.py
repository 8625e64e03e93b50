"""Estimated sizes of splits, beside ones computed by hand."""

import dataclasses

import pytest

from bert_tf.experiments.estimates import split_size
from bert_tf.families.data.examples import Example
from bert_tf.families.multiple_choice.files import ChoiceExample
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.families.recipe import (
    ChoiceRecipe,
    SentenceRecipe,
    SpanRecipe,
    TagRecipe,
)
from bert_tf.families.token_classification.conll_files import read_conll


def test_a_token_is_four_characters():
    rows = [
        Example("a" * 40, None, "x", "0", 1),
        Example("a" * 30, "b" * 30, "x", "1", 2),
        Example("a" * 4000, None, "x", "2", 3),
    ]
    size = split_size(rows, SentenceRecipe(max_seq_length=64))
    assert size == (3, 13 + 18 + 64)
    choice = ChoiceExample("a" * 40, "b" * 8, ("c" * 4, "d" * 12), 0, "", 1)
    assert split_size([choice], ChoiceRecipe()) == (2, 16 + 18)


def test_a_question_is_read_in_windows():
    question = Question("1", "", "q" * 40, "c" * 1200, (), False)
    recipe = SpanRecipe(max_seq_length=113, doc_stride=50, max_query_length=64)
    # 300 tokens through windows of 100, at 0, 50, 100, 150 and 200.
    assert split_size([question], recipe) == (5, 5 * 113)
    short = dataclasses.replace(recipe, max_seq_length=384)
    assert split_size([question], short) == (1, 313)


def test_words_are_read_alone_or_amid_their_document(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Anna B-PER\nsings O\n\nYes O\n")
    recipe = TagRecipe(max_seq_length=32, context="sentence")
    words = read_conll(str(path), recipe, True)
    assert split_size(words, recipe) == (2, pytest.approx(1 + 2 + 1 + 4))
    amid = dataclasses.replace(recipe, context="document")
    assert split_size(words, amid) == (2, 64)
