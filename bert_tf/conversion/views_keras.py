"""The variables of Model Garden's and KerasHub's files as they lie there.

See `bert_tf.conversion.views`. Both keep the attention heads apart: query, key
and value are [H, N, D], the attention's output is [N, D, H].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.conversion.numpy_forward import Form, SourceVariables
from bert_tf.conversion.views import affine
from bert_tf.errors import UserError


def _attention_in(
    inputs: np.ndarray, kernel: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Query, key or value of all heads, one after the other: [B, S, N * D]."""
    heads = np.stack(
        [
            affine(inputs, kernel[:, head], bias[head])
            for head in range(kernel.shape[1])
        ],
        axis=2,
    )
    return heads.reshape(*inputs.shape[:2], -1)


def _attention_out(
    inputs: np.ndarray, kernel: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """The sum of what each head's part of [B, S, N * D] gives: [B, S, H]."""
    parts = np.split(inputs, len(kernel), axis=-1)
    summed = sum(
        part @ matrix.astype(np.float64)
        for part, matrix in zip(parts, kernel, strict=True)
    )
    return summed + bias.astype(np.float64)


class KerasHubVariables(SourceVariables):
    """Paths in KerasHub's HDF5 files; kernels are [in, out].

    Args:
      config: the arguments of the BertBackbone.
      arrays: the arrays by file (model or task) and path.
    """

    _LINEAR = {
        "query": "{}_self_attention_layer/query_dense",
        "key": "{}_self_attention_layer/key_dense",
        "value": "{}_self_attention_layer/value_dense",
        "attention_output": "{}_self_attention_layer/output_dense",
        "intermediate": "{}_feedforward_intermediate_dense",
        "output": "{}_feedforward_output_dense",
    }
    _HEAD = {
        "pooler": "model/layers/dense",
        "masked_lm": "task/layers/masked_lm_head/_intermediate_dense",
        "classifier": "task/layers/dense",
    }
    _NORM = {
        "attention": "{}_self_attention_layer_norm",
        "output": "{}_feedforward_layer_norm",
    }
    _WHOLE_NORM = {
        "embeddings": "model/layers/layer_normalization",
        "masked_lm": "task/layers/masked_lm_head/_intermediate_layer_norm",
    }
    _TABLES = {
        "word": "model/layers/reversible_embedding/vars/0",
        "segment": "model/layers/embedding/vars/0",
        "position": "model/layers/position_embedding/vars/0",
    }

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        self._arrays = arrays
        # Not in the files: bert_backbone.py has the tanh form and 1e-12,
        # masked_lm_head.py as bert_masked_lm.py builds it the exact form and
        # 1e-5.
        self.form = Form(
            layers=config["num_layers"],
            heads=config["num_heads"],
            activation="tanh_gelu",
            epsilon=1e-12,
            masked_lm_activation="erf_gelu",
            masked_lm_epsilon=1e-5,
        )
        self.parts = tuple(
            part
            for part, name in self._HEAD.items()
            if f"{name}/vars/0" in arrays
        )

    @staticmethod
    def _block(layer: int | None) -> str:
        number = f"_{layer}" if layer else ""
        return f"model/layers/transformer_encoder{number}/"

    def _pair(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._arrays[f"{name}/vars/0"], self._arrays[f"{name}/vars/1"]

    def table(self, name: str) -> np.ndarray:
        """The embedding table word, segment or position."""
        return self._arrays[self._TABLES[name]]

    def linear(
        self, inputs: np.ndarray, part: str, layer: int | None = None
    ) -> np.ndarray:
        """Kernels are used as they lie, those of attention head by head."""
        if part in self._HEAD:
            return affine(inputs, *self._pair(self._HEAD[part]))
        name = self._LINEAR[part].format(self._block(layer))
        if part in ("query", "key", "value"):
            return _attention_in(inputs, *self._pair(name))
        if part == "attention_output":
            return _attention_out(inputs, *self._pair(name))
        return affine(inputs, *self._pair(name))

    def norm(
        self, part: str, layer: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gamma and beta."""
        if part in self._WHOLE_NORM:
            return self._pair(self._WHOLE_NORM[part])
        return self._pair(self._NORM[part].format(self._block(layer)))

    def word_bias(self) -> np.ndarray:
        """The masked LM head's bias of each word."""
        return self._arrays["task/layers/masked_lm_head/vars/0"]


class ModelGardenVariables(SourceVariables):
    """Variables by their own names in Model Garden; kernels are [in, out].

    A name is what it ends with: what stands before it is what the user called
    the model.

    Args:
      config: layers, heads, activation and epsilon in the keys of
        bert_config.json.
      arrays: the arrays by the full names of their variables.
      source: the checkpoint, for errors.
    """

    _LINEAR = {
        "query": "transformer/layer_{}/self_attention/query",
        "key": "transformer/layer_{}/self_attention/key",
        "value": "transformer/layer_{}/self_attention/value",
        "attention_output": "transformer/layer_{}/self_attention/"
        "attention_output",
        "intermediate": "transformer/layer_{}/intermediate",
        "output": "transformer/layer_{}/output",
    }
    _HEAD = {
        "masked_lm": "cls/predictions/transform/dense",
        "next_sentence": "next_sentence/logits",
        "classifier": "sentence_prediction/logits",
        "token_classifier": "token/predictions/transform/logits",
        "span": "span/predictions/transform/logits",
    }
    # The hidden layer of a head stands in for the encoder's pooler.
    _POOLERS = (
        "next_sentence/pooler_dense",
        "sentence_prediction/pooler_dense",
        "pooler_transform",
    )
    _NORM = {
        "embeddings": "embeddings/layer_norm",
        "attention": "transformer/layer_{}/self_attention_layer_norm",
        "output": "transformer/layer_{}/output_layer_norm",
        "masked_lm": "cls/predictions/transform/LayerNorm",
    }
    _TABLES = {
        "word": "word_embeddings/embeddings",
        "segment": "type_embeddings/embeddings",
        "position": "position_embedding/embeddings",
    }
    # official/modeling/activations/gelu.py is the tanh form.
    _ACTIVATIONS = {
        "gelu": "tanh_gelu",
        "relu": "relu",
        "tanh": "tanh",
        "linear": "linear",
    }

    def __init__(
        self,
        config: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        source: str,
    ) -> None:
        self._arrays = arrays
        self._source = source
        activation = self._ACTIVATIONS[config.get("hidden_act", "gelu").lower()]
        epsilon = config.get("layer_norm_eps", 1e-12)
        self.form = Form(
            layers=config.get("num_hidden_layers", 12),
            heads=config.get("num_attention_heads", 12),
            activation=activation,
            epsilon=epsilon,
            masked_lm_activation=activation,
            masked_lm_epsilon=epsilon,
        )
        poolers = [p for p in self._POOLERS if self._names(f"{p}/kernel")]
        self._heads = {"pooler": poolers[0]} if poolers else {}
        self._heads |= {
            part: name
            for part, name in self._HEAD.items()
            if self._names(f"{name}/kernel")
        }
        self.parts = tuple(self._heads)

    def _names(self, end: str) -> list[str]:
        return [n for n in self._arrays if n == end or n.endswith(f"/{end}")]

    def _array(self, end: str) -> np.ndarray:
        names = self._names(end)
        if len(names) != 1:
            raise UserError(
                f"{self._source}: has {len(names)} variables called {end}; a "
                "conversion can be proved where Model Garden's own names were "
                "kept, each once."
            )
        return self._arrays[names[0]]

    def _pair(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._array(f"{name}/kernel"), self._array(f"{name}/bias")

    def table(self, name: str) -> np.ndarray:
        """The embedding table word, segment or position."""
        return self._array(self._TABLES[name])

    def linear(
        self, inputs: np.ndarray, part: str, layer: int | None = None
    ) -> np.ndarray:
        """Kernels are used as they lie, those of attention head by head."""
        if part in self._heads:
            return affine(inputs, *self._pair(self._heads[part]))
        pair = self._pair(self._LINEAR[part].format(layer))
        if part in ("query", "key", "value"):
            return _attention_in(inputs, *pair)
        if part == "attention_output":
            return _attention_out(inputs, *pair)
        return affine(inputs, *pair)

    def norm(
        self, part: str, layer: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gamma and beta."""
        name = self._NORM[part].format(layer)
        return self._array(f"{name}/gamma"), self._array(f"{name}/beta")

    def word_bias(self) -> np.ndarray:
        """The masked LM head's bias of each word."""
        return self._array("cls/predictions/output_bias/bias")
