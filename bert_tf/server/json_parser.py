"""Parses the JSON of requests as RapidJSON does for TF Serving."""

import json
import math
import re

from bert_tf.server.status import invalid

_SHOWN = 256
_TOO_BIG = "JSON Parse error: Number too big to be stored in double."


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise invalid(_TOO_BIG)
    return value


def _first_of_each(pairs: list[tuple[str, object]]) -> dict:
    """Returns an object with the first value of repeated keys."""
    content = dict(pairs)
    return content if len(content) == len(pairs) else dict(reversed(pairs))


def _integer(text: str) -> int:
    return int(text)


_DECODER = json.JSONDecoder(
    parse_float=_finite, object_pairs_hook=_first_of_each
)
# Calls Python for each number, so that other threads can run, which the decoder
# in C would block until the end of the text.
_LONG_DECODER = json.JSONDecoder(
    parse_float=_finite, parse_int=_integer, object_pairs_hook=_first_of_each
)
_LONG = 1 << 20
# Strings, brackets, and the numbers that RapidJSON reads and Python does not.
_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[][{}]|-NaN|Inf(?:inity)?', re.DOTALL
)
_NUMBERS = {"-NaN": "NaN", "Inf": "Infinity"}
_MAX_DEPTH = 128
_TRAILING_COMMA = "Illegal trailing comma before end of"
# RapidJSON's messages, which clients may look for.
_ERRORS = {
    "Expecting value": "Invalid value.",
    "Expecting property name": "Missing a name for object member.",
    "Expecting ':'": "Missing a colon after a name of object member.",
    "Unterminated string": "Missing a closing quotation mark in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX": "Incorrect hex digit after \\u escape in string.",
    "Invalid control character": "Invalid encoding in string.",
    # From Python 3.13 on.
    f"{_TRAILING_COMMA} array": "Invalid value.",
    f"{_TRAILING_COMMA} object": "Missing a name for object member.",
}


def parse(body: bytes) -> dict:
    """Parses the JSON object of a request's body.

    Text after the object is ignored, as in TF Serving. Unlike in TF Serving,
    invalid UTF-8 is an error.
    """
    try:
        text = body.decode("utf-8-sig").lstrip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise invalid(
            "JSON Parse error: Invalid UTF-8 encoding in string at offset: "
            f"{error.start}; bytes go into {{'b64': '...'}}"
        ) from error
    if not text:
        raise invalid("JSON Parse error: The document is empty")
    try:
        try:
            decoder = _DECODER if len(text) < _LONG else _LONG_DECODER
            value, _ = decoder.raw_decode(text)
        except (json.JSONDecodeError, RecursionError):
            value, _ = _DECODER.raw_decode(_normalized(text))
    except json.JSONDecodeError as error:
        raise invalid(
            f"JSON Parse error: {_reason(error)} at offset: {_offset(error)}"
        ) from error
    except ValueError as error:  # An integer with thousands of digits.
        raise invalid(_TOO_BIG) from error
    if not isinstance(value, dict):
        raise invalid(f"JSON Value: {shown(value)} Is not object")
    return value


def _normalized(text: str) -> str:
    """Rewrites JSON that RapidJSON reads and Python does not.

    Inf becomes Infinity. Values nested too deeply for Python, and for any
    tensor, are checked and replaced by empty lists.
    """
    # The text since each multiple of the maximal depth.
    parts: list[list[str]] = [[]]
    depth, end = 0, 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _NUMBERS:
            parts[-1] += [text[end : found.start()], _NUMBERS[token]]
            end = found.end()
        elif token in "[{":
            depth += 1
            if depth % _MAX_DEPTH == 0:
                parts[-1].append(text[end : found.start()])
                parts.append([])
                end = found.start()
        elif token in "]}":
            if depth % _MAX_DEPTH == 0 and len(parts) > 1:
                inside = [*parts.pop(), text[end : found.end()]]
                _DECODER.decode("".join(inside))
                parts[-1].append("[]")
                end = found.end()
            depth -= 1
            if depth <= 0:
                break
    if len(parts) > 1:
        raise json.JSONDecodeError("Expecting ',' delimiter", text, len(text))
    return "".join([*parts[0], text[end:]])


def _offset(error: json.JSONDecodeError) -> int:
    """Returns the byte at which RapidJSON reports an error."""
    position = error.pos
    if error.msg.startswith(_TRAILING_COMMA):
        # Not at the comma, but at what follows it.
        after = error.doc[position + 1 :]
        position = len(error.doc) - len(after.lstrip(" \t\r\n"))
    return len(error.doc[:position].encode("utf-8", "replace"))


def _reason(error: json.JSONDecodeError) -> str:
    """Returns RapidJSON's message of an error."""
    for start, words in _ERRORS.items():
        if error.msg.startswith(start):
            return words
    within: list[str] = []
    for found in _TOKEN.finditer(error.doc, 0, error.pos):
        if found[0] in "[{":
            within.append(found[0])
        elif found[0] in "]}" and within:
            within.pop()
    if within and within[-1] == "{":
        return "Missing a comma or } after an object member."
    return "Missing a comma or ] after an array element."


def shown(value: object) -> str:
    """Returns a JSON value for an error message, truncated if long."""
    pieces, length = [], 0
    try:
        for piece in json.JSONEncoder().iterencode(value):
            pieces.append(piece)
            length += len(piece)
            if length >= _SHOWN:
                break
    except RecursionError:
        pass
    return "".join(pieces)[:_SHOWN]


def to_double(value: float) -> float:
    """Converts a JSON number to a double."""
    try:
        return float(value)
    except OverflowError as error:
        raise invalid(_TOO_BIG) from error
