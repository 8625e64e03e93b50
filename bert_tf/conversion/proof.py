"""Proof that a written folder holds the model that was converted.

Every array of the source is in the folder or belongs to a head that was
dropped, the folder reads back bit-identical and states the same use of its
heads, and the model of the source and that of the folder compute the same from
the same random ids.
"""

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

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
    TOKEN_CLASSIFIER,
    Checkpoint,
    head_shapes,
)
from bert_tf.checkpoints.checkpoint import (
    REGRESSION,
    SINGLE_LABEL,
    num_labels,
)
from bert_tf.checkpoints.labels import default_labels
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError, first_few
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
# The model of each head on an encoder, given the number of its labels.
_MODELS: dict[str, Callable[[BertEncoder, int], keras.Model]] = {
    CLASSIFIER: bert_classifier,
    TOKEN_CLASSIFIER: bert_token_classifier,
    SPAN: lambda encoder, _: bert_span_labeler(encoder),
    MULTIPLE_CHOICE: lambda encoder, _: bert_multiple_choice(encoder),
    REPLACED_TOKENS: lambda encoder, _: replaced_token_detector(encoder),
}
# Outputs [B, S, ...].
_OF_TOKENS = (
    "sequence_output",
    "hidden_states",
    f"{REPLACED_TOKENS}_logits",
    f"{SPAN}_logits",
    f"{TOKEN_CLASSIFIER}_logits",
)
# What every layout states of a model and its text.
_STATED = (
    "config",
    "vocabulary",
    "lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
    "added_tokens",
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

    def __str__(self) -> str:
        return (
            f"{self.output:<24}{self.difference:>20.2e}{self.magnitude:>16.3g}"
        )


@dataclasses.dataclass(frozen=True)
class SharedInputs:
    """The tokens and the positions that a source and its conversion share.

    Where a vocabulary was replaced, tokens are matched by their text.

    Attributes:
      source_ids: int [n], ids of the source.
      ids: int [n], ids of the same tokens in the conversion.
      positions: how many positions both have.
      segments: how many segments both have.
    """

    source_ids: np.ndarray
    ids: np.ndarray
    positions: int
    segments: int

    @classmethod
    def of(cls, source: Checkpoint, converted: Checkpoint) -> Self:
        """What two checkpoints share."""
        positions = min(
            source.config.longest_input,
            converted.config.longest_input,
        )
        segments = source.config.segment_limit
        old, new = source.vocabulary, converted.vocabulary
        if old is None or new is None or old == new:
            every = np.arange(converted.config.vocab_size)
            return cls(every, every, positions, segments)
        tokens = [token for token in new.tokens if token in old.ids]
        return cls(
            np.array([old.ids[token] for token in tokens]),
            np.array([new.ids[token] for token in tokens]),
            positions,
            segments,
        )

    def random_batches(self, seed: int) -> tuple[Batch, Batch]:
        """The same random rows in the source's ids and in the conversion's.

        Rows are of different lengths, the first one full, and all but the
        first use positions from the whole table.
        """
        random = np.random.default_rng((seed, 2))
        length = min(LENGTH, self.positions)
        lengths = random.integers((length + 1) // 2, length + 1, ROWS)
        lengths[0] = length
        positions = [np.arange(length)] + [
            np.sort(random.choice(self.positions, length, replace=False))
            for _ in range(ROWS - 1)
        ]
        picks = random.integers(0, len(self.ids), (ROWS, length))
        rest = {
            "input_mask": np.arange(length)[None] < lengths[:, None],
            "segment_ids": random.integers(0, self.segments, (ROWS, length)),
            "position_ids": np.stack(positions),
            "masked_lm_positions": random.integers(
                0, lengths[:, None], (ROWS, PREDICTIONS)
            ),
        }
        source, converted = (
            {
                name: value.astype(np.int32)
                for name, value in {"input_ids": ids[picks], **rest}.items()
            }
            for ids in (self.source_ids, self.ids)
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


def model_outputs(
    checkpoint: Checkpoint, batch: Batch, all_layers: bool = False
) -> Batch:
    """What our Keras models compute with a checkpoint, in float32.

    Args:
      checkpoint: the model.
      batch: int32 [B, S]: input_ids, input_mask, segment_ids and, where they
        are not 0 to S - 1, position_ids; and masked_lm_positions [B, P].
      all_layers: adds hidden_states, those of the embeddings and of all layers
        side by side.

    Returns:
      sequence_output [B, S, H] and, of what the checkpoint has, pooled_output
      [B, H], masked_lm_logits [B, P, V] and the logits of the other heads,
      named after them: `<head>_logits` [B, labels], of span and
      token_classifier [B, S, labels], of replaced_tokens [B, S].
    """
    config, heads = checkpoint.config, checkpoint.heads
    absent = tuple(head for head in head_shapes(config) if head not in heads)
    # A GPU would multiply in fewer bits than float32 has.
    with keras.device("cpu:0"):
        with _nothing_drawn():
            encoder = encoder_class(config)(config, dtype="float32")
            model = encoder
            if MASKED_LM in heads or NEXT_SENTENCE in heads:
                model = BertPretrainer(encoder)
        restore(model, checkpoint, fresh=absent)
        outputs = dict(model(batch, training=False))
        for head in sorted(_MODELS.keys() & heads):
            model = _MODELS[head](encoder, num_labels(checkpoint, head))
            restore(model, checkpoint, fresh=absent)
            pooled = head in HEADS_ON_POOLER
            read = outputs["pooled_output" if pooled else "sequence_output"]
            outputs[f"{head}_logits"] = model.get_layer(head)(read)
        if all_layers:
            layers = encoder(batch, return_all_layers=True)
            outputs["hidden_states"] = keras.ops.concatenate(
                (layers["embedding_output"], *layers["all_encoder_layers"]), -1
            )
    return {
        name: keras.ops.convert_to_numpy(outputs[name])
        for name in dict.fromkeys((*PRETRAINING_OUTPUTS, *outputs))
        if name in outputs
        and not set(PRETRAINING_OUTPUTS.get(name, ())) & set(absent)
    }


def compare(
    expected: Batch, computed: Batch, mask: np.ndarray, shared: SharedInputs
) -> tuple[Comparison, ...]:
    """Compares the outputs that both have, at tokens and not at padding.

    Args:
      expected: outputs of the source, in whose ids logits of words are.
      computed: outputs of the conversion.
      mask: int32 [B, S], 1 at tokens.
      shared: the tokens that both have.
    """
    comparisons, tokens = [], mask == 1
    for name in (name for name in computed if name in expected):
        reference, values = expected[name], computed[name]
        if name == "masked_lm_logits":
            reference = reference[..., shared.source_ids]
            values = values[..., shared.ids]
        if name in _OF_TOKENS:
            reference, values = reference[tokens], values[tokens]
        difference = values.astype(np.float64) - reference
        comparisons.append(
            Comparison(
                name,
                float(np.max(np.abs(difference))),
                float(np.max(np.abs(reference))),
            )
        )
    return tuple(comparisons)


def refuse_differences(
    comparisons: Sequence[Comparison], source: str, other: str
) -> None:
    """Raises `UserError` where an output differs by more than `LIMIT`."""
    # NaN fails this comparison too.
    failed = [c for c in comparisons if not c.difference <= LIMIT]
    if failed:
        listed = ", ".join(
            f"{c.output} by {c.difference:.3g} (largest value "
            f"{c.magnitude:.3g})"
            for c in failed
        )
        raise UserError(
            f"{source}: {other} differs from the source in {listed}; at most "
            f"{LIMIT:g} is allowed. Nothing was written."
        )


def _refuse_other_contents(
    source: Checkpoint,
    converted: Checkpoint,
    written: Checkpoint,
    dropped: Sequence[str],
) -> None:
    """Raises `UserError` unless a folder holds what was to be written."""
    heads = head_shapes(source.config)
    gone = {name for head in dropped for name in heads[head]}
    unaccounted = (source.arrays.keys() - gone) ^ written.arrays.keys()
    if unaccounted:
        raise UserError(
            f"{source.source}: {first_few(sorted(unaccounted))} would be in "
            "the source or in the written folder only. Nothing was written."
        )
    changed = [
        name
        for name, array in written.arrays.items()
        if not np.array_equal(
            array.view(np.int32), converted.arrays[name].view(np.int32)
        )
    ]
    changed += [
        name
        for name in _STATED
        if getattr(written, name) != getattr(converted, name)
    ]
    # transformers has names for outputs without names.
    unnamed = default_labels(len(converted.labels or ()))
    if written.labels != converted.labels and converted.labels != unnamed:
        changed.append("labels")
    if CLASSIFIER in written.heads and _kind(written) != _kind(source):
        changed.append("problem_type")
    if changed:
        raise UserError(
            f"{source.source}: {first_few(changed)} of the written folder "
            "would differ from what was to be written. Nothing was written."
        )


def _kind(checkpoint: Checkpoint) -> str:
    """What the outputs of a sequence classifier are, stated or not."""
    outputs = num_labels(checkpoint, CLASSIFIER)
    unstated = REGRESSION if outputs == 1 else SINGLE_LABEL
    return checkpoint.problem_type or unstated


def prove(
    source: Checkpoint,
    converted: Checkpoint,
    written: Checkpoint,
    dropped: Sequence[str],
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Checks a written folder against what was converted, and its source.

    Args:
      source: the source as it was loaded.
      converted: what was to be written.
      written: the folder as it was loaded.
      dropped: the heads that were left out.
      seed: of the random ids.

    Raises:
      UserError: an array is unaccounted for or differs in a bit, the folder
        states something else, or an output of the two models differs by more
        than `LIMIT` or is not finite.
    """
    _refuse_other_contents(source, converted, written, dropped)
    shared = SharedInputs.of(source, converted)
    source_batch, batch = shared.random_batches(seed)
    expected = model_outputs(source, source_batch)
    # Reference cycles would keep the source's model in memory.
    gc.collect()
    computed = model_outputs(written, batch)
    # What is not finite is refused.
    with np.errstate(all="ignore"):
        comparisons = compare(expected, computed, batch["input_mask"], shared)
    refuse_differences(comparisons, source.source, "the converted model")
    return comparisons
