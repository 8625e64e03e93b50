"""Whether a folder's text is lower-cased: its tokenizer_config.json."""

import json
import pathlib

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.recipe import read_json_object
from bert_tf.text.vocabulary import Vocabulary

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"


def read_lower_case(folder: str | pathlib.Path, vocabulary: Vocabulary) -> bool:
    """Whether a model folder's text is lower-cased.

    `do_lower_case` of its tokenizer_config.json says so; without that, a
    vocabulary with upper-case letters means no.

    Raises:
      UserError: the file is no JSON object, or do_lower_case no boolean.
    """
    path = pathlib.Path(folder) / TOKENIZER_CONFIG_FILE
    if not path.exists():
        return not vocabulary.looks_cased()
    values = read_json_object(path)
    value = values.get("do_lower_case", not vocabulary.looks_cased())
    if not isinstance(value, bool):
        raise UserError(
            f"{path}: do_lower_case is {value!r}; it takes true or false."
        )
    return value


def write_lower_case(folder: str | pathlib.Path, lower_case: bool) -> None:
    """Writes the tokenizer_config.json of a model folder."""
    write_text(
        pathlib.Path(folder) / TOKENIZER_CONFIG_FILE,
        json.dumps({"do_lower_case": lower_case}) + "\n",
    )
