"""Proof by numbers that a converted model computes what its source does.

The folder that was written is loaded again and put into our Keras models; the
source's own variables go through the plain forward of `numpy_forward.py`. Both
see the same random ids. Of task heads the answers are compared too, which are
computed from the logits by each folder's own metadata.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints import (
    CLASSIFIER,
    HEADS_ON_POOLER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    NEXT_SENTENCE,
    POOLER,
    REPLACED_TOKENS,
    SPAN,
    TASK_HEADS,
    TOKEN_CLASSIFIER,
    Checkpoint,
    head_shapes,
    load_checkpoint,
)
from bert_tf.checkpoints.checkpoint import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    num_labels,
)
from bert_tf.checkpoints.labels import default_labels
from bert_tf.conversion.numpy_forward import SourceVariables, forward
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
    replaced_token_detector,
    restore,
)
from bert_tf.pretraining.pretrainer import BertPretrainer

# More than this in float32 is another model.
LIMIT = 1e-4
ROWS, LENGTH, PREDICTIONS = 4, 48, 8
# The outputs of pre-training in the order of the report, and the heads that
# they need, or they come from weights as drawn.
PRETRAINING_OUTPUTS = {
    "sequence_output": (),
    "pooled_output": (POOLER,),
    "masked_lm_logits": (MASKED_LM,),
    "next_sentence_logits": (NEXT_SENTENCE, POOLER),
}
# Outputs [B, S, ...].
_OF_TOKENS = (
    "sequence_output",
    f"{REPLACED_TOKENS}_logits",
    f"{SPAN}_logits",
    f"{SPAN}_answers",
    f"{TOKEN_CLASSIFIER}_logits",
    f"{TOKEN_CLASSIFIER}_answers",
)

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One output of both models.

    Attributes:
      output: its name.
      difference: the largest absolute difference; NaN where there is one.
      magnitude: the largest absolute value of the source's.
    """

    output: str
    difference: float
    magnitude: float


@dataclasses.dataclass(frozen=True)
class Shared:
    """What a source and its conversion both have.

    Attributes:
      source_ids: int [n], ids of the source.
      ids: int [n], ids of the same tokens in the conversion.
      positions: how many positions both have.
    """

    source_ids: np.ndarray
    ids: np.ndarray
    positions: int


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a converted model has to compute.

    Attributes:
      source: the source's name, for errors.
      batch: the inputs, in ids of the converted model.
      outputs: the source's outputs on the same inputs.
      shared: what both models have.
      labels: the names of a head's labels.
    """

    source: str
    batch: Batch
    outputs: Batch
    shared: Shared
    labels: tuple[str, ...] | None = None


def shared_part(source: Checkpoint, converted: Checkpoint) -> Shared:
    """The tokens and the positions that both checkpoints have.

    Where a vocabulary was replaced, tokens are matched by their text.
    """
    positions = min(
        source.config.longest_input,
        converted.config.longest_input,
    )
    old, new = source.vocabulary, converted.vocabulary
    if old is None or new is None or old == new:
        every = np.arange(converted.config.vocab_size)
        return Shared(every, every, positions)
    tokens = [token for token in new.tokens if token in old.ids]
    return Shared(
        np.array([old.ids[token] for token in tokens]),
        np.array([new.ids[token] for token in tokens]),
        positions,
    )


def random_batches(
    shared: Shared, segments: int, seed: int
) -> tuple[Batch, Batch]:
    """The same random rows in the source's ids and in the conversion's.

    Rows are of different lengths, the first one full, and all but the first
    use positions from the whole table.
    """
    random = np.random.default_rng((seed, 2))
    length = min(LENGTH, shared.positions)
    lengths = random.integers((length + 1) // 2, length + 1, ROWS)
    lengths[0] = length
    places = [np.arange(length)] + [
        np.sort(random.choice(shared.positions, length, replace=False))
        for _ in range(ROWS - 1)
    ]
    picks = random.integers(0, len(shared.ids), (ROWS, length))
    rest = {
        "input_mask": np.arange(length)[None] < lengths[:, None],
        "segment_ids": random.integers(0, segments, (ROWS, length)),
        "position_ids": np.stack(places),
        "masked_lm_positions": random.integers(
            0, lengths[:, None], (ROWS, PREDICTIONS)
        ),
    }
    source, converted = (
        {
            name: value.astype(np.int32)
            for name, value in {"input_ids": ids[picks], **rest}.items()
        }
        for ids in (shared.source_ids, shared.ids)
    )
    return source, converted


@contextlib.contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Creates variables without values, under TensorFlow.

    Initial values would be in memory beside those that replace them, and
    TensorFlow's pool does not give back what was once in it.
    """
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    def empty(create: Callable[..., Any], **arguments: Any) -> Any:
        draw = arguments["initial_value"]
        if callable(draw):
            with tf.Graph().as_default():
                # In a graph of its own this gives the shape and draws nothing.
                value = tf.convert_to_tensor(draw())
            arguments["initial_value"] = lambda: tf.raw_ops.Empty(
                shape=value.shape.as_list(), dtype=value.dtype
            )
        return create(**arguments)

    with tf.variable_creator_scope(empty):
        yield


def model_outputs(checkpoint: Checkpoint, batch: Batch) -> Batch:
    """What our Keras models compute with a checkpoint, in float32.

    The batch and the outputs are those of `numpy_forward.forward`.
    """
    heads = checkpoint.heads
    absent = tuple(
        head for head in head_shapes(checkpoint.config) if head not in heads
    )
    # A GPU would multiply in fewer bits than float32 has.
    with keras.device("cpu:0"):
        with _nothing_drawn():
            encoder = encoder_class(checkpoint.config)(
                checkpoint.config, dtype="float32"
            )
            model = encoder
            if MASKED_LM in heads or NEXT_SENTENCE in heads:
                model = BertPretrainer(encoder)
        restore(model, checkpoint, fresh=absent)
        outputs = dict(model(batch, training=False))
        outputs |= _task_logits(encoder, checkpoint, outputs)
    names = [
        name
        for name, needed in PRETRAINING_OUTPUTS.items()
        if name in outputs and not set(needed) & set(absent)
    ]
    names += sorted(set(outputs) - set(PRETRAINING_OUTPUTS))
    return {name: keras.ops.convert_to_numpy(outputs[name]) for name in names}


def _task_logits(
    encoder: BertEncoder, checkpoint: Checkpoint, outputs: Batch
) -> Batch:
    """The logits of the heads on an encoder alone that a checkpoint has."""
    heads = checkpoint.heads
    absent = [h for h in head_shapes(checkpoint.config) if h not in heads]
    logits = {}
    for head in {*TASK_HEADS, REPLACED_TOKENS} & set(heads):
        if head == CLASSIFIER:
            model = bert_classifier(encoder, num_labels(checkpoint, head))
        elif head == TOKEN_CLASSIFIER:
            model = bert_token_classifier(encoder, num_labels(checkpoint, head))
        elif head == REPLACED_TOKENS:
            model = replaced_token_detector(encoder)
        elif head == SPAN:
            model = bert_span_labeler(encoder)
        else:
            model = bert_multiple_choice(encoder)
        restore(model, checkpoint, fresh=absent)
        on = "pooled_output" if head in HEADS_ON_POOLER else "sequence_output"
        logits[f"{head}_logits"] = model.get_layer(head)(outputs[on])
    return logits


def with_answers(outputs: Batch, checkpoint: Checkpoint, batch: Batch) -> Batch:
    """Outputs, and what the heads of tasks answer by a folder's metadata.

    Answers are probabilities: of classes by softmax, of several labels by
    sigmoid, of tags in each token, of starts and ends over the tokens of a row,
    of choices over the rows. A regression's is its number.

    Args:
      outputs: logits by name.
      checkpoint: what was read from the folder; its problem_type decides.
      batch: the inputs.
    """
    answers = {}
    for head in TASK_HEADS:
        if f"{head}_logits" not in outputs:
            continue
        logits = outputs[f"{head}_logits"].astype(np.float64)
        kind, axis = checkpoint.problem_type, -1
        if head == SPAN:
            padding = batch["input_mask"][..., None] == 0
            logits, axis = np.where(padding, -np.inf, logits), 1
        elif head == MULTIPLE_CHOICE:
            axis = 0
        if head == CLASSIFIER and logits.shape[-1] == 1:
            kind = kind or REGRESSION
        if head != CLASSIFIER or kind in (None, SINGLE_LABEL):
            powers = np.exp(logits - logits.max(axis, keepdims=True))
            logits = powers / powers.sum(axis, keepdims=True)
        elif kind == MULTI_LABEL:
            logits = 1 / (1 + np.exp(-logits))
        answers[f"{head}_answers"] = logits
    return outputs | answers


def compare(expected: Expectation, computed: Batch) -> tuple[Comparison, ...]:
    """Compares every output of the converted model with the source's.

    What is computed at padding, nobody uses; it is left out.
    """
    comparisons = []
    shared, tokens = expected.shared, expected.batch["input_mask"] == 1
    for name, values in computed.items():
        reference = expected.outputs[name]
        if name == "masked_lm_logits":
            reference = reference[..., shared.source_ids]
            values = values[..., shared.ids]
        if name in _OF_TOKENS:
            reference, values = reference[tokens], values[tokens]
        comparisons.append(
            Comparison(
                name,
                float(np.max(np.abs(values.astype(np.float64) - reference))),
                float(np.max(np.abs(reference))),
            )
        )
    return tuple(comparisons)


def expect(
    source: Checkpoint,
    converted: Checkpoint,
    variables: SourceVariables,
    seed: int = 0,
) -> Expectation:
    """Computes with a source's own variables what its conversion must.

    Args:
      source: the source as it was loaded.
      converted: what will be written.
      variables: the same source's variables as they lie in its files.
      seed: of the random ids.
    """
    absent = [head for head in converted.heads if head not in variables.heads]
    if absent:
        raise UserError(
            f"{source.source}: {', '.join(absent)} would be written, but the "
            f"files hold {', '.join(variables.heads) or 'no head'}."
        )
    shared = shared_part(source, converted)
    source_batch, batch = random_batches(
        shared, source.config.segment_limit, seed
    )
    # What is not finite is found when it is compared.
    with np.errstate(all="ignore"):
        outputs = forward(variables, source_batch)
        outputs = with_answers(outputs, source, source_batch)
    return Expectation(source.source, batch, outputs, shared, converted.labels)


def prove(
    expected: Expectation, written: pathlib.Path
) -> tuple[Comparison, ...]:
    """Runs a written folder and compares its outputs with the source's.

    Raises:
      UserError: an output differs by more than `LIMIT` or is not finite, or
        the labels have other names.
    """
    checkpoint = load_checkpoint(written)
    # transformers has names for outputs without names.
    unnamed = default_labels(len(expected.labels or ()))
    if checkpoint.labels != expected.labels and expected.labels != unnamed:
        raise UserError(
            f"{expected.source}: the converted model names its labels "
            f"{checkpoint.labels}, and the source {expected.labels}. Nothing "
            "was written."
        )
    computed = model_outputs(checkpoint, expected.batch)
    with np.errstate(all="ignore"):
        computed = with_answers(computed, checkpoint, expected.batch)
        comparisons = compare(expected, computed)
    # So written that NaN is a failure.
    failed = [c for c in comparisons if not c.difference <= LIMIT]
    if failed:
        listed = ", ".join(
            f"{c.output} by {c.difference:.3g} (largest value "
            f"{c.magnitude:.3g})"
            for c in failed
        )
        raise UserError(
            f"{expected.source}: the converted model differs from the source "
            f"in {listed}; at most {LIMIT:g} is allowed. Nothing was written."
        )
    return comparisons
