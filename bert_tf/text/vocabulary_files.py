"""The vocabulary of a model folder of any family."""

import pathlib
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import UserError
from bert_tf.recipe import read_json_object
from bert_tf.text.tokenizer_files import (
    TOKENIZER_FILE,
    AddedToken,
    JsonPart,
    TokenizerFiles,
    read_tokenizer_files,
)
from bert_tf.text.vocabulary import (
    CONTINUATION,
    SPECIAL_TOKENS,
    UNK,
    VOCABULARY_FILE,
    Vocabulary,
)

KERAS_HUB_FILE = "assets/tokenizer/vocabulary.txt"
ADDED_TOKENS_FILE = "added_tokens.json"


def read_vocabulary(folder: str | pathlib.Path) -> Vocabulary | None:
    """The vocabulary of a model folder, or None where it holds none.

    It is in vocab.txt, in KerasHub's assets/tokenizer/vocabulary.txt or in
    Hugging Face's tokenizer.json, looked for in this order. Tokens that were
    added to a model of Hugging Face (added_tokens.json, tokenizer_config.json,
    tokenizer.json) come behind.

    Raises:
      UserError: a file is damaged or no vocabulary of WordPiece tokens, two
        of them disagree, or ids are left out.
    """
    return _read(pathlib.Path(folder))


def added_tokens(folder: str | pathlib.Path) -> tuple[AddedToken, ...]:
    """The tokens that were added to a model, special ones first, by id.

    BERT's own special tokens, which Hugging Face's files name too, are left
    out.

    Raises:
      UserError: a file is damaged.
    """
    folder = pathlib.Path(folder)
    found: dict[str, tuple[int, AddedToken]] = {}
    for token, number, _ in _added(folder, read_tokenizer_files(folder)):
        if token.content not in SPECIAL_TOKENS:
            found.setdefault(token.content, (number, token))
    in_order = sorted(
        found.values(), key=lambda pair: (not pair[1].special, pair[0])
    )
    return tuple(token for _, token in in_order)


def _read(folder: pathlib.Path) -> Vocabulary | None:
    files = read_tokenizer_files(folder)
    for name in (VOCABULARY_FILE, KERAS_HUB_FILE):
        if (folder / name).exists():
            base = Vocabulary.from_file(folder / name)
            tokens, source = dict(enumerate(base.tokens)), str(folder / name)
            _check_same(tokens, source, files.hugging_face.part("model"))
            break
    else:
        if not files.hugging_face.values:
            return None
        tokens, source = _wordpiece(files.hugging_face.part("model"))
    known = dict(tokens)
    for added, number, place in _added(folder, files):
        token = added.content
        if tokens.setdefault(number, token) != token:
            raise UserError(
                f"{place}: token {number} is {token!r}, but "
                f"{tokens[number]!r} in {source}."
            )
    missing = next((i for i in range(len(tokens)) if i not in tokens), None)
    if missing is not None:
        raise UserError(
            f"{source}: no token has the id {missing}, but "
            f"{tokens[max(tokens)]!r} has {max(tokens)}; the ids of tokens "
            "that were added must follow on those of the vocabulary."
        )
    for number in sorted(tokens.keys() - known.keys()):
        _check_line(tokens[number], source)
    return Vocabulary([tokens[i] for i in range(len(tokens))], source)


def require_vocabulary(folder: str | pathlib.Path) -> Vocabulary:
    """The vocabulary of a model folder.

    Raises:
      UserError: the folder holds none; and as `read_vocabulary`.
    """
    vocabulary = read_vocabulary(folder)
    if vocabulary is None:
        raise UserError(
            f"{folder}: holds no vocabulary; looked for {VOCABULARY_FILE}, "
            f"{KERAS_HUB_FILE} and {TOKENIZER_FILE}."
        )
    return vocabulary


def _check_same(tokens: dict[int, str], source: str, model: JsonPart) -> None:
    """Refuses a tokenizer.json that gives a token another id."""
    for token, number in model.part("vocab").values.items():
        if tokens.get(number, token) != token:
            raise UserError(
                f"{source}: token {number} is {tokens[number]!r}, but "
                f"{token!r} in {model.source}; the two belong to different "
                "models."
            )


def _check_line(token: str, source: str) -> None:
    """Refuses what vocab.txt, a token a line, could not give back."""
    if token != token.strip() or "\n" in token:
        raise UserError(
            f"{source}: token {token!r} begins or ends with white space or "
            "holds a line feed, which no vocab.txt can hold."
        )


def _wordpiece(model: JsonPart) -> tuple[dict[int, str], str]:
    """The tokens by their ids in Hugging Face's tokenizer.json."""
    model.expect("type", "WordPiece")
    model.expect("unk_token", UNK)
    model.expect("continuing_subword_prefix", CONTINUATION)
    tokens: dict[int, str] = {}
    place = f"{model.source}: vocab"
    for token, number in model.part("vocab").values.items():
        _check_id(number, token, place)
        _check_line(token, place)
        if number in tokens:
            raise UserError(
                f"{place}: {tokens[number]!r} and {token!r} have the same id "
                f"{number}."
            )
        tokens[number] = token
    if not tokens:
        raise UserError(f"{place}: holds no tokens.")
    return tokens, place


def _added(
    folder: pathlib.Path, files: TokenizerFiles
) -> Iterator[tuple[AddedToken, int, str]]:
    """Tokens, ids and places in the files that name tokens by their ids.

    What the files say of a token is taken from the first.
    """
    decoder = files.config.part("added_tokens_decoder")
    for number in decoder.values:
        key = int(number) if number.isdecimal() else number
        yield _entry(decoder.part(number), key, decoder.source)
    listed = files.hugging_face.values.get("added_tokens") or []
    place = f"{files.hugging_face.source}: added_tokens"
    if not isinstance(listed, list):
        raise UserError(f"{place}: is {listed!r}; it takes a list.")
    for entry in listed:
        if not isinstance(entry, dict):
            raise UserError(f"{place}: holds {entry!r}; it takes objects.")
        yield _entry(JsonPart(place, entry), entry.get("id"), place)
    path = folder / ADDED_TOKENS_FILE
    if path.exists():
        for token, number in read_json_object(path).items():
            entry = JsonPart(str(path), {"content": token})
            yield _entry(entry, number, str(path))


def _entry(
    entry: JsonPart, number: Any, place: str
) -> tuple[AddedToken, int, str]:
    token = entry.values.get("content")
    if not isinstance(token, str):
        raise UserError(f"{place}: token {number} is {token!r}, no string.")
    _check_id(number, token, place)
    special = bool(entry.flag("special"))
    normalized = entry.flag("normalized")
    return (
        AddedToken(
            token,
            bool(entry.flag("single_word")),
            bool(entry.flag("lstrip")),
            bool(entry.flag("rstrip")),
            not special if normalized is None else normalized,
            special,
        ),
        number,
        place,
    )


def _check_id(number: Any, token: str, place: str) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UserError(
            f"{place}: the id of {token!r} is {number!r}; it takes a whole "
            "number from 0."
        )
