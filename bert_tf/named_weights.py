"""Weights of a model by the names of Google's TF1 checkpoints, strictly."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.architectures.parts import Part
from bert_tf.checkpoints import (
    BILSTM,
    LORA,
    MASKED_LM,
    POOLER,
    Checkpoint,
    head_shapes,
)
from bert_tf.checkpoints.layout import head_parts
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, refuse_faults
from bert_tf.layers.part_weights import Weight
from bert_tf.lazy_arrays import shapes_of_arrays
from bert_tf.progress import log

# What a config says beside sizes: arrays of any values fit the model, but
# only with the same of these do they compute the same.
_COMPUTATION = (
    "model_type",
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "causal",
)


NamedWeights = dict[str, Weight]


def named_by_parts(
    config: BertConfig, parts: Iterable[Part], layers: Iterable[Any]
) -> NamedWeights:
    """The weights of layers by the names of parts of a table, in its order.

    Args:
      config: the architecture.
      parts: of its table; see `architectures/parts.py`.
      layers: layers that have `part_weights`, together of these parts.
    """
    found = [each for layer in layers for each in layer.part_weights()]
    named: NamedWeights = {}
    for part, (weights, update) in zip(parts, found, strict=True):
        named |= zip(part.shapes(config), weights, strict=True)
        if update is not None:
            matrices = map(Weight, update)
            names = part.low_rank().shapes(config)
            named |= zip(names, matrices, strict=True)
    return named


def head_weights(config: BertConfig, head: str, layer: Any) -> NamedWeights:
    """The weights of the layer of a head by the names of its parts."""
    return named_by_parts(config, head_parts(config)[head], [layer])


def is_low_rank(name: str) -> bool:
    """Whether a variable is a matrix of an update, by its name."""
    return name.endswith(("lora_a", "lora_b"))


def arrays_of(named: NamedWeights) -> dict[str, np.ndarray]:
    """The values as float32 arrays."""
    return {name: weight.array() for name, weight in named.items()}


def assign_arrays(
    named: NamedWeights,
    arrays: Mapping[str, np.ndarray],
    config: BertConfig,
    owner: str,
) -> None:
    """Assigns every named weight, or none if the names or shapes differ.

    Arrays of heads that the model lacks are left alone.

    Args:
      named: the weights to assign.
      arrays: values by name.
      config: the architecture of the model they belong to.
      owner: the model's name, for the error.
    """
    heads = head_shapes(config).values()
    optional = {name for shapes in heads for name in shapes}
    given = shapes_of_arrays(arrays)
    faults = {
        "missing": sorted(set(named) - set(given)),
        "unexpected": sorted(set(given) - set(named) - optional),
        "other shapes": [
            f"{name} is {given[name]} where the model has {weight.shape}"
            for name, weight in named.items()
            if name in given and given[name] != weight.shape
        ],
    }
    refuse_faults(f"the arrays do not fit the model {owner!r}", faults)
    parts: dict[int, dict[int, np.ndarray]] = {}
    for name, weight in named.items():
        array, variable = arrays[name], weight.variable
        if weight.transposed:
            array = array.T
        if weight.third is None:
            variable.assign(array)
            continue
        thirds = parts.setdefault(id(variable), {})
        thirds[weight.third] = array
        if len(thirds) == 3:
            whole = np.concatenate([thirds[i] for i in range(3)], axis=-1)
            variable.assign(whole)
            del parts[id(variable)]


def _computation(
    config: BertConfig, masked_lm: bool, bilstm: bool, lora: bool
) -> dict[str, Any]:
    form = {key: getattr(config, key) for key in _COMPUTATION}
    if bilstm:
        form["bilstm"] = config.bilstm
    if lora:
        form["lora_rank"] = config.lora_rank
        form["lora_alpha"] = config.lora_alpha
    if masked_lm:
        head = config.of_masked_lm_head()
        form["masked_lm_act"] = head.hidden_act
        form["masked_lm_layer_norm_eps"] = head.layer_norm_eps
    return form


def restore_weights(
    named: NamedWeights,
    config: BertConfig,
    owner: str,
    checkpoint: Checkpoint,
    fresh: Sequence[str] = (),
) -> tuple[str, ...]:
    """Assigns what a checkpoint holds; heads that it lacks stay as drawn.

    Args:
      named: the weights to assign.
      config: the architecture of the model they belong to.
      owner: the model's name, for the error.
      checkpoint: where the values come from.
      fresh: heads to leave as drawn even if the checkpoint has them (a head
        for other labels); nothing is printed of these.

    Returns:
      The heads that stay as drawn. One line names those not in `fresh`.

    Raises:
      UserError: the encoder or a head does not fit, or the architectures
        compute differently.
    """
    heads = {
        head: [name for name in shapes if name in named]
        for head, shapes in head_shapes(config).items()
    }
    drawn = tuple(
        head
        for head, names in heads.items()
        if names and (head in fresh or head not in checkpoint.heads)
    )
    masked_lm = bool(heads[MASKED_LM]) and MASKED_LM not in drawn
    # A head that is initialized goes onto a model that has none.
    read = masked_lm, BILSTM not in drawn, LORA not in drawn
    ours = _computation(config, *read)
    for key, theirs in _computation(checkpoint.config, *read).items():
        if theirs != ours[key]:
            raise UserError(
                f"{checkpoint.source}: {key} is {theirs!r}, and "
                f"{ours[key]!r} in the model {owner!r}; build the model "
                "with the checkpoint's config."
            )
    left = {name for head in drawn for name in heads[head]}
    assign_arrays(
        {name: w for name, w in named.items() if name not in left},
        checkpoint.arrays,
        config,
        owner,
    )
    missing = [head for head in drawn if head not in fresh]
    if not config.has_pooler and POOLER in missing:
        # It comes with the head on it, which is named.
        missing.remove(POOLER)
    if missing:
        lacking = " and no ".join(missing)
        log(f"{checkpoint.source}: has no {lacking}; initialized randomly.")
    return drawn
