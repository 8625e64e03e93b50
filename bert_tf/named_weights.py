"""Maps a model's weights to the array names of Google's TF1 checkpoints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.architectures.parts import Part
from bert_tf.checkpoints import (
    BILSTM,
    CLASSIFIER,
    LORA,
    MASKED_LM,
    POOLER,
    Checkpoint,
    head_shapes,
)
from bert_tf.checkpoints.layout import head_parts
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, refuse_faults
from bert_tf.layers.initialization import assign
from bert_tf.layers.part_weights import Weight
from bert_tf.lazy_arrays import shapes_of_arrays
from bert_tf.progress import log

# Fields besides sizes that affect the computation, so that arrays of the right
# shapes still belong to another model.
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
    """Names the weights of layers by the parts of an architecture.

    Args:
      config: the architecture.
      parts: its parts, in order; see `architectures/parts.py`.
      layers: layers whose `part_weights`, in order, are those of the parts.
    """
    all_weights = [each for layer in layers for each in layer.part_weights()]
    named: NamedWeights = {}
    for part, (weights, update) in zip(parts, all_weights, strict=True):
        named |= zip(part.shapes(config), weights, strict=True)
        if update is not None:
            matrices = map(Weight, update)
            names = part.low_rank().shapes(config)
            named |= zip(names, matrices, strict=True)
    return named


def head_weights(config: BertConfig, head: str, layer: Any) -> NamedWeights:
    """Names the weights of the layer of a head."""
    return named_by_parts(config, head_parts(config)[head], [layer])


def is_low_rank(name: str) -> bool:
    """Whether the name of a variable is that of a low-rank update."""
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

    Arrays of heads that the model lacks are ignored.

    Args:
      named: the weights to assign.
      arrays: values by name.
      config: the architecture of the model they belong to.
      owner: the model's name, for the error.
    """
    heads = head_shapes(config).values()
    optional = {name for shapes in heads for name in shapes}
    shapes = shapes_of_arrays(arrays)
    faults = {
        "missing": sorted(set(named) - set(shapes)),
        "unexpected": sorted(set(shapes) - set(named) - optional),
        "other shapes": [
            f"{name} is {shapes[name]} where the model has {weight.shape}"
            for name, weight in named.items()
            if name in shapes and shapes[name] != weight.shape
        ],
    }
    refuse_faults(f"the arrays do not fit the model {owner!r}", faults)
    parts: dict[int, dict[int, np.ndarray]] = {}
    for name, weight in named.items():
        array, variable = arrays[name], weight.variable
        if weight.transposed:
            array = array.T
        if weight.third is None:
            assign(variable, array)
            continue
        thirds = parts.setdefault(id(variable), {})
        thirds[weight.third] = array
        if len(thirds) == 3:
            whole = np.concatenate([thirds[i] for i in range(3)], axis=-1)
            assign(variable, whole)
            del parts[id(variable)]


def _computation(
    config: BertConfig,
    masked_lm: bool,
    bilstm: bool,
    lora: bool,
    classifier: bool,
) -> dict[str, Any]:
    values = {key: getattr(config, key) for key in _COMPUTATION}
    if bilstm:
        values["bilstm"] = config.bilstm
    if lora:
        values["lora_rank"] = config.lora_rank
        values["lora_alpha"] = config.lora_alpha
    if classifier:
        values["classifier_pooling"] = config.classifier_pooling
    if masked_lm:
        head = config.of_masked_lm_head()
        values["masked_lm_act"] = head.hidden_act
        values["masked_lm_layer_norm_eps"] = head.layer_norm_eps
    return values


def restore_weights(
    named: NamedWeights,
    config: BertConfig,
    owner: str,
    checkpoint: Checkpoint,
    fresh: Sequence[str] = (),
) -> tuple[str, ...]:
    """Assigns the weights of a checkpoint; missing heads stay initialized.

    Args:
      named: the weights to assign.
      config: the architecture of the model they belong to.
      owner: the model's name, for the error.
      checkpoint: the source of the values.
      fresh: heads that are not assigned even if the checkpoint has them (for
        other labels), without a message.

    Returns:
      The heads that are not assigned. A message names those not in `fresh`.

    Raises:
      UserError: the encoder or a head does not fit, or the architectures
        compute differently.
    """
    heads = {
        head: [name for name in shapes if name in named]
        for head, shapes in head_shapes(config).items()
    }
    initialized = tuple(
        head
        for head, names in heads.items()
        if names and (head in fresh or head not in checkpoint.heads)
    )
    masked_lm = bool(heads.get(MASKED_LM)) and MASKED_LM not in initialized
    # An initialized head may be added to a checkpoint without one.
    assigned = (
        masked_lm,
        *(head not in initialized for head in (BILSTM, LORA)),
        bool(heads[CLASSIFIER]) and CLASSIFIER not in initialized,
    )
    ours = _computation(config, *assigned)
    for key, theirs in _computation(checkpoint.config, *assigned).items():
        if theirs != ours[key]:
            raise UserError(
                f"{checkpoint.source}: {key} is {theirs!r}, and "
                f"{ours[key]!r} in the model {owner!r}; build the model "
                "with the checkpoint's config."
            )
    unassigned = {name for head in initialized for name in heads[head]}
    assign_arrays(
        {name: w for name, w in named.items() if name not in unassigned},
        checkpoint.arrays,
        config,
        owner,
    )
    missing = [head for head in initialized if head not in fresh]
    if not config.has_pooler and POOLER in missing:
        # The pooler belongs to the head, which is named.
        missing.remove(POOLER)
    if missing:
        lacking = " and no ".join(missing)
        log(f"{checkpoint.source}: has no {lacking}; initialized randomly.")
    return initialized
