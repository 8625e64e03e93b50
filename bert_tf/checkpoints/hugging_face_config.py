"""Hugging Face's config.json: to our configuration and back."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

# What a key that is missing stands for: transformers 5.23.0, BertConfig.
_DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
_DEFAULT_LABELS = 2
# Keys that change the computation, and their one value that we compute.
_FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
}
# transformers' activations.py: all but "gelu" and "gelu_python" are the tanh
# form, written in different ways.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_WRITTEN_ACTIVATIONS = {
    "gelu": "gelu_new",
    "gelu_erf": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


def read_config(values: Mapping[str, Any], path: pathlib.Path) -> BertConfig:
    """Our configuration out of a config.json.

    Keys that change nothing in the computation are left alone.

    Args:
      values: what the file holds.
      path: the file, for errors.

    Raises:
      UserError: another model than BERT, or a BERT that computes what ours
        does not.
    """
    for key, wanted in _FIXED.items():
        if values.get(key, wanted) != wanted:
            raise UserError(
                f"{path}: {key} is {values[key]!r}; {wanted!r} can be read."
            )
    ours = {key: values.get(key, value) for key, value in _DEFAULTS.items()}
    act = ours["hidden_act"]
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        raise UserError(
            f"{path}: hidden_act is {act!r}; it takes one of "
            f"{', '.join(_ACTIVATIONS)}."
        )
    ours["hidden_act"] = _ACTIVATIONS[act]
    # BertModel masks what comes later for a decoder, and that is all.
    ours["causal"] = values.get("is_decoder", False)
    try:
        return BertConfig.from_dict(ours, str(path))
    except UserError as error:
        named = str(error).startswith(str(path))
        raise error if named else UserError(f"{path}: {error}") from None


def read_labels(
    values: Mapping[str, Any], rows: int, path: pathlib.Path
) -> tuple[str, ...] | None:
    """The names of a head's labels; None for transformers' LABEL_0 and so on.

    Args:
      values: what config.json holds.
      rows: the number of labels that the head scores.
      path: the file, for errors.

    Raises:
      UserError: id2label is no list of names, or of another number of them.
    """
    names = values.get("id2label")
    if names is None:
        count = values.get("num_labels", _DEFAULT_LABELS)
        names = {str(i): f"LABEL_{i}" for i in range(rows)}
    elif not isinstance(names, dict) or not all(
        isinstance(name, str) for name in names.values()
    ):
        raise UserError(
            f"{path}: id2label must be an object that names each label, as "
            '{"0": "negative", "1": "positive"}.'
        )
    else:
        count = len(names)
    if count != rows:
        raise UserError(
            f"{path}: tells {count} labels (id2label), but the head in the "
            f"weights has {rows}."
        )
    ids = [str(i) for i in range(rows)]
    if set(names) != set(ids):
        raise UserError(
            f"{path}: id2label has the ids {', '.join(names)}; they must be "
            f"0 to {rows - 1}."
        )
    labels = tuple(names[i] for i in ids)
    return None if labels == _default_labels(rows) else labels


def _default_labels(rows: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{i}" for i in range(rows))


def config_values(
    checkpoint: Checkpoint, architecture: str, rows: int | None
) -> dict[str, Any]:
    """A config.json for a checkpoint.

    Args:
      checkpoint: what is written.
      architecture: transformers' class for it.
      rows: the number of labels of its head; None for a head without names.

    Raises:
      UserError: the checkpoint names another number of labels than the head
        has.
    """
    config = checkpoint.config
    values: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": "bert",
        **{key: getattr(config, key) for key in _DEFAULTS},
        "hidden_act": _WRITTEN_ACTIVATIONS[config.hidden_act],
        "is_decoder": config.causal,
        "pad_token_id": 0,
    }
    if rows is not None:
        labels = _labels_to_write(checkpoint.labels, rows)
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        values["label2id"] = {name: i for i, name in enumerate(labels)}
    return values


def _labels_to_write(labels: Sequence[str] | None, rows: int) -> Sequence[str]:
    if labels is None:
        return _default_labels(rows)
    if len(labels) != rows:
        raise UserError(
            f"the checkpoint names {len(labels)} labels, but its head has "
            f"{rows}."
        )
    return labels
