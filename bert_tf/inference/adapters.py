"""Serves several LoRA adapters that share one base model in memory."""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.layout import encoder_shapes
from bert_tf.errors import UserError
from bert_tf.families.text_model import TextModel, encoder_of, signature_of
from bert_tf.inference.served_folder import served_model


def served_adapters(
    folder: str | os.PathLike,
    beside: Sequence[str | os.PathLike],
    precision: str = "float32",
) -> TextModel:
    """Opens an adapter as a model of text, with further adapters of its base.

    Args:
      folder: the adapter that has the standard signature names.
      beside: folders of further adapters of the same base; their signatures
        are named after their folders, see `TextModel.all_signatures`.
      precision: a Keras dtype policy.

    Raises:
      UserError: a folder is no adapter or has another base; a folder's name is
        no valid or no unique signature name; or see `served_model`.
    """
    served = served_model(folder, precision, merge=False)
    if not _is_adapter(served):
        raise UserError(
            f"`folder`={folder}: is no adapter (LoRA), so its weights cannot "
            "be shared; leave `beside` out."
        )
    models: dict[str, TextModel] = {}
    taken = set(served.signatures())
    for path in map(pathlib.Path, beside):
        name = path.name
        model = served_model(path, precision, merge=False)
        if not _is_adapter(model):
            raise UserError(
                f"`beside`={path}: is no adapter (LoRA); export it by itself."
            )
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise UserError(
                f"`beside`={path}: its name becomes that of a signature, which "
                "takes letters, digits and _; rename the folder."
            )
        signatures = {signature_of(name, key) for key in model.signatures()}
        if both := sorted(signatures & taken):
            raise UserError(
                f"`beside`={path}: there is a signature {both[0]} already; "
                "rename the folder."
            )
        taken |= signatures
        _share_base(model, served, path, folder)
        models[name] = model
    served.beside = models
    return served


def _is_adapter(served: TextModel) -> bool:
    return served.config is not None and served.config.lora_rank > 0


def _base_variables(served: TextModel) -> list[keras.Variable]:
    """Returns the encoder's variables without low-rank updates and pooler."""
    encoder = encoder_of(served.model)
    named = encoder.named_weights()
    names = encoder_shapes(encoder.config)
    variables = {id(named[n].variable): named[n].variable for n in names}
    return list(variables.values())


def _share_base(
    served: TextModel,
    other: TextModel,
    folder: str | os.PathLike,
    other_folder: str | os.PathLike,
) -> None:
    """Replaces a model's base by another model's, which must be equal."""
    mine, theirs = _base_variables(served), _base_variables(other)
    equal = len(mine) == len(theirs) and all(
        np.array_equal(a.numpy(), b.numpy())
        for a, b in zip(mine, theirs, strict=True)
    )
    if not equal:
        raise UserError(
            f"`beside`={folder}: is an adapter of another base model than "
            f"{other_folder}; export it by itself."
        )
    shared = {id(variable.value) for variable in mine}
    served.weights = [w for w in served.weights if id(w) not in shared]
    model = served.model

    def forward(inputs: Any) -> Any:
        values = [variable.value for variable in theirs]
        pairs = list(zip(mine, values, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            return model(inputs, training=False)

    served.forward = tf.function(forward, autograph=False)
