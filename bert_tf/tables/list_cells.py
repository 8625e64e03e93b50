"""Lists and objects that other programs have written as the text of a cell."""

import ast
import json
import re

from bert_tf.tables.delimited import Cell

# What NumPy prints of an array has blanks for commas.
_ITEM = re.compile(
    r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"\[\](),]+)\s*"""
)


def entries_of(cell: Cell) -> tuple[str, ...] | None:
    """Returns the entries of a list or of its text; None for other cells."""
    return list_in(cell) if isinstance(cell, str) else cell


def list_in(text: str) -> tuple[str, ...] | None:
    """Returns the texts and numbers of a list in JSON, Python or NumPy's form.

    Nothing is evaluated: entries are texts, numbers or truth values, as they
    are spelled.

    Args:
      text: such as '["a", "b"]', "['a', 'b']", "('a',)", "[0 1 0]" or "[]".

    Returns:
      The entries; None if the text is no such list.
    """
    inner = text.strip()
    if inner[:1] + inner[-1:] not in ("[]", "()"):
        return None
    is_tuple, inner = inner[0] == "(", inner[1:-1].strip()
    separated = "," in re.sub(_ITEM, "", inner)
    if is_tuple and not separated:
        return None
    found: list[str] = []
    position = 0
    while position < len(inner):
        if found and separated:
            if inner[position] != ",":
                return None
            position += 1
            if position == len(inner):
                # (a,) and [a,].
                break
        match = _ITEM.match(inner, position)
        if match is None:
            return None
        entry = _entry(match[1])
        if entry is None:
            return None
        found.append(entry)
        position = match.end()
    return tuple(found)


def object_in(text: str) -> dict[str, tuple[str, ...]] | None:
    """Returns the lists of an object in JSON or Python's form, by key.

    Args:
      text: such as "{'text': array(['x'], dtype=object), 'answer_start': [5]}".

    Returns:
      The entries of each list; None if the text is no object of lists.
    """
    if text[:1] + text[-1:] != "{}":
        return None
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(node, ast.Dict):
        return None
    found = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(value, ast.Call) and value.args:
            # What NumPy shows of an array.
            value = value.args[0]
        entries = list_in(ast.get_source_segment(text, value) or "")
        if not isinstance(key, ast.Constant) or entries is None:
            return None
        found[str(key.value)] = entries
    return found


def _entry(item: str) -> str | None:
    """Returns a quoted text, or a number or truth value as it is spelled."""
    if item[0] in "'\"":
        try:
            parsed = json.loads(item) if item[0] == '"' else None
        except ValueError:
            parsed = None
        # Python's escapes are others than JSON's.
        return parsed if parsed is not None else _python_text(item)
    if item in ("True", "False", "true", "false"):
        return item.lower()
    try:
        float(item)
    except ValueError:
        return None
    return item


def _python_text(item: str) -> str | None:
    try:
        return str(ast.literal_eval(item))
    except (ValueError, SyntaxError):
        return None
