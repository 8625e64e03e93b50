"""Converts the arrays of a family's files to ours and back."""

import dataclasses
import math
import re
from collections.abc import Container, Mapping, Sequence

import numpy as np

from bert_tf.architectures.parts import (
    BILSTM,
    HEADS_ON_POOLER,
    LORA,
    POOLER,
    Shape,
    Shapes,
)
from bert_tf.checkpoints.layout import all_shapes, encoder_shapes, head_shapes
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, first_few, refuse_faults
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.progress import log_once

_HOW_TO_IGNORE = (
    " Arrays that are no part of the model are left out if `ignore` is a "
    "regular expression that matches in their names (bert-tf convert)."
)


def without_prefix(
    found: LazyArrays, words: Sequence[str], source: str
) -> LazyArrays:
    """Removes the prefix that a wrapper of the model adds to all names.

    DistributedDataParallel adds "module.", torch.compile "_orig_mod.", and
    other programs their own, perhaps not to further layers.

    Args:
      found: the arrays in the files.
      words: the possible names of the word table.
      source: the file or folder, for the log.
    """
    prefixes = {
        name.removesuffix(max(ends, key=len))
        for name in found
        if (ends := [word for word in words if name.endswith(word)])
    }
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    if not prefix.endswith((".", "/")):
        return found
    names = {name.removeprefix(prefix): name for name in found}
    if len(names) < len(found):
        return found
    log_once(
        f"{source}: the names of its arrays begin with {prefix!r}, which is "
        "left out."
    )
    return found.renamed(names)


@dataclasses.dataclass(frozen=True)
class Stored:
    """How a family stores one of our arrays.

    Attributes:
      name: its name in the family's files.
      shape: its shape there; None for the number of labels.
      transposed: whether the matrix is transposed. Any other difference of
        shapes is a reshape.
    """

    name: str
    shape: Shape
    transposed: bool = False


def stored_as_ours(config: BertConfig) -> dict[str, Stored]:
    """Returns the table of a family that stores every array as we do."""
    return {
        name: Stored(name, shape) for name, shape in all_shapes(config).items()
    }


def refuse_projection(
    config: BertConfig, name: str, found: Container[str], source: str
) -> None:
    """Raises `UserError` if embeddings as wide as the layers are projected.

    Args:
      config: the architecture.
      name: what the kernel of the projection would be called.
      found: the names of the arrays.
      source: the file or folder.
    """
    if config.embedding_size == config.hidden_size and name in found:
        raise UserError(
            f"{source}: the weights do not fit the configuration; they hold "
            f"{name}, but embeddings as wide as the layers, "
            f"{config.hidden_size}, are not projected here."
        )


def read_stored(
    config: BertConfig,
    table: Mapping[str, Stored],
    found: LazyArrays,
    ignored: Sequence[str],
    source: str,
    ignore: str = "",
) -> tuple[LazyArrays, tuple[str, ...]]:
    """Converts a family's arrays to ours and checks their names and shapes.

    Args:
      config: the architecture.
      table: how the family stores each array of the encoder and of its heads,
        by our name.
      found: the arrays in the family's files.
      ignored: regular expressions of whole names that are left out.
      source: the file or folder, for errors.
      ignore: the user's regular expression, searched in the names of further
        arrays to leave out; empty for none.

    Returns:
      Our float32 arrays, read at each access, and the names left out. Reading
      an array with NaN, infinite or integer values raises `UserError`.

    Raises:
      UserError: an array is missing, unexpected or of another shape, a head is
        incomplete, or `ignore` leaves out arrays of the model.
    """
    heads = head_shapes(config)
    present = {
        ours for ours, stored in table.items() if stored.name in found.shapes
    }
    required = set(encoder_shapes(config))
    for head, arrays in heads.items():
        if present & set(arrays) or head in (BILSTM, LORA):
            required |= set(arrays)
            if head in HEADS_ON_POOLER:
                required |= set(heads.get(POOLER, ()))
    names = {table[ours].name for ours in required if ours in table}
    by_user = {n for n in found.shapes if ignore and re.search(ignore, n)}
    if ignore and not by_user:
        log_once(f"{source}: `ignore`={ignore} matches no array.")
    if needed := sorted(by_user & names):
        raise UserError(
            f"`ignore`={ignore}: would leave out {first_few(needed)} of "
            f"{source}, which the model needs; give a regular expression of "
            "other names."
        )
    left_out = tuple(
        name
        for name in found.shapes
        if name not in names
        and (
            name in by_user
            or any(re.fullmatch(pattern, name) for pattern in ignored)
        )
    )
    _check(table, required, found.shapes, names | set(left_out), source)
    shapes = {}
    for ours, shape in all_shapes(config).items():
        if ours in required:
            known = math.prod(size for size in shape if size is not None)
            labels = math.prod(found.shapes[table[ours].name]) // known
            shapes[ours] = tuple(labels if n is None else n for n in shape)
    _check_labels(heads, table, shapes, found.shapes, source)

    def read(ours: str) -> np.ndarray:
        array = found[table[ours].name]
        if array.dtype.kind not in "fV" and array.dtype.name != "bfloat16":
            raise UserError(
                f"{source}: {table[ours].name} holds {array.dtype}, not "
                "floating-point numbers."
            )
        array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise UserError(
                f"{source}: {table[ours].name} holds values that are not "
                "finite (NaN or infinite); restore the file."
            )
        if table[ours].transposed:
            array = array.T
        return array.reshape(shapes[ours])

    return LazyArrays(shapes, read), left_out


def _check(
    table: Mapping[str, Stored],
    required: set[str],
    shapes: Mapping[str, tuple[int, ...]],
    accounted: set[str],
    source: str,
) -> None:
    needed = [table[ours] for ours in sorted(required)]
    faults = {
        "missing": [
            f"{stored.name} {_show(stored.shape)}"
            for stored in needed
            if stored.name not in shapes
        ],
        "unexpected": [
            f"{name} {_show(shape)}"
            for name, shape in sorted(shapes.items())
            if name not in accounted
        ],
        "other shapes": [
            f"{stored.name} is {_show(shapes[stored.name])} where the "
            f"configuration says {_show(stored.shape)}"
            for stored in needed
            if stored.name in shapes
            and not _fits(shapes[stored.name], stored.shape)
        ],
    }
    refuse_faults(
        f"{source}: the weights do not fit the configuration",
        faults,
        _HOW_TO_IGNORE if faults["unexpected"] else "",
    )


def _check_labels(
    heads: Mapping[str, Shapes],
    table: Mapping[str, Stored],
    shapes: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    source: str,
) -> None:
    """Raises `UserError` if arrays of a head differ in the number of labels."""
    for head, arrays in heads.items():
        labels = {
            ours: shapes[ours][shape.index(None)]
            for ours, shape in arrays.items()
            if None in shape and ours in shapes
        }
        if len(set(labels.values())) > 1:
            sides = " and ".join(
                f"{table[ours].name} {_show(found[table[ours].name])}"
                for ours in labels
            )
            raise UserError(
                f"{source}: the arrays of the head {head} differ in their "
                f"number of labels: {sides}."
            )


def _fits(shape: tuple[int, ...], expected: Shape) -> bool:
    return len(shape) == len(expected) and all(
        size is None or size == given
        for given, size in zip(shape, expected, strict=True)
    )


def _show(shape: Shape) -> str:
    inside = ", ".join("labels" if n is None else str(n) for n in shape)
    return f"[{inside}]"


def write_stored(
    arrays: Mapping[str, np.ndarray], table: Mapping[str, Stored]
) -> LazyArrays:
    """Converts our arrays to a family's, the inverse of `read_stored`."""
    shapes, ours_of = {}, {}
    for ours, shape in shapes_of_arrays(arrays).items():
        stored = table[ours]
        shapes[stored.name] = shape[::-1] if stored.transposed else shape
        ours_of[stored.name] = ours

    def read(name: str) -> np.ndarray:
        array = arrays[ours_of[name]]
        return array.T if table[ours_of[name]].transposed else array

    return LazyArrays(shapes, read)
