"""Own files, their settings and their errors, for tests."""

import pytest

from bert_tf.errors import UserError
from bert_tf.finetuning.recipe import UserTableRecipe


def recipe(**settings):
    return UserTableRecipe(**{"text_columns": "t", **settings})


def rows(tmp_path, text, name="train.tsv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def error_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)
