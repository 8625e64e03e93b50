"""Computes in bfloat16 where the processor has it and answers are kept.

The first rows are computed in float32 and in bfloat16, and compared. Few rows
are computed in float32, since opening a model twice costs more than it saves.
"""

import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from bert_tf.compat import has_accelerator
from bert_tf.config import FLOAT32, KERAS
from bert_tf.errors import UserError
from bert_tf.families.data.similarity import SHORTEST
from bert_tf.families.requests import Refusal
from bert_tf.families.text_model import TextModel
from bert_tf.libraries import RUNTIMES

BFLOAT16 = "mixed_bfloat16"
# Rows that are compared.
COMPARED_ROWS = 256
# Which answers may differ, as near ties do; by how much a probability may, and
# a score relative to the largest; and the smallest cosine of two vectors.
_CHANGED, _MOVED, _COSINE = 0.01, 0.05, 0.999
_VECTOR, _BY_LABEL = "embedding", "probabilities"
# Flags of processors whose products in bfloat16 are faster.
_FLAGS = {"avx512_bf16", "amx_bf16"}
_CPU = pathlib.Path("/proc/cpuinfo")

Item = TypeVar("Item")
Model = TypeVar("Model")
Results = TypeVar("Results")


def has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16; False if it does not say."""
    with contextlib.suppress(OSError):
        for line in _CPU.read_text().splitlines():
            if line.startswith("flags"):
                return not _FLAGS.isdisjoint(line.split())
    return False


def choose(
    opened: Callable[[str, str], Model],
    runtime: str,
    network: Callable[[Model], TextModel],
    rows_of: Callable[[Model], Iterator[Item]],
    results: Callable[[Model, list[Item]], Results],
    difference: Callable[[Results, Results], str],
) -> tuple[Model, str, Iterator[Item], str]:
    """Opens a model in bfloat16 if that keeps the results of the first rows.

    Args:
      opened: opens the model in a precision and by a runtime.
      runtime: the runtime that the user asked for.
      network: returns an opened model's model of text.
      rows_of: returns all rows that the model will compute.
      results: computes the results of some rows.
      difference: says how results in float32 and bfloat16 differ; "" if they
        agree.

    Returns:
      The opened model, its precision, all rows, and why it has this precision,
      as the end of a line; "" if nothing was compared.
    """
    model = opened(FLOAT32, runtime)
    rows = rows_of(model)
    kind = network(model).runtime_kind
    may_be_faster = kind == KERAS or RUNTIMES[kind].bfloat16
    if not may_be_faster or not has_bfloat16() or has_accelerator():
        return model, FLOAT32, rows, ""
    first = list(itertools.islice(rows, COMPARED_ROWS + 1))
    rows = itertools.chain(first, rows)
    compared = first[:COMPARED_ROWS]
    if len(first) == len(compared):
        return model, FLOAT32, rows, ""
    wanted = results(model, compared)
    kind = network(model).runtime_kind
    # Two models at a time would take more memory than one in float32.
    del model
    try:
        model = opened(BFLOAT16, kind)
        why = difference(wanted, results(model, compared))
    except UserError as error:
        # Its outputs are not finite, or too far from Keras'.
        why = str(error).rstrip(".")
    if why:
        note = f", because in bfloat16 {why}"
        return opened(FLOAT32, runtime), FLOAT32, rows, note
    note = (
        f", which agrees with float32 on the first {COMPARED_ROWS} rows; "
        f"`precision`={FLOAT32} refuses it"
    )
    return model, BFLOAT16, rows, note


def difference_of_answers(wanted: Sequence[Any], found: Sequence[Any]) -> str:
    """Says how answers differ by more than near ties do.

    Args:
      wanted: answers of a `TextModel`, or refusals, in float32.
      found: those to the same rows in bfloat16.

    Returns:
      What differs; "" if at most 1 of 100 answers changes, no probability by
      more than 0.05, no score by more than 0.05 or 5 % of the largest, and no
      vector's cosine is below 0.999.
    """
    pairs = [
        (before, after)
        for before, after in zip(wanted, found, strict=True)
        # Refusals do not depend on the precision.
        if not isinstance(before, Refusal) and not isinstance(after, Refusal)
    ]
    if any(_VECTOR in before for before, _ in pairs):
        before, after = (
            np.array([answer[_VECTOR] for answer in answers])
            for answers in zip(*pairs, strict=True)
        )
        return difference_of_vectors(before, after)
    changed, largest, moved = 0, 1.0, 0.0
    for before, after in pairs:
        is_kept = _decided(before) == _decided(after)
        changed += not is_kept
        # Numbers of other entities or answers are of something else.
        if is_kept or _BY_LABEL in before:
            first, second = (
                np.array([*_numbers(answer.get(_BY_LABEL, answer))])
                for answer in (before, after)
            )
            largest = np.abs(first).max(initial=largest)
            moved = np.abs(second - first).max(initial=moved)
    if changed > _CHANGED * len(pairs):
        return f"{changed} of the first {len(pairs)} answers change"
    if moved > _MOVED * largest:
        return (
            f"a number of the first {len(pairs)} answers moves by {moved:.2g}"
        )
    return ""


def difference_of_vectors(wanted: np.ndarray, found: np.ndarray) -> str:
    """Says how vectors [..., D] differ; "" if all cosines are above 0.999."""
    products = np.sum(wanted * found, -1)
    norms = np.linalg.norm(wanted, axis=-1) * np.linalg.norm(found, axis=-1)
    lowest = np.min(products / np.maximum(norms, SHORTEST))
    if lowest < _COSINE:
        return f"a vector has the cosine {lowest:.4f} with that in float32"
    return ""


def _decided(answer: Any) -> Any:
    """An answer without numbers, and with the best token of each [MASK]."""
    if isinstance(answer, dict):
        return {
            name: _decided(
                [mask[0] for mask in each] if name == "masks" else each
            )
            for name, each in answer.items()
        }
    if isinstance(answer, list | tuple):
        return [_decided(each) for each in answer]
    return None if isinstance(answer, float) else answer


def _numbers(answer: Any) -> Iterator[float]:
    """Yields the probabilities and scores of an answer."""
    if isinstance(answer, dict):
        answer = answer.values()
    elif isinstance(answer, float):
        yield answer
        return
    elif isinstance(answer, str | int):
        return
    for each in answer:
        yield from _numbers(each)
