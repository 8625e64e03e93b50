"""Verifies that a written folder holds the converted model.

Every array of the source is in the folder or belongs to a dropped head, the
folder reads back bit-identical with the same metadata, and the models of the
source and of the folder compute the same for the same random ids.
"""

import dataclasses
import gc
from collections.abc import Callable, Sequence
from typing import Self

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
from bert_tf.checkpoints.checkpoint import REGRESSION, SINGLE_LABEL, num_labels
from bert_tf.checkpoints.labels import default_labels
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError, first_few
from bert_tf.layers.initialization import assigned_later
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
    replaced_token_detector,
    restore,
)
from bert_tf.pretraining.pretrainer import BertPretrainer

# Largest allowed difference in float32.
LIMIT = 1e-4
ROWS, LENGTH, PREDICTIONS = 4, 48, 8
# The outputs of pre-training in the order of the report, and the heads whose
# weights they need.
PRETRAINING_OUTPUTS = {
    "sequence_output": (),
    "pooled_output": (POOLER,),
    "masked_lm_logits": (MASKED_LM,),
    "next_sentence_logits": (NEXT_SENTENCE, POOLER),
}
# Builds the model of a head on an encoder with a number of labels.
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
# Fields of a checkpoint that every layout stores.
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
    """The comparison of an output of both models.

    Attributes:
      output: its name.
      difference: the largest absolute difference; NaN if any value is.
      magnitude: the largest absolute value of the source's output.
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
    """The tokens, positions and segments of both source and conversion.

    Tokens of a replaced vocabulary are matched by their text.

    Attributes:
      source_ids: int [n], ids in the source.
      ids: int [n], ids of the same tokens in the conversion.
      positions: the number of common positions.
      segments: the number of segments.
    """

    source_ids: np.ndarray
    ids: np.ndarray
    positions: int
    segments: int

    @classmethod
    def of(cls, source: Checkpoint, converted: Checkpoint) -> Self:
        """Returns the common inputs of two checkpoints."""
        positions = min(
            source.config.longest_input, converted.config.longest_input
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
        """Draws the same rows in the source's and in the conversion's ids.

        Rows differ in length; the first is full, and the others use positions
        of the whole table.
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


def model_outputs(
    checkpoint: Checkpoint, batch: Batch, all_layers: bool = False
) -> Batch:
    """Computes the outputs of our Keras models of a checkpoint, in float32.

    Args:
      checkpoint: the model.
      batch: int32 [B, S]: input_ids, input_mask, segment_ids and optionally
        position_ids (default 0 to S - 1); and masked_lm_positions [B, P].
      all_layers: whether to add hidden_states, the concatenated outputs of the
        embeddings and of all layers.

    Returns:
      sequence_output [B, S, H] and, for the heads of the checkpoint,
      pooled_output [B, H], masked_lm_logits [B, P, V] and `<head>_logits`
      [B, labels]; of span and token_classifier [B, S, labels], of
      replaced_tokens [B, S].
    """
    config, heads = checkpoint.config, checkpoint.heads
    absent = tuple(head for head in head_shapes(config) if head not in heads)
    # A GPU may multiply in lower precision than float32.
    with keras.device("cpu:0"):
        with assigned_later():
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
            if encoder.token_head_class is not None and not pooled:
                read = model.get_layer(f"{head}_transform")(read)
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
    """Compares common outputs, except at padding.

    Args:
      expected: outputs of the source, with logits of words by the source's ids.
      computed: outputs of the conversion.
      mask: int32 [B, S], 1 at tokens, 0 at padding.
      shared: the common tokens.
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
    """Raises `UserError` if an output differs by more than `LIMIT`."""
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
    """Raises `UserError` if a folder's contents differ from the conversion."""
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
    # transformers names all outputs.
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
    """Returns the problem_type, or its default."""
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
    """Compares a written folder with the conversion and with its source.

    Args:
      source: the loaded source.
      converted: the checkpoint that was written.
      written: the loaded folder.
      dropped: the dropped heads.
      seed: of the random ids.

    Returns:
      The comparison of each output.

    Raises:
      UserError: an array is missing, additional or not bit-identical, metadata
        differ, or an output differs by more than `LIMIT` or is not finite.
    """
    _refuse_other_contents(source, converted, written, dropped)
    shared = SharedInputs.of(source, converted)
    source_batch, batch = shared.random_batches(seed)
    expected = model_outputs(source, source_batch)
    # Reference cycles keep the source's model in memory.
    gc.collect()
    computed = model_outputs(written, batch)
    # Values that are not finite are refused.
    with np.errstate(all="ignore"):
        comparisons = compare(expected, computed, batch["input_mask"], shared)
    refuse_differences(comparisons, source.source, "the converted model")
    return comparisons
