"""The architecture in the params.yaml that Model Garden's trainer writes."""

import pathlib
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.errors import UserError

PARAMS_FILE = "params.yaml"

# The trainer's key -> ours and, where the key is absent, the trainer's value.
_KEYS = {
    "vocab_size": ("vocab_size", 30522),
    "hidden_size": ("hidden_size", 768),
    "num_layers": ("num_hidden_layers", 12),
    "num_attention_heads": ("num_attention_heads", 12),
    "hidden_activation": ("hidden_act", "gelu"),
    "intermediate_size": ("intermediate_size", 3072),
    "dropout_rate": ("hidden_dropout_prob", 0.1),
    "attention_dropout_rate": ("attention_probs_dropout_prob", 0.1),
    "max_position_embeddings": ("max_position_embeddings", 512),
    "type_vocab_size": ("type_vocab_size", 2),
    "initializer_range": ("initializer_range", 0.02),
}
# Keys that choose what the encoder returns, not what it computes.
_IGNORED = (
    "output_range",
    "return_all_encoder_outputs",
    "return_attention_scores",
    "return_word_embeddings",
)
_ENCODERS = ("bert", "bert_v2")


def read_params(path: pathlib.Path) -> BertConfig:
    """Reads the encoder's architecture out of a run's parameters.

    Raises:
      UserError: the file is no YAML, has no encoder or one that is no BERT of
        the paper, or has an unknown key.
    """
    # Only this family's users need the package.
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not valid YAML ({reason}).") from None
    model = _part(_part(values, "task", path), "model", path, "task.")
    encoder = _part(model, "encoder", path, "task.model.")
    kind = encoder.get("type")
    if kind not in _ENCODERS:
        raise UserError(
            f"{path}: task.model.encoder.type is {kind!r}; it takes one of "
            f"{', '.join(_ENCODERS)}."
        )
    config = _encoder_config(
        _part(encoder, kind, path, "task.model.encoder."), path
    )
    _check_heads(model, config, path)
    return config


def _part(
    values: Any, key: str, path: pathlib.Path, at: str = ""
) -> dict[str, Any]:
    part = values.get(key) if isinstance(values, dict) else None
    if not isinstance(part, dict):
        raise UserError(f"{path}: has no {at}{key}.")
    return part


def _encoder_config(values: dict[str, Any], path: pathlib.Path) -> BertConfig:
    values = {key: v for key, v in values.items() if key not in _IGNORED}
    if values.pop("norm_first", False):
        raise UserError(
            f"{path}: norm_first is true; a BERT normalises after each "
            "sub-layer."
        )
    width = values.pop("embedding_size", None)
    if unknown := [key for key in values if key not in _KEYS]:
        raise UserError(
            f"{path}: unknown key {', '.join(map(str, unknown))} of the "
            f"encoder; it takes {', '.join(_KEYS)}."
        )
    config = BertConfig.from_dict(
        {
            ours: values.get(key, default)
            for key, (ours, default) in _KEYS.items()
        },
        str(path),
    )
    if width not in (None, config.hidden_size):
        raise UserError(
            f"{path}: embedding_size is {width} and hidden_size "
            f"{config.hidden_size}; a BERT has one width."
        )
    return config


def _check_heads(
    model: dict[str, Any], config: BertConfig, path: pathlib.Path
) -> None:
    """Whether the heads compute as ours do, which their weights do not say."""
    activation = model.get("mlm_activation", config.hidden_act)
    if activation != config.hidden_act:
        raise UserError(
            f"{path}: mlm_activation is {activation!r} and hidden_activation "
            f"{config.hidden_act!r}; they have to be the same."
        )
    heads = model.get("cls_heads") or []
    if not isinstance(heads, list) or not all(
        isinstance(head, dict) for head in heads
    ):
        raise UserError(f"{path}: cls_heads is {heads!r}; it takes objects.")
    for head in heads:
        for key, only in (("activation", "tanh"), ("cls_token_idx", 0)):
            if (value := head.get(key, only)) != only:
                raise UserError(
                    f"{path}: {key} of the head {head.get('name')} is "
                    f"{value!r}; a BERT has {only!r}."
                )
