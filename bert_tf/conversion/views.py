"""The variables of our, Google's and Hugging Face's folders as they lie there.

Names, layouts and configurations are written down here a second time, apart
from `bert_tf.checkpoints`, so that a slip in one of the two shows as a
difference of the outputs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.conversion.numpy_forward import Form, SourceVariables


def affine(
    inputs: np.ndarray, matrix: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """inputs [..., in] @ matrix [in, out] + bias [out], in float64."""
    return inputs @ matrix.astype(np.float64) + bias.astype(np.float64)


class GoogleVariables(SourceVariables):
    """Names of google-research/bert, which our own folders use too.

    Kernels are [in, out]; the weights of output layers are [labels, H].

    Args:
      config: what bert_config.json holds.
      arrays: the arrays of the files by name.
    """

    _LINEAR = {
        "query": "bert/encoder/layer_{}/attention/self/query",
        "key": "bert/encoder/layer_{}/attention/self/key",
        "value": "bert/encoder/layer_{}/attention/self/value",
        "attention_output": "bert/encoder/layer_{}/attention/output/dense",
        "intermediate": "bert/encoder/layer_{}/intermediate/dense",
        "output": "bert/encoder/layer_{}/output/dense",
        "pooler": "bert/pooler/dense",
        "masked_lm": "cls/predictions/transform/dense",
    }
    _OUTPUT = {
        "next_sentence": "cls/seq_relationship/output_",
        "classifier": "output_",
        "span": "cls/squad/output_",
        "token_classifier": "cls/token_classification/output_",
        "multiple_choice": "cls/multiple_choice/output_",
    }
    _NORM = {
        "embeddings": "bert/embeddings/LayerNorm",
        "attention": "bert/encoder/layer_{}/attention/output/LayerNorm",
        "output": "bert/encoder/layer_{}/output/LayerNorm",
        "masked_lm": "cls/predictions/transform/LayerNorm",
    }
    _TABLES = {
        "word": "bert/embeddings/word_embeddings",
        "segment": "bert/embeddings/token_type_embeddings",
        "position": "bert/embeddings/position_embeddings",
    }
    # modeling.py has the tanh form alone; our folders name the exact form.
    _ACTIVATIONS = {
        "gelu": "tanh_gelu",
        "gelu_erf": "erf_gelu",
        "relu": "relu",
        "tanh": "tanh",
        "linear": "linear",
    }

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        self._arrays = arrays
        activation = config.get("hidden_act", "gelu").lower()
        epsilon = config.get("layer_norm_eps", 1e-12)
        self.form = Form(
            layers=config.get("num_hidden_layers", 12),
            heads=config.get("num_attention_heads", 12),
            activation=self._ACTIVATIONS[activation],
            epsilon=epsilon,
            masked_lm_activation=self._ACTIVATIONS[
                config.get("masked_lm_act") or activation
            ],
            masked_lm_epsilon=config.get("masked_lm_layer_norm_eps") or epsilon,
            causal=config.get("causal", False),
        )
        self.parts = tuple(
            part
            for part, name in (
                *((p, f"{self._LINEAR[p]}/bias") for p in self._HEADS),
                *((p, f"{name}bias") for p, name in self._OUTPUT.items()),
            )
            if name in arrays
        )

    _HEADS = ("pooler", "masked_lm")

    def table(self, name: str) -> np.ndarray:
        """The embedding table word, segment or position."""
        return self._arrays[self._TABLES[name]]

    def linear(
        self, inputs: np.ndarray, part: str, layer: int | None = None
    ) -> np.ndarray:
        """Kernels are used as they lie, output weights transposed."""
        if part in self._OUTPUT:
            name = self._OUTPUT[part]
            weights = self._arrays[f"{name}weights"]
            return affine(inputs, weights.T, self._arrays[f"{name}bias"])
        name = self._LINEAR[part].format(layer)
        kernel = self._arrays[f"{name}/kernel"]
        return affine(inputs, kernel, self._arrays[f"{name}/bias"])

    def norm(
        self, part: str, layer: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gamma and beta."""
        name = self._NORM[part].format(layer)
        return self._arrays[f"{name}/gamma"], self._arrays[f"{name}/beta"]

    def word_bias(self) -> np.ndarray:
        """The masked LM head's bias of each word."""
        return self._arrays["cls/predictions/output_bias"]


class HuggingFaceVariables(SourceVariables):
    """Names of transformers; every weight is [out, in].

    Args:
      config: what config.json holds.
      arrays: the arrays of the files by name.
    """

    _LINEAR = {
        "query": "encoder.layer.{}.attention.self.query",
        "key": "encoder.layer.{}.attention.self.key",
        "value": "encoder.layer.{}.attention.self.value",
        "attention_output": "encoder.layer.{}.attention.output.dense",
        "intermediate": "encoder.layer.{}.intermediate.dense",
        "output": "encoder.layer.{}.output.dense",
        "pooler": "pooler.dense",
    }
    _HEAD = {
        "masked_lm": "cls.predictions.transform.dense",
        "next_sentence": "cls.seq_relationship",
        "span": "qa_outputs",
    }
    # These are all called classifier; the class tells which it is.
    _CLASSIFIERS = {
        "BertForSequenceClassification": "classifier",
        "BertForTokenClassification": "token_classifier",
        "BertForMultipleChoice": "multiple_choice",
    }
    _NORM = {
        "embeddings": "embeddings.LayerNorm",
        "attention": "encoder.layer.{}.attention.output.LayerNorm",
        "output": "encoder.layer.{}.output.LayerNorm",
    }
    _TABLES = {
        "word": "embeddings.word_embeddings.weight",
        "segment": "embeddings.token_type_embeddings.weight",
        "position": "embeddings.position_embeddings.weight",
    }
    # transformers, activations.py, ACT2FN.
    _ACTIVATIONS = {
        "gelu": "erf_gelu",
        "gelu_python": "erf_gelu",
        "gelu_new": "tanh_gelu",
        "gelu_fast": "tanh_gelu",
        "gelu_accurate": "tanh_gelu",
        "gelu_pytorch_tanh": "tanh_gelu",
        "gelu_python_tanh": "tanh_gelu",
        "relu": "relu",
        "tanh": "tanh",
        "linear": "linear",
    }

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        self._arrays = arrays
        activation = self._ACTIVATIONS[config.get("hidden_act", "gelu")]
        epsilon = config.get("layer_norm_eps", 1e-12)
        self.form = Form(
            layers=config.get("num_hidden_layers", 12),
            heads=config.get("num_attention_heads", 12),
            activation=activation,
            epsilon=epsilon,
            masked_lm_activation=activation,
            masked_lm_epsilon=epsilon,
            causal=config.get("is_decoder", False),
        )
        names = set(arrays)
        self._prefix = (
            "bert." if f"bert.{self._TABLES['word']}" in names else ""
        )
        heads = {"pooler": f"{self._prefix}pooler.dense", **self._HEAD}
        for architecture in config.get("architectures") or ():
            if architecture in self._CLASSIFIERS:
                heads[self._CLASSIFIERS[architecture]] = "classifier"
        self._heads = {
            part: name
            for part, name in heads.items()
            if f"{name}.bias" in names
        }
        self.parts = tuple(self._heads)

    def table(self, name: str) -> np.ndarray:
        """The embedding table word, segment or position."""
        return self._arrays[self._prefix + self._TABLES[name]]

    def output_table(self) -> np.ndarray:
        """The masked LM head's own copy of the word table, if it has one."""
        name = "cls.predictions.decoder.weight"
        return (
            self._arrays[name] if name in self._arrays else self.table("word")
        )

    def linear(
        self, inputs: np.ndarray, part: str, layer: int | None = None
    ) -> np.ndarray:
        """Every weight is used transposed."""
        name = self._heads.get(part)
        if name is None:
            name = self._prefix + self._LINEAR[part].format(layer)
        weight = self._arrays[f"{name}.weight"]
        return affine(inputs, weight.T, self._arrays[f"{name}.bias"])

    def norm(
        self, part: str, layer: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weight and bias, which old checkpoints call gamma and beta."""
        if part == "masked_lm":
            name = "cls.predictions.transform.LayerNorm"
        else:
            name = self._prefix + self._NORM[part].format(layer)
        if f"{name}.gamma" in self._arrays:
            return self._arrays[f"{name}.gamma"], self._arrays[f"{name}.beta"]
        return self._arrays[f"{name}.weight"], self._arrays[f"{name}.bias"]

    def word_bias(self) -> np.ndarray:
        """The masked LM head's bias of each word."""
        names = ("cls.predictions.bias", "cls.predictions.decoder.bias")
        return self._arrays[next(n for n in names if n in self._arrays)]
