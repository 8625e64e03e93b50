"""The variables in transformers' files and in peft's, by the part they are.

As in `sources.py`, names are written down here a second time.
"""

import dataclasses
import pathlib
import re
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from bert_tf.architecture_list import find_architecture
from bert_tf.checkpoints.hugging_face import word_tables
from bert_tf.checkpoints.hugging_face_files import open_weights
from bert_tf.checkpoints.pytorch_names import as_pytorch, saved_class
from bert_tf.checkpoints.stored import without_prefix
from bert_tf.conversion.numpy_forward import Form, SourceVariables
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object

# The last level of names in TensorFlow's and Flax' files, where it differs from
# PyTorch's; a kernel, [in, out] there, keeps its name.
_ENDS = {
    "embeddings": "weight",
    "embedding": "weight",
    "gamma": "weight",
    "scale": "weight",
    "beta": "bias",
}


def by_endings(arrays: LazyArrays) -> LazyArrays:
    """Arrays of TensorFlow's or Flax' files by all that their names end with.

    Names there are paths, which begin with those of models around the BERT:
    bert/tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0.
    """
    names: dict[str, str] = {}
    for name in arrays:
        if re.search(r"(^|/)(optimizer\w*|\.OPTIMIZER_SLOT|metrics)/", name):
            continue
        path = name.removesuffix(":0").replace("_._", "/").split("/")
        *levels, end = (level.split("___")[-1] for level in path)
        for start in range(len(levels)):
            ending = ".".join((*levels[start:], _ENDS.get(end, end)))
            names.setdefault(ending, name)
    return arrays.renamed(names)


class HuggingFaceVariables(SourceVariables):
    """Names of transformers' BERT; every weight is [out, in], a kernel not.

    Args:
      config: what config.json holds.
      arrays: the arrays of the files by name.
    """

    TABLES = {
        "word": "embeddings.word_embeddings.weight",
        "segment": "embeddings.token_type_embeddings.weight",
        "position": "embeddings.position_embeddings.weight",
    }
    LINEAR = {
        "query": "encoder.layer.{}.attention.self.query.",
        "key": "encoder.layer.{}.attention.self.key.",
        "value": "encoder.layer.{}.attention.self.value.",
        "attention_output": "encoder.layer.{}.attention.output.dense.",
        "intermediate": "encoder.layer.{}.intermediate.dense.",
        "output": "encoder.layer.{}.output.dense.",
    }
    HEADS = {
        "pooler": "pooler.dense.",
        "masked_lm": "cls.predictions.transform.dense.",
        "next_sentence": "cls.seq_relationship.",
        "span": "qa_outputs.",
    }
    # These are all called classifier; the class says which it is.
    CLASSIFIERS = {
        "BertForSequenceClassification": "classifier",
        "BertForTokenClassification": "token_classifier",
        "BertForMultipleChoice": "multiple_choice",
    }
    NORMS = {
        "embeddings": "embeddings.LayerNorm.",
        "attention": "encoder.layer.{}.attention.output.LayerNorm.",
        "output": "encoder.layer.{}.output.LayerNorm.",
        "masked_lm": "cls.predictions.transform.LayerNorm.",
    }
    NORM_ENDS = ("weight", "bias")
    WORD_BIAS = "cls.predictions.bias"
    PREFIX = "bert."
    OUTPUT = "cls.predictions.decoder."
    # transformers, activations.py, ACT2FN.
    ACTIVATIONS = {
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

    def __init__(self, config: Mapping[str, Any], arrays: LazyArrays) -> None:
        # Without the prefix that all but a plain BertModel have. Old files
        # call a norm's weight and bias gamma and beta, and some have the bias
        # of the words under its tied name alone.
        names = {
            name.removeprefix(self.PREFIX)
            .replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias"): name
            for name in arrays
        }
        tied = f"{self.OUTPUT}bias"
        if tied in names:
            names.setdefault(self.WORD_BIAS, tied)
        super().__init__(
            Form.of(config, self.ACTIVATIONS, "is_decoder"),
            arrays.renamed(names),
        )
        classes = config.get("architectures") or ()
        shared = [self.CLASSIFIERS[c] for c in classes if c in self.CLASSIFIERS]
        self.heads = self.heads_in(names, shared[-1] if shared else None)

    @classmethod
    def heads_in(
        cls, names: Container[str], shared: str | None
    ) -> dict[str, str]:
        """The names of the heads that there are, by their parts.

        Args:
          names: of the arrays in the files, without the prefix.
          shared: the head whose arrays are called classifier, or None.
        """
        heads = dict(cls.HEADS)
        if shared is not None:
            heads.setdefault(shared, "classifier.")
        return {
            part: name for part, name in heads.items() if f"{name}bias" in names
        }

    def output_table(self) -> np.ndarray:
        """The masked LM head's own copy of the word table, if it has one."""
        name = f"{self.OUTPUT}weight"
        return self.array(name) if name in self.arrays else self.table("word")

    def kernel_and_bias(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Every weight is used transposed, a kernel as it lies."""
        bias = self.array(f"{name}bias")
        if f"{name}kernel" in self.arrays:
            return self.array(f"{name}kernel"), bias
        return self.array(f"{name}weight").T, bias


class DistilBertVariables(HuggingFaceVariables):
    """Names of transformers' DistilBERT."""

    TABLES = {
        "word": "embeddings.word_embeddings.weight",
        "position": "embeddings.position_embeddings.weight",
    }
    LINEAR = {
        "query": "transformer.layer.{}.attention.q_lin.",
        "key": "transformer.layer.{}.attention.k_lin.",
        "value": "transformer.layer.{}.attention.v_lin.",
        "attention_output": "transformer.layer.{}.attention.out_lin.",
        "intermediate": "transformer.layer.{}.ffn.lin1.",
        "output": "transformer.layer.{}.ffn.lin2.",
    }
    HEADS = {
        "pooler": "pre_classifier.",
        "masked_lm": "vocab_transform.",
        "span": "qa_outputs.",
    }
    CLASSIFIERS = {
        "DistilBertForSequenceClassification": "classifier",
        "DistilBertForTokenClassification": "token_classifier",
        "DistilBertForMultipleChoice": "multiple_choice",
    }
    NORMS = {
        "embeddings": "embeddings.LayerNorm.",
        "attention": "transformer.layer.{}.sa_layer_norm.",
        "output": "transformer.layer.{}.output_layer_norm.",
        "masked_lm": "vocab_layer_norm.",
    }
    WORD_BIAS = "vocab_projector.bias"
    PREFIX = "distilbert."
    OUTPUT = "vocab_projector."

    def __init__(self, config: Mapping[str, Any], arrays: LazyArrays) -> None:
        # Its configuration has names of its own.
        keys = {
            "num_hidden_layers": config.get("n_layers", 6),
            "num_attention_heads": config.get("n_heads", 12),
            "hidden_act": config.get("activation", "gelu"),
        }
        super().__init__({**config, **keys}, arrays)


class ElectraVariables(HuggingFaceVariables):
    """Names of transformers' ELECTRA, where they are not BERT's."""

    HEADS = {
        "embeddings_project": "embeddings_project.",
        "pooler": "classifier.dense.",
        "masked_lm": "generator_predictions.dense.",
        "replaced_tokens": "discriminator_predictions.dense.",
        "replaced_tokens_output": "discriminator_predictions.dense_prediction.",
        "classifier": "classifier.out_proj.",
        "span": "qa_outputs.",
    }
    CLASSIFIERS = {
        "ElectraForTokenClassification": "token_classifier",
        "ElectraForMultipleChoice": "multiple_choice",
    }
    NORMS = {
        **HuggingFaceVariables.NORMS,
        "masked_lm": "generator_predictions.LayerNorm.",
    }
    WORD_BIAS = "generator_lm_head.bias"
    PREFIX = "electra."
    OUTPUT = "generator_lm_head."

    def __init__(self, config: Mapping[str, Any], arrays: LazyArrays) -> None:
        # ElectraConfig's defaults are not BertConfig's.
        super().__init__({"num_attention_heads": 4, **config}, arrays)
        # modeling_electra.py, ElectraGeneratorPredictions.
        self.form = dataclasses.replace(
            self.form, masked_lm_activation="erf_gelu"
        )

    @classmethod
    def heads_in(
        cls, names: Container[str], shared: str | None
    ) -> dict[str, str]:
        """As of the others; a choice has a pooler of another name."""
        summary = "sequence_summary.summary."
        found = super().heads_in(names, shared)
        if f"{summary}bias" in names:
            found["pooler"] = summary
        return found


# Names of transformers by architecture.
HUGGING_FACE = {
    "bert": HuggingFaceVariables,
    "distilbert": DistilBertVariables,
    "electra": ElectraVariables,
}


def open_hugging_face(folder: pathlib.Path) -> HuggingFaceVariables:
    """Opens the variables of a folder of transformers."""
    config = read_json_object(folder / "config.json")
    model_type = config.get("model_type", "bert")
    kind = find_architecture(model_type, str(folder)).config
    arrays = open_weights(folder)
    arrays = without_prefix(arrays, word_tables(kind), str(folder))
    if saved := saved_class(arrays, kind):
        config["architectures"] = [saved]
    if any("/vars/" in name for name in arrays):
        # Numbered in place of named: there is one way to read that.
        classes = config.get("architectures")
        arrays = as_pytorch(arrays, kind, classes, str(folder))
    elif any("/" in name for name in arrays):
        arrays = by_endings(arrays)
    return HUGGING_FACE[model_type](config, arrays)


class AdapterVariables(SourceVariables):
    """A base model's variables, with low-rank matrices beside its kernels.

    Names of peft; every weight is [out, in].

    Args:
      base: the variables of the base model.
      config: what adapter_config.json holds.
      arrays: the arrays of the adapter by name.
    """

    def __init__(
        self,
        base: SourceVariables,
        config: Mapping[str, Any],
        arrays: LazyArrays,
    ) -> None:
        theirs = HUGGING_FACE[base.form.model_type]
        names = {
            name.removeprefix("base_model.model.").removeprefix(
                theirs.PREFIX
            ): name
            for name in arrays
        }
        super().__init__(base.form, arrays.renamed(names))
        self.base = base
        self.theirs = theirs
        self.rank = config["r"]
        rank = self.rank**0.5 if config.get("use_rslora") else self.rank
        self.scale = config["lora_alpha"] / rank
        self.began = config.get("init_lora_weights")
        # Of what the base has beside its layers, what the model has too.
        shared = {
            "SEQ_CLS": "classifier",
            "TOKEN_CLS": "token_classifier",
            None: "multiple_choice",
        }.get(config["task_type"])
        self.own = theirs.heads_in(names, shared)
        self.heads = {
            part: name
            for part, name in base.heads.items()
            if part in ("pooler", "bilstm", "embeddings_project")
        } | self.own
        if "bert/bilstm/forward/bias" in names:
            self.own["bilstm"] = self.heads["bilstm"] = "bert/bilstm/{}/"

    def kernel_and_bias(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Those of a head; every weight is used transposed."""
        return self.array(f"{name}weight").T, self.array(f"{name}bias")

    def table(self, name: str) -> np.ndarray:
        """That of the base."""
        return self.base.table(name)

    def norm(
        self, part: str, layer: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """That of the base."""
        return self.base.norm(part, layer)

    def lstm(self, direction: str) -> list[np.ndarray]:
        """The adapter's own, or that of the base."""
        if "bilstm" in self.own:
            return super().lstm(direction)
        return self.base.lstm(direction)

    def linear(
        self, inputs: np.ndarray, part: str, layer: int | None = None
    ) -> np.ndarray:
        """What the base gives, and the product with the low-rank matrices."""
        if part in self.own:
            return super().linear(inputs, part)
        outputs = self.base.linear(inputs, part, layer)
        if layer is None:
            return outputs
        name = self.theirs.LINEAR[part].format(layer)
        if f"{name}lora_A.weight" not in self.arrays:
            return outputs
        first, second = (
            self.array(f"{name}lora_{matrix}.weight").astype(np.float64).T
            for matrix in "AB"
        )
        outputs = outputs + self.scale * (inputs @ first @ second)
        if self.began not in ("pissa", "olora"):
            return outputs
        # What the matrices began with was taken out of the base (peft,
        # tuners/lora/layer.py, pissa_init and olora_init).
        empty = np.zeros((1, len(first)))
        bias = self.base.linear(empty, part, layer)
        kernel = self.base.linear(np.eye(len(first)), part, layer) - bias
        if self.began == "pissa":
            left, values, right = np.linalg.svd(kernel)
            left = left[:, : self.rank] * values[: self.rank]
            return outputs - inputs @ left @ right[: self.rank]
        columns, rows = np.linalg.qr(kernel.T)
        taken = columns[:, : self.rank] @ rows[: self.rank]
        return outputs - self.scale * inputs @ taken.T
