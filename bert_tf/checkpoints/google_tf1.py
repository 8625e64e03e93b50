"""Reads and writes TF1 folders of google-research/bert, albert and electra.

bert_config.json                        the architecture in Google's keys; for
                                        ELECTRA in ours, or absent; ALBERT's is
                                        albert_config.json
bert_model.ckpt.index, .data-*-of-*     variables by name; model.ckpt-STEP.*
                                        in the folder of a run
checkpoint                              names the newest of several
labels.json                             ours: names of the labels of a head

Our names and shapes are those of the variables of a BERT or an ALBERT, see
`layout.py`.

A checkpoint of ELECTRA has the discriminator (electra/encoder,
discriminator_predictions), the generator (generator/encoder,
generator_predictions), or both; they share the embeddings (electra/embeddings).
Released folders have no configuration: sizes follow from the arrays, with
attention heads of size 64.
"""

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.architectures.parts import MASKED_LM, REPLACED_TOKENS
from bert_tf.checkpoints.checkpoint import Checkpoint, read_labels, write_labels
from bert_tf.checkpoints.layout import all_parts, head_shapes, names_of
from bert_tf.checkpoints.recognition import find_prefix, remains
from bert_tf.checkpoints.stored import (
    Stored,
    read_stored,
    stored_as_ours,
    without_prefix,
    write_stored,
)
from bert_tf.checkpoints.tensorflow_reader import open_checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, writing_failed
from bert_tf.files import partial_path, write_text, written_beside
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.progress import log, log_once
from bert_tf.recipe import read_json_object

CONFIG_FILE, ALBERT_CONFIG = "bert_config.json", "albert_config.json"
# The keys that google-research/bert reads, and the epsilon, which it does not
# read: `write` adds it if it is not 1e-12.
_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
)
# Keys of released files without effect in Google's code.
_UNREAD_KEYS = (
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "backward_compatible",
)
# Further keys of albert_config.json.
_ALBERT_KEYS = ("embedding_size", "num_hidden_groups", "inner_group_num")
# Keys of albert_config.json without effect, with their values.
_ALBERT_UNREAD = {
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}
# What the names of an ALBERT's blocks begin with.
_GROUPS = "bert/encoder/transformer/group_"
# Keys that change the computation, and their only supported value.
_CONSTANT = {"directionality": "bidi", "pooler_type": "first_token_transform"}
# Defaults of modeling.py that differ from ours.
_DEFAULTS = {"type_vocab_size": 16}
# The epsilon of layer normalisation, which has no key.
_EPSILON = 1e-12
PREFIX = "bert_model.ckpt"
# Variables of the training: the slots of Google's optimizer and of
# tf.compat.v1.train.AdamOptimizer, and the step.
_IGNORED = (
    r"global_step",
    r".+/adam_[mv]",
    r".+/Adam(_1)?",
    r"(.+/)?beta[12]_power",
    # Loss scaling in float16.
    r"(.+/)?(current_loss_scale|loss_scale|good_steps|bad_steps)",
)
_AVERAGES = r".+/ExponentialMovingAverage(/biased|/local_step)?"
# Prefixes of the arrays of ELECTRA's encoders.
_DISCRIMINATOR, _GENERATOR = "electra", "generator"


def read_google_config(path: pathlib.Path) -> BertConfig:
    """Reads the architecture of a BERT in Google's keys."""
    values = _google_values(path)
    for key, only in _CONSTANT.items():
        if (value := values.pop(key, only)) != only:
            raise UserError(f"{path}: {key} is {value!r}; a BERT has {only!r}.")
    for key in _UNREAD_KEYS:
        values.pop(key, None)
    keys = {key: key for key in _KEYS}
    return config_of_keys(values, keys, _DEFAULTS, path)


def _read_albert_config(path: pathlib.Path) -> BertConfig:
    """Reads the architecture of an ALBERT in Google's keys."""
    # Not imported to read a BERT.
    from bert_tf.architectures.albert import AlbertConfig

    values = _google_values(path)
    for key in _ALBERT_UNREAD:
        values.pop(key, None)
    known = {*_KEYS, *_ALBERT_KEYS}
    if unknown := [key for key in values if key not in known]:
        raise UserError(
            f"{path}: unknown key {', '.join(unknown)}; it takes "
            f"{', '.join(sorted(known))}."
        )
    values = {"model_type": AlbertConfig.model_type, **values}
    return BertConfig.from_dict(values, str(path))


def _google_values(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        raise UserError(
            f"{path.parent}: has no {path.name}; put the one that the "
            "weights were trained with beside them."
        )
    values = read_json_object(path)
    if isinstance(values.get("hidden_act"), str):
        values["hidden_act"] = values["hidden_act"].lower()
    return values


def config_of_keys(
    values: Mapping[str, Any],
    keys: Mapping[str, str],
    defaults: Mapping[str, Any],
    path: pathlib.Path,
) -> BertConfig:
    """Returns the architecture of a BERT in the keys of another program.

    Args:
      values: the keys and values; embedding_size is optional.
      keys: maps the program's keys to ours.
      defaults: the program's defaults where they differ from ours, by our key.
      path: the file, for errors.

    Raises:
      UserError: a key or value is invalid, or the width of the embeddings is
        not that of the layers.
    """
    ours = dict(values)
    width = ours.pop("embedding_size", None)
    if unknown := [str(key) for key in ours if key not in keys]:
        raise UserError(
            f"{path}: unknown key {', '.join(unknown)}; it takes "
            f"{', '.join(keys)}."
        )
    ours = {keys[key]: value for key, value in ours.items()}
    config = BertConfig.from_dict({**defaults, **ours}, str(path))
    if width not in (None, config.hidden_size):
        raise UserError(
            f"{path}: embedding_size is {width} and hidden_size "
            f"{config.hidden_size}; a BERT has one width."
        )
    return config


def read(
    folder: pathlib.Path, ignore: str = "", generator: bool = False
) -> Checkpoint:
    """Reads the configuration, the weights and the labels.

    Args:
      folder: the folder.
      ignore: see `read_stored`.
      generator: whether to read the generator of an ELECTRA; otherwise the
        discriminator is read, if there is one.

    Raises:
      UserError: the files are damaged, do not fit each other, or have no
        generator.
    """
    if fault := remains(folder):
        raise UserError(fault)
    prefix = find_prefix(folder, object_based=False)
    source = str(prefix)
    words = [
        f"{body}/embeddings/word_embeddings" for body in ("bert", "electra")
    ]
    found = without_prefix(open_checkpoint(prefix), words, source)
    averages = [name for name in found if re.fullmatch(_AVERAGES, name)]
    if averages:
        log_once(
            f"{source}: holds moving averages of {len(averages)} weights "
            f"({averages[0]} ...) and the weights themselves; the weights are "
            "read, as in google-research/bert."
        )
    body, others = _body(found, source, generator)
    if body:
        config = _electra_config(folder / CONFIG_FILE, found, body, source)
        table = _electra_table(config, body)
    elif any(name.startswith(_GROUPS) for name in found):
        config = _read_albert_config(folder / ALBERT_CONFIG)
        table = stored_as_ours(config)
    else:
        config = read_google_config(folder / CONFIG_FILE)
        table = stored_as_ours(config)
    arrays, left_out = read_stored(
        config,
        table,
        found.renamed({name: name for name in found if name not in others}),
        (*_IGNORED, _AVERAGES),
        source,
        ignore,
    )
    left_out = (*left_out, *others)
    return Checkpoint(config, arrays, left_out=left_out, **read_labels(folder))


def _body(
    found: LazyArrays, source: str, generator: bool
) -> tuple[str, tuple[str, ...]]:
    """Returns which encoder of an ELECTRA to read, and arrays of the other.

    The first is `_DISCRIMINATOR` or `_GENERATOR`, or empty for a BERT.
    """
    bodies = [
        body
        for body in (_DISCRIMINATOR, _GENERATOR)
        if any(name.startswith(f"{body}/encoder/") for name in found)
    ]
    if generator and f"{_GENERATOR}_predictions/output_bias" not in found:
        raise UserError(
            f"`generator`=True: {source} holds no generator "
            "(generator_predictions/output_bias)."
        )
    if not bodies:
        return "", ()
    # If all weights are shared, the one encoder is both.
    body = bodies[-1 if generator else 0]
    others = r"(?!)"
    if body == _GENERATOR:
        others = r"electra/(?!embeddings/)|discriminator_predictions/"
    elif _GENERATOR in bodies:
        others = r"generator(_predictions)?/"
    return body, tuple(name for name in found if re.match(others, name))


def _electra_config(
    path: pathlib.Path, found: LazyArrays, body: str, source: str
) -> BertConfig:
    """Reads an ELECTRA's configuration, or derives it from its arrays.

    Source: google-research/electra, util/training_utils.py, get_bert_config,
    and run_pretraining.py, get_generator_config.
    """
    # Not imported to read a BERT.
    from bert_tf.architectures.electra import ElectraConfig

    if path.exists():
        config = BertConfig.from_json(path)
        if type(config) is not ElectraConfig:
            raise UserError(
                f"{path}: model_type is {config.model_type}, and {source} "
                f"holds an {ElectraConfig.model_type}; put it there, or remove "
                "the file."
            )
        return config
    layer = rf"{body}/encoder/layer_(\d+)/"
    layers = {m[1] for name in found if (m := re.match(layer, name))}
    try:
        (words, width), (types, _), (positions, _) = (
            found.shapes[f"electra/embeddings/{table}_embeddings"]
            for table in ("word", "token_type", "position")
        )
        hidden, inner = found.shapes[
            f"{body}/encoder/layer_0/intermediate/dense/kernel"
        ]
    except (KeyError, ValueError):
        raise UserError(
            f"{source}: lacks arrays that determine an ELECTRA's sizes; "
            f"put its {path.name} beside it."
        ) from None
    heads = max(1, hidden // 64)
    log(
        f"{path.parent}: has no {path.name}; attention heads are taken to be "
        f"{hidden // heads} wide, as google-research/electra makes them."
    )
    try:
        return ElectraConfig(
            vocab_size=words,
            hidden_size=hidden,
            num_hidden_layers=len(layers),
            num_attention_heads=heads,
            intermediate_size=inner,
            max_position_embeddings=positions,
            type_vocab_size=types,
            embedding_size=width,
        )
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _electra_table(config: BertConfig, body: str) -> dict[str, Stored]:
    """Returns how each array with a name of Google's is stored."""
    table = {}
    for part in all_parts(config):
        theirs = part.google_tf1
        if theirs and not theirs.startswith("electra/embeddings/"):
            theirs = re.sub("^electra/", f"{body}/", theirs)
        for name, shape in part.shapes(config).items():
            if theirs:
                end = name.removeprefix(part.ours)
                table[name] = Stored(theirs + end, shape)
    return table


def write(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the configuration, the weights and the labels.

    "gelu_erf" is written unchanged: Google's code fails on it, whereas its own
    names would compute something else.

    Raises:
      UserError: the model is causal, or Google has no names for its
        architecture or for one of its heads.
    """
    config = checkpoint.config
    table = stored_as_ours(config)
    names = names_of(config)
    if not names.google_config:
        table = _table_to_write(checkpoint)
    if config.causal:
        raise UserError(
            "causal is true: google-research/bert computes no causal model; "
            "write the bert_tf layout instead."
        )
    _write_variables(folder, write_stored(checkpoint.arrays, table))
    # The masked LM head has no keys: save_checkpoint refuses heads with another
    # activation or epsilon.
    values = {key: getattr(config, key) for key in _KEYS}
    if config.layer_norm_eps == _EPSILON:
        del values["layer_norm_eps"]
    if names.google_config == ALBERT_CONFIG:
        values |= {key: getattr(config, key) for key in _ALBERT_KEYS}
        values |= _ALBERT_UNREAD
    elif not names.google_config:
        # For other programs; google-research/electra reads no such file.
        values = config.to_dict()
    name = names.google_config or CONFIG_FILE
    write_text(folder / name, json.dumps(values, indent=2) + "\n")
    write_labels(folder, checkpoint.labels, checkpoint.problem_type)


def _table_to_write(checkpoint: Checkpoint) -> dict[str, Stored]:
    """Returns how an ELECTRA is stored: a generator if masked LM is its head.

    With both heads it is a discriminator that shares its encoder.
    """
    config, heads = checkpoint.config, checkpoint.heads
    generates = MASKED_LM in heads and REPLACED_TOKENS not in heads
    table = _electra_table(config, _GENERATOR if generates else _DISCRIMINATOR)
    if not table:
        raise UserError(
            f"model_type is {config.model_type}: google-research/bert has no "
            "names for its arrays; write the bert_tf or hugging_face layout."
        )
    shapes = head_shapes(config)
    homeless = [h for h in heads if not set(shapes[h]) <= set(table)]
    if homeless:
        raise UserError(
            f"{checkpoint.source}: google-research/electra has no names for "
            f"{' and '.join(homeless)}; write the bert_tf or hugging_face "
            f"layout, or leave them out (`drop_heads`={','.join(homeless)})."
        )
    return table


def notices(config: BertConfig) -> list[str]:
    """Returns a line for each difference of Google's computation."""
    if not names_of(config).google_config:
        forms = config.hidden_act, config.layer_norm_eps
        if forms == ("gelu_erf", _EPSILON):
            return []
        return [
            f"hidden_act is {forms[0]} and layer_norm_eps {forms[1]}; "
            f"google-research/electra takes gelu_erf and {_EPSILON}."
        ]
    lines = []
    if config.hidden_act == "gelu_erf":
        lines.append(
            "hidden_act is gelu_erf, which google-research/bert refuses: its "
            'gelu is the tanh form; with "gelu" in bert_config.json it runs, '
            "and differs by about 1e-3."
        )
    if config.layer_norm_eps != _EPSILON:
        lines.append(
            f"layer_norm_eps is {config.layer_norm_eps}, which "
            "google-research/bert does not read: it computes with "
            f"{_EPSILON}."
        )
    return lines


def _write_variables(
    folder: pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> None:
    import tensorflow as tf

    names = sorted(arrays)
    with (
        # The index is renamed last: without it the checkpoint does not exist.
        written_beside(folder / f"{PREFIX}.index") as index,
        written_beside(folder / f"{PREFIX}.data-00000-of-00001") as data,
        partial_path(folder / PREFIX) as beside,
        tf.device("CPU:0"),
    ):
        beside.mkdir()
        prefix = beside / PREFIX
        # SaveV2 needs all tensors at once. A constant would also keep its NumPy
        # array in memory.
        tensors = [
            tf.identity(tf.constant(arrays[name], tf.float32)) for name in names
        ]
        try:
            tf.raw_ops.SaveV2(
                prefix=str(prefix),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=tensors,
            )
        except tf.errors.OpError as error:
            raise writing_failed(error, folder) from None
        os.replace(f"{prefix}.index", index)
        os.replace(f"{prefix}.data-00000-of-00001", data)
