"""Reads the files of a model folder's tokenizer in every family's layout."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_tf.errors import UserError, excerpt, first_few
from bert_tf.files import whole_text
from bert_tf.foreign_files import read_bytes
from bert_tf.progress import log_once
from bert_tf.recipe import check_kind, read_json_object
from bert_tf.sources import is_static_embedding, read_transformer_settings
from bert_tf.text.token_table import SPECIAL_TOKENS, UNFRAMED, SpecialTokens
from bert_tf.text.vocabulary import (
    CONTINUATION,
    VOCABULARY_FILE,
    Vocabulary,
    read_entries,
)

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"
KERAS_HUB_ASSETS = "assets/tokenizer"
KERAS_HUB_FILE = f"{KERAS_HUB_ASSETS}/vocabulary.txt"
# In encoders and preprocessing models of TensorFlow Hub.
VOCABULARY_ASSET = "assets/vocab.txt"
ADDED_TOKENS_FILE = "added_tokens.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
# Tokenizers of Hugging Face and of KerasHub with the same rules and arguments.
BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
# Tokenizers of KerasHub.
_HUB_CLASSES = (
    *(*BERT_CLASSES, "RobertaTokenizer"),
    *("XLMRobertaTokenizer", "AlbertTokenizer"),
)
# The valid lengths of rows: at least [CLS], a token and [SEP].
_SHORTEST_ROW, _LONGEST_ROW = 3, 1_000_000
_LARGEST_ID = 10**15
# Characters of a key in errors.
_MAX_KEY = 60


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is recognized before text is split, as in Hugging Face's.

    Attributes:
      content: the token.
      single_word: whether it does not match inside a word.
      lstrip: whether it includes the blanks before it.
      rstrip: whether it includes the blanks after it.
      normalized: whether its normalized form matches normalized text, instead
        of the token the text.
      special: whether transformers treats it as a special token.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


class OtherRules(UserError):
    """The rules of a tokenizer are not supported."""


@dataclasses.dataclass(frozen=True)
class JsonPart:
    """An object in a JSON file, with its location for errors.

    Attributes:
      source: the file and the keys of the object.
      values: the object; empty if the file does not contain it.
    """

    source: str
    values: dict[str, Any]

    def get(self, key: str, kind: Any) -> Any:
        """The value of a type at a key, or None if it is missing or null."""
        value = self.values.get(key)
        return None if value is None else self.require(key, kind)

    def require(self, key: str, kind: Any) -> Any:
        """The value of a type at a key.

        Raises:
          UserError: it is missing, null or of another type.
        """
        shown = key[:_MAX_KEY]
        return check_kind(shown, kind, self.values.get(key), self.source)

    def part(self, key: str) -> "JsonPart":
        """The object at a key; empty if there is none."""
        place = f"{self.source}: {key[:_MAX_KEY]}"
        return JsonPart(place, self.get(key, dict) or {})

    def parts(self, key: str) -> list["JsonPart"]:
        """The objects in the list at a key; empty if there is none."""
        listed = self.get(key, tuple[dict, ...]) or ()
        return [JsonPart(f"{self.source}: {key}", each) for each in listed]

    def flag(self, key: str) -> bool | None:
        """The boolean at a key, or None if it is missing or null."""
        return self.get(key, bool)

    def refuse(self, key: str, allowed: str) -> OtherRules:
        """An error for a rule that is not supported."""
        return OtherRules(
            f"{self.source}: {key} is {excerpt(self.values[key])}, which "
            f"BertTokenizer does not support; it takes {allowed}."
        )

    def expect(self, key: str, *allowed: Any) -> None:
        """Raises `UserError` unless a key is missing, null or allowed."""
        value = self.values.get(key)
        if value is not None and value not in allowed:
            raise self.refuse(key, " or ".join(map(repr, allowed)))


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The JSON files next to a vocabulary; empty if a file is missing.

    Attributes:
      folder: the model folder.
      special: the special tokens.
      config: tokenizer_config.json, ours or Hugging Face's.
      hugging_face: tokenizer.json of Hugging Face.
      keras_hub: the arguments in tokenizer.json of KerasHub.
      class_name: the class that the files name; empty if they name none.
    """

    folder: pathlib.Path
    special: SpecialTokens
    config: JsonPart
    hugging_face: JsonPart
    keras_hub: JsonPart
    class_name: str


def read_tokenizer_files(folder: str | pathlib.Path) -> TokenizerFiles:
    """Reads the JSON files of a model folder's tokenizer.

    Raises:
      UserError: a file is no JSON object, or of neither family.
    """
    folder = pathlib.Path(folder)
    special = read_special_tokens(folder)
    config = read_json_part(folder / TOKENIZER_CONFIG_FILE)
    fast = read_json_part(folder / TOKENIZER_FILE)
    named = str(config.values.get("tokenizer_class") or "")
    # Both families use the name; KerasHub's file has a class_name.
    empty = JsonPart(fast.source, {})
    if "class_name" in fast.values:
        fast.expect("class_name", *_HUB_CLASSES)
        hub = fast.part("config")
        named = str(fast.values["class_name"])
        return TokenizerFiles(folder, special, config, empty, hub, named)
    if fast.values and "model" not in fast.values:
        raise UserError(
            f"{fast.source}: holds neither a model, as Hugging Face's files, "
            "nor a class_name, as KerasHub's."
        )
    return TokenizerFiles(folder, special, config, fast, empty, named)


def read_json_part(path: pathlib.Path) -> JsonPart:
    """Reads a JSON file that holds an object; empty if it is missing."""
    return JsonPart(str(path), read_json_object(path, missing_ok=True))


def model_type(folder: pathlib.Path) -> Any:
    """The type of the model in Hugging Face's tokenizer.json, or None."""
    file = read_json_part(folder / TOKENIZER_FILE)
    return file.part("model").values.get("type")


def describe_tokenizer(folder: pathlib.Path) -> str:
    """The kind of a folder's tokenizer and its file; empty if there is none."""
    kinds = {
        VOCABULARY_FILE: "WordPiece",
        "spiece.model": "Unigram",
        "sentencepiece.bpe.model": "Unigram",
        "vocab.json": "BPE",
        TOKENIZER_FILE: model_type(folder),
    }
    return next(
        (
            f"{excerpt(kind)} ({name})"
            for name, kind in kinds.items()
            if kind is not None and (folder / name).is_file()
        ),
        "",
    )


def named_special_tokens(folder: pathlib.Path) -> SpecialTokens:
    """Reads the special tokens that the files of a model folder name.

    tokenizer_config.json, or in older folders special_tokens_map.json, names
    them as strings or as objects with a content.

    Returns:
      The tokens; None for those that no file names.

    Raises:
      UserError: a file is damaged, or a token is no text.
    """
    tokens = []
    config = read_json_part(folder / TOKENIZER_CONFIG_FILE)
    older = read_json_part(folder / SPECIAL_TOKENS_FILE).values
    for key in SPECIAL_TOKENS.to_dict():
        token = config.values.get(key, older.get(key))
        if isinstance(token, dict):
            token = token.get("content")
        is_line = isinstance(token, str) and len(token.splitlines()) == 1
        if token is not None and not is_line:
            raise UserError(
                f"{config.source}: {key} is {excerpt(token)}; it takes a token."
            )
        whole_text(token or "", f"{config.source}: {key}")
        tokens.append(token)
    return SpecialTokens(*tokens)


def read_special_tokens(folder: pathlib.Path) -> SpecialTokens:
    """Reads the special tokens of a model folder; the default is BERT's.

    A token that a file names as null does not exist, as in the files of an
    unframed tokenizer.
    """
    usual = UNFRAMED if is_static_embedding(folder) else SPECIAL_TOKENS
    stated = read_json_part(folder / TOKENIZER_CONFIG_FILE).values
    named = named_special_tokens(folder).to_dict()
    return SpecialTokens(
        *(
            default if token is None and key not in stated else token
            for (key, token), default in zip(named.items(), usual, strict=True)
        )
    )


def refuse_other_case(
    lower_case: bool | None, stated: bool | None, source: object, fact: str
) -> None:
    """Raises `UserError` for a `lower_case` that contradicts a model.

    Args:
      lower_case: what a user asks for; None takes what the model states.
      stated: whether the model lower-cases; None if it does not state it.
      source: the file or folder that states it.
      fact: what it states, in words.
    """
    if None not in (lower_case, stated) and lower_case != stated:
        raise UserError(f"{source}: {fact}; pass `lower_case`={stated}.")


def read_max_length(folder: pathlib.Path) -> int | None:
    """Reads the longest row that a tokenizer is configured for, or None.

    sentence-transformers truncates to max_seq_length of its settings, and
    transformers to model_max_length of tokenizer_config.json, by default 1e30;
    max_length there is that of the training.
    """
    config = read_json_part(folder / TOKENIZER_CONFIG_FILE).values
    _, settings = read_transformer_settings(folder)
    for length in (
        settings.get("max_seq_length"),
        config.get("model_max_length"),
        config.get("max_length"),
    ):
        if (
            isinstance(length, int | float)
            and not isinstance(length, bool)
            and _SHORTEST_ROW <= length <= _LONGEST_ROW
            and length == int(length)
        ):
            return int(length)
    return None


def read_vocabulary(
    folder: str | pathlib.Path, notify: bool = True
) -> Vocabulary | None:
    """Reads the vocabulary of a model folder; None if it has none.

    It is the first of vocab.txt, KerasHub's assets/tokenizer/vocabulary.txt, a
    SavedModel's assets/vocab.txt and Hugging Face's tokenizer.json. Added
    tokens of Hugging Face (added_tokens.json, tokenizer_config.json,
    tokenizer.json) are appended.

    Args:
      folder: the model folder.
      notify: whether repeated tokens and ids without a token are logged.

    Raises:
      UserError: a file is damaged or no WordPiece vocabulary, two files
        disagree, or ids are missing.
    """
    folder = pathlib.Path(folder)
    files = read_tokenizer_files(folder)
    special = files.special
    for name in (VOCABULARY_FILE, KERAS_HUB_FILE, VOCABULARY_ASSET):
        if (folder / name).exists():
            tokens = dict(enumerate(read_entries(folder / name)))
            source, row = str(folder / name), "line"
            model = files.hugging_face.part("model")
            for number, token in tokens_by_id(model.part("vocab")).items():
                if tokens.get(number, token).strip() != token.strip():
                    raise UserError(
                        f"{source}: token {number} is "
                        f"{excerpt(tokens[number])}, but {excerpt(token)} in "
                        f"{model.source}; the two belong to different models."
                    )
            break
    else:
        if not files.hugging_face.values:
            return None
        model = files.hugging_face.part("model")
        model.expect("type", "WordPiece")
        model.expect("unk_token", special.unk)
        model.expect("continuing_subword_prefix", CONTINUATION)
        vocab, row = model.part("vocab"), "entry"
        tokens, source = tokens_by_id(vocab), vocab.source
        if not tokens:
            raise UserError(f"{source}: holds no tokens.")
    last = max(tokens)
    ids = {tokens[number].strip(): number for number in sorted(tokens)}
    for added, number, place in added_entries(files):
        token = added.content
        if number not in tokens:
            _refuse_white_space(token, place)
        if tokens.setdefault(number, token).strip() != token:
            raise UserError(
                f"{place}: token {number} is {excerpt(token)}, but "
                f"{excerpt(tokens[number])} in {source}."
            )
        if ids.setdefault(token, number) != number:
            raise UserError(
                f"{place}: the id of {excerpt(token)} is {number}, but "
                f"{ids[token]} in {source}."
            )
    # If most ids are missing, the file is damaged.
    possible = range(last if last < 2 * len(tokens) else 0)
    holes = [number for number in possible if number not in tokens]
    if holes:
        tokens |= dict.fromkeys(holes, "")
        if notify:
            missing_ids = first_few(list(map(str, holes)))
            log_once(
                f"{source}: no token has the id {missing_ids}, for example "
                "because a token is repeated; these ids are never used"
            )
    missing = next((i for i in range(len(tokens)) if i not in tokens), None)
    if missing is not None:
        raise UserError(
            f"{source}: no token has the id {missing}, but "
            f"{excerpt(tokens[max(tokens)])} has {max(tokens)}; the ids of "
            "added tokens must follow those of the vocabulary."
        )
    if special != SPECIAL_TOKENS:
        source += f", with the special tokens of {files.config.source}"
    in_order = [tokens[number] for number in range(len(tokens))]
    return Vocabulary(in_order, source, row, special, notify)


def added_tokens(files: TokenizerFiles) -> tuple[AddedToken, ...]:
    """The added tokens of a model, special ones first, by id.

    Without the five special tokens, which Hugging Face's files also name.
    Raises `UserError` if a file is damaged.
    """
    added: dict[str, tuple[int, AddedToken]] = {}
    for token, number, _ in added_entries(files):
        if token.content not in files.special:
            added.setdefault(token.content, (number, token))
    in_order = sorted(
        added.values(), key=lambda pair: (not pair[1].special, pair[0])
    )
    return tuple(token for _, token in in_order)


def _refuse_white_space(token: str, place: str) -> None:
    """Refuses a token that a line of a vocab.txt cannot represent."""
    if token != token.strip():
        raise UserError(
            f"{place}: token {excerpt(token)} begins or ends with white "
            f"space, which a token of {VOCABULARY_FILE} cannot."
        )


def tokens_by_id(vocab: JsonPart) -> dict[int, str]:
    """Reads the tokens by their ids from an object with the id of each."""
    tokens: dict[int, str] = {}
    for token, number in vocab.values.items():
        _check_id(number, token, vocab.source)
        if number in tokens:
            raise UserError(
                f"{vocab.source}: {excerpt(tokens[number])} and "
                f"{excerpt(token)} have the same id {number}."
            )
        tokens[number] = token
    return tokens


def added_entries(
    files: TokenizerFiles,
) -> Iterator[tuple[AddedToken, int, str]]:
    """Yields tokens, ids and locations from all files with added tokens.

    If files disagree about a token, the first one counts.
    """
    decoder = files.config.part("added_tokens_decoder")
    for number in decoder.values:
        # Python refuses to convert thousands of digits.
        is_id = number.isdecimal() and len(number) < 20
        key = int(number) if is_id else number
        yield _entry(decoder.part(number), key, decoder.source)
    for entry in files.hugging_face.parts("added_tokens"):
        yield _entry(entry, entry.values.get("id"), entry.source)
    older = read_json_part(files.folder / ADDED_TOKENS_FILE)
    for token, number in older.values.items():
        entry = JsonPart(older.source, {"content": token})
        yield _entry(entry, number, older.source)


def _entry(
    entry: JsonPart, number: Any, place: str
) -> tuple[AddedToken, int, str]:
    token = entry.values.get("content")
    if not isinstance(token, str):
        raise UserError(
            f"{place}: token {excerpt(number)} is {excerpt(token)}, no string."
        )
    _check_id(number, token, place)
    flags = ("single_word", "lstrip", "rstrip", "special")
    values = {name: bool(entry.flag(name)) for name in flags}
    normalized = entry.flag("normalized")
    if normalized is None:
        normalized = not values["special"]
    return AddedToken(token, normalized=normalized, **values), number, place


def _check_id(number: Any, token: str, place: str) -> None:
    """Refuses ids that are none, and tokens that cannot be encoded."""
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= _LARGEST_ID:
        raise UserError(
            f"{place}: the id of {excerpt(token)} is {excerpt(number)}; it "
            f"takes a whole number from 0 to {_LARGEST_ID:,}."
        )
    whole_text(token, f"{place}: token {number}")


class TemplatePiece(NamedTuple):
    """A piece of a row in a TemplateProcessing of tokenizer.json.

    Attributes:
      text: the name of a text, A or B; empty for special tokens.
      tokens: the special tokens; empty for a text.
      segment: the segment.
    """

    text: str
    tokens: tuple[str, ...]
    segment: int


def pair_template(processor: JsonPart) -> list[TemplatePiece]:
    """Reads how a TemplateProcessing frames two texts."""
    names = processor.part("special_tokens")
    pieces = []
    for part in processor.parts("pair"):
        is_text = "Sequence" in part.values
        piece = part.part("Sequence" if is_text else "SpecialToken")
        name = piece.require("id", str)
        tokens = names.part(name).get("tokens", tuple[str, ...]) or (name,)
        segment = piece.get("type_id", int) or 0
        text, tokens = (name, ()) if is_text else ("", tokens)
        pieces.append(TemplatePiece(text, tokens, segment))
    return pieces


# tf-models-official 2.20, official/nlp/tools/export_tfhub_lib.py: a variable of
# encoders; the graphs of preprocessing models contain the tokenizer.
_SAVED_MODEL = "saved_model.pb"
_LOWER_CASE_KEY = "do_lower_case"


def lower_case_of_saved_model(folder: pathlib.Path) -> bool | None:
    """Whether a SavedModel of TensorFlow Hub lower-cases; None if unknown."""
    if not (folder / _SAVED_MODEL).is_file():
        return None
    prefix = folder / "variables" / "variables"
    index = prefix.with_suffix(".index")
    if index.is_file() and _LOWER_CASE_KEY.encode() in read_bytes(index):
        import tensorflow as tf

        try:
            reader = tf.train.load_checkpoint(str(prefix))
            key = f"{_LOWER_CASE_KEY}/.ATTRIBUTES/VARIABLE_VALUE"
            return bool(reader.get_tensor(key))
        except (tf.errors.OpError, RuntimeError, IndexError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{index}: damaged checkpoint ({reason})."
            ) from None
    # The operations of tensorflow_text's BertTokenizer.
    graphs = read_bytes(folder / _SAVED_MODEL)
    if b"CaseFoldUTF8" in graphs:
        return True
    return False if b"WordpieceTokenize" in graphs else None
