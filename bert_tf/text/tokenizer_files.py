"""The JSON files beside a vocabulary, as each family of models writes them."""

import dataclasses
import pathlib
from typing import Any

from bert_tf.errors import UserError
from bert_tf.recipe import read_json_object

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is looked for in text before words are, as Hugging Face's.

    Attributes:
      content: the token.
      single_word: whether it must not stand inside a word.
      lstrip: whether it takes the blanks before it.
      rstrip: whether it takes the blanks behind it.
      normalized: whether it is looked for in normalised text, by its own
        normalised form, rather than in the text as it is.
      special: what transformers calls a special token.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


class OtherRules(UserError):
    """A tokenizer whose rules are not those of BertTokenizer."""


@dataclasses.dataclass(frozen=True)
class JsonPart:
    """An object in a JSON file that knows where it is from.

    Attributes:
      source: the file and the keys that lead to the object, for errors.
      values: the object; empty where the file does not hold it.
    """

    source: str
    values: dict[str, Any]

    def part(self, key: str) -> "JsonPart":
        """The object at a key; empty where there is none."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise UserError(
                f"{self.source}: {key} is {value!r}; it takes an object."
            )
        return JsonPart(f"{self.source}: {key}", value)

    def flag(self, key: str) -> bool | None:
        """The boolean at a key, or None where it is missing or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise UserError(
                f"{self.source}: {key} is {value!r}; it takes true or false."
            )
        return value

    def refuse(self, key: str, wanted: str) -> OtherRules:
        """An error for a rule that the tokenizer here does not follow."""
        return OtherRules(
            f"{self.source}: {key} is {self.values[key]!r}, which "
            f"BertTokenizer cannot do; it takes {wanted}."
        )

    def expect(self, key: str, *allowed: Any) -> None:
        """Raises `UserError` unless a key is missing, null or as allowed."""
        value = self.values.get(key)
        if value is not None and value not in allowed:
            raise self.refuse(key, " or ".join(map(repr, allowed)))


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """What lies beside the vocabulary; empty parts where a file is missing.

    Attributes:
      config: tokenizer_config.json, ours or Hugging Face's.
      hugging_face: tokenizer.json of Hugging Face.
      keras_hub: the arguments in tokenizer.json of KerasHub.
    """

    config: JsonPart
    hugging_face: JsonPart
    keras_hub: JsonPart


def read_tokenizer_files(folder: str | pathlib.Path) -> TokenizerFiles:
    """Reads the JSON files of a model folder's tokenizer.

    Raises:
      UserError: a file is no JSON object, or of neither family.
    """
    folder = pathlib.Path(folder)
    config = _read(folder / TOKENIZER_CONFIG_FILE)
    found = _read(folder / TOKENIZER_FILE)
    # Both families use the name; Keras writes the class of an object.
    empty = JsonPart(found.source, {})
    if "class_name" in found.values:
        if found.values["class_name"] != "BertTokenizer":
            raise found.refuse("class_name", "'BertTokenizer'")
        return TokenizerFiles(config, empty, found.part("config"))
    if found.values and "model" not in found.values:
        raise UserError(
            f"{found.source}: holds neither a model, as Hugging Face writes "
            "it, nor a class_name, as KerasHub does."
        )
    return TokenizerFiles(config, found, empty)


def _read(path: pathlib.Path) -> JsonPart:
    values = read_json_object(path) if path.exists() else {}
    return JsonPart(str(path), values)
