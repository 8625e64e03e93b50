"""Tagged words in memory as a file; see `bert_tf.finetune`."""

from typing import Any

from bert_tf.errors import UserError, excerpt
from bert_tf.families.in_memory import (
    A_TABLE,
    DataFile,
    is_pair,
    other_form,
    stored_table,
)
from bert_tf.tables.memory import is_list, is_table
from bert_tf.text.given_texts import text_parts


def tagged_words(data: Any, name: str) -> DataFile:
    """Converts (sentences, tags), or a table of them, to a file.

    Raises:
      UserError: data of another form; `name` is that of the argument.
    """
    if is_table(data):
        return stored_table(data, name)
    if not is_pair(data):
        raise other_form(data, name, "(sentences, tags)", A_TABLE)
    sentences, tags = data
    if not len(sentences) == len(tags) > 0:
        raise UserError(
            f"{name}: has {len(sentences)} sentences and {len(tags)} lists of "
            "tags; give as many of each, at least one."
        )
    text = ""
    for number, both in enumerate(zip(sentences, tags, strict=True)):
        place = f"{name}: sentences[{number}]"
        if not all(map(is_list, both)):
            raise UserError(f"{place} and its tags are no lists; give words.")
        words, its_tags = map(list, both)
        if not len(words) == len(its_tags) > 0:
            raise UserError(
                f"{place} has {len(words)} words and {len(its_tags)} tags; "
                "give each word one."
            )
        for cell in (*words, *its_tags):
            parts = cell.splitlines() if isinstance(cell, str) else []
            if parts != [cell] or "\t" in cell or not cell.strip():
                raise UserError(
                    f"{place} holds {excerpt(cell)}; words and tags are "
                    "strings of one line, without tabs."
                )
            text_parts(cell, place)
        lines = map("\t".join, zip(words, its_tags, strict=True))
        text += "".join(f"{line}\n" for line in lines) + "\n"
    return DataFile("txt", text)
