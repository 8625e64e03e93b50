"""Google's bert_config.json, of its TF1 releases and of Model Garden."""

import json
import pathlib

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.recipe import read_json_object

CONFIG_FILE = "bert_config.json"
# The keys that google-research/bert computes by, and the epsilon, which it
# does not know: `write_google_config` adds it where it is not 1e-12.
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
# Keys of the released files that no code of Google's reads.
_IGNORED = (
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "backward_compatible",
)
# Those that would mean another computation if they had another value.
_CONSTANT = {
    "directionality": "bidi",
    "pooler_type": "first_token_transform",
}
# Where the key is absent, modeling.py takes these; ours differ.
_DEFAULTS = {"type_vocab_size": 16}
# The epsilon of its layer normalisation, which no key tells.
GOOGLE_EPSILON = 1e-12


def read_google_config(path: pathlib.Path) -> BertConfig:
    """Reads the architecture.

    Raises:
      UserError: the file is missing, no JSON object, has an unknown key or
        describes a model that is no BERT.
    """
    if not path.exists():
        raise UserError(
            f"{path.parent}: has no {path.name}; put the one that the "
            "weights were trained with beside them."
        )
    values = read_json_object(path)
    for key, only in _CONSTANT.items():
        if (value := values.pop(key, only)) != only:
            raise UserError(f"{path}: {key} is {value!r}; a BERT has {only!r}.")
    for key in _IGNORED:
        values.pop(key, None)
    width = values.pop("embedding_size", None)
    if unknown := [key for key in values if key not in _KEYS]:
        raise UserError(
            f"{path}: unknown key {', '.join(unknown)}; it takes "
            f"{', '.join(_KEYS)}."
        )
    if isinstance(values.get("hidden_act"), str):
        values["hidden_act"] = values["hidden_act"].lower()
    config = BertConfig.from_dict({**_DEFAULTS, **values}, str(path))
    if width not in (None, config.hidden_size):
        raise UserError(
            f"{path}: embedding_size is {width} and hidden_size "
            f"{config.hidden_size}; a BERT has one width."
        )
    return config


def check_google_can_say(config: BertConfig) -> None:
    """Raises `UserError` for what Google's file has no words for."""
    if config.causal:
        raise UserError(
            "causal is true: google-research/bert computes no causal model; "
            "write the bert_tf layout instead."
        )


def write_google_config(path: pathlib.Path, config: BertConfig) -> None:
    """Writes the architecture in Google's keys.

    "gelu_erf" is written as it is: Google's code stops at it, where any name
    that it knows would make it compute something else.

    Raises:
      UserError: the model is causal.
    """
    check_google_can_say(config)
    # The masked LM head's own forms are not among the keys: save_checkpoint
    # has refused a head that computes otherwise than the encoder.
    values = {key: getattr(config, key) for key in _KEYS}
    if config.layer_norm_eps == GOOGLE_EPSILON:
        del values["layer_norm_eps"]
    write_text(path, json.dumps(values, indent=2) + "\n")
