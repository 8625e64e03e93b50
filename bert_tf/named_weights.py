"""Weights of a model by the names of Google's TF1 checkpoints, strictly."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints import (
    BILSTM,
    LORA,
    MASKED_LM,
    POOLER,
    Checkpoint,
    head_shapes,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, refuse_faults
from bert_tf.layers.base import LowRank
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


@dataclasses.dataclass(frozen=True)
class Weight:
    """One array of a checkpoint in a variable of a model.

    Attributes:
      variable: the variable.
      third: which third of the variable's last axis holds the array, where
        the checkpoint keeps query, key and value apart and the model keeps
        them side by side; None for all of it.
      transposed: whether the variable is the array's transpose.
    """

    variable: keras.Variable
    third: int | None = None
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        shape = tuple(self.variable.shape)
        if self.third is not None:
            shape = (*shape[:-1], shape[-1] // 3)
        return shape[::-1] if self.transposed else shape

    def array(self) -> np.ndarray:
        """The value as a float32 array."""
        value = keras.ops.convert_to_numpy(self.variable)
        value = np.asarray(value, dtype=np.float32)
        if self.third is not None:
            value = np.split(value, 3, axis=-1)[self.third]
        return value.T if self.transposed else value


NamedWeights = dict[str, Weight]


def dense_weights(name: str, layer: Any) -> NamedWeights:
    """The kernel and bias of a dense layer under a name, and their update."""
    named = {
        f"{name}/kernel": Weight(layer.kernel),
        f"{name}/bias": Weight(layer.bias),
    }
    if layer.update is not None:
        named |= low_rank_weights(name, layer.update)
    return named


def low_rank_weights(name: str, update: LowRank) -> NamedWeights:
    """Both matrices of the update of the kernel under a name."""
    return {
        f"{name}/lora_a": Weight(update.a),
        f"{name}/lora_b": Weight(update.b),
    }


def is_low_rank(name: str) -> bool:
    """Whether a variable is a matrix of an update, by its name."""
    return name.endswith(("lora_a", "lora_b"))


def norm_weights(name: str, layer: Any) -> NamedWeights:
    """The gamma and beta of a layer normalisation under a name."""
    return {
        f"{name}/gamma": Weight(layer.gamma),
        f"{name}/beta": Weight(layer.beta),
    }


def masked_lm_weights(layer: Any) -> NamedWeights:
    """The weights of a `MaskedLMHead` under their names."""
    name = "cls/predictions"
    return {
        **dense_weights(f"{name}/transform/dense", layer.transform),
        **norm_weights(f"{name}/transform/LayerNorm", layer.layer_norm),
        f"{name}/output_bias": Weight(layer.output_bias),
    }


def replaced_tokens_weights(layer: Any) -> NamedWeights:
    """The weights of a `ReplacedTokensHead` under their names."""
    name = "discriminator_predictions/dense"
    return {
        **dense_weights(name, layer.transform),
        **dense_weights(f"{name}_1", layer.score),
    }


def lstm_weights(name: str, layer: Any) -> NamedWeights:
    """The kernels and the bias of an LSTM under a name."""
    return {
        f"{name}/kernel": Weight(layer.cell.kernel),
        f"{name}/recurrent_kernel": Weight(layer.cell.recurrent_kernel),
        f"{name}/bias": Weight(layer.cell.bias),
    }


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
