"""Checks the arguments of an encoder's call before anything is computed."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS, PACKED_INPUTS, Feature

# Options and inputs that each option excludes.
_EXCLUDED = {
    "pooled_only": (
        "return_all_layers",
        "return_attention_probs",
        "cls_positions",
    ),
    "unpadded": ("return_attention_probs", "word_embeddings"),
}


def check_inputs(
    inputs: Mapping[str, Any], config: BertConfig, owner: str
) -> None:
    """Checks the inputs of a call.

    Args:
      inputs: the inputs of the encoder.
      config: its architecture.
      owner: its name, for errors.

    Raises:
      UserError: `inputs` is no dict, or an input is missing or invalid.
    """
    if not isinstance(inputs, Mapping):
        raise UserError(
            f"{owner}: the inputs are a {type(inputs).__name__}; give "
            "a dict of input_ids, input_mask and segment_ids."
        )
    missing = [f.name for f in ENCODER_INPUTS if f.name not in inputs]
    if missing:
        raise UserError(
            f"{owner}: missing input {', '.join(missing)}; the "
            f"inputs given are {', '.join(sorted(inputs)) or 'none'}."
        )
    for feature in (*ENCODER_INPUTS, *PACKED_INPUTS):
        if feature.name in inputs:
            _check_input(feature, inputs[feature.name], owner)
    words = inputs.get("word_embeddings")
    size = config.embedding_size
    if words is not None and (len(words.shape), words.shape[-1]) != (3, size):
        raise UserError(
            f"{owner}: word_embeddings are of shape {tuple(words.shape)}; "
            f"they take [B, S, {size}]."
        )
    packed = [n for n in ("sequence_ids", "cls_positions") if n in inputs]
    if config.bilstm and packed:
        raise UserError(
            f"{owner}: {' and '.join(packed)} do not go with a BiLSTM "
            "(bilstm is true), which reads a row as one sequence; put each "
            "sequence into a separate row."
        )
    if config.causal and packed == ["cls_positions"]:
        raise UserError(
            f"{owner}: cls_positions come without sequence_ids, but a causal "
            "model pools the last token of each sequence; pass both."
        )
    length = ops.shape(inputs["input_ids"])[1]
    longest = config.longest_input
    # A dynamic length is a tensor or None.
    if isinstance(length, int) and length > longest:
        raise UserError(
            f"{owner}: input_ids have {length} positions, more than "
            f"the longest input, {longest}; use shorter sequences."
        )


def check_options(
    inputs: Mapping[str, Any], options: Mapping[str, Any], owner: str
) -> None:
    """Checks that the options of a call do not exclude each other.

    Args:
      inputs: the inputs of the encoder.
      options: other arguments by name.
      owner: its name, for errors.

    Raises:
      UserError: an option excludes another option or an input.
    """
    for option, others in _EXCLUDED.items():
        parts = [n for n in others if options.get(n) or n in inputs]
        if options.get(option) and parts:
            raise UserError(
                f"{owner}: {option} does not go with "
                f"{' and '.join(parts)}; leave out one or the other."
            )


def _check_input(feature: Feature, value: Any, owner: str) -> None:
    name, shape = feature.name, getattr(value, "shape", None)
    if shape is None or len(shape) != 2:
        received = type(value).__name__ if shape is None else f"shape {shape}"
        raise UserError(
            f"{owner}: {name} is of {received}; it takes a tensor of "
            f"whole numbers [{', '.join(feature.axes)}]."
        )
    dtype = keras.backend.standardize_dtype(value.dtype)
    if "int" not in dtype:
        raise UserError(
            f"{owner}: {name} is of dtype {dtype}; it takes whole "
            "numbers (int32)."
        )
