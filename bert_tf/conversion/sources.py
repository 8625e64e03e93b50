"""The variables in a source's own files, by the part of BERT that they are.

Names, layouts and configurations are written down here a second time, apart
from `bert_tf.checkpoints`, so that a slip in one of the two shows as a
difference of the outputs.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints import (
    base_folder,
    open_arrays,
    recognise,
)
from bert_tf.checkpoints.google_files import (
    open_variables as open_google_variables,
)
from bert_tf.checkpoints.h5_file import open_h5_arrays
from bert_tf.conversion.hugging_face_variables import (
    AdapterVariables,
    open_hugging_face,
)
from bert_tf.conversion.model_garden_variables import open_model_garden
from bert_tf.conversion.numpy_forward import (
    GOOGLE_ACTIVATIONS,
    Form,
    SourceVariables,
)
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import read_json_object


def open_variables(
    folder: pathlib.Path, family: str, generator: bool = False
) -> SourceVariables:
    """Opens the variables of a folder.

    Args:
      folder: the folder.
      family: what `recognise` calls it.
      generator: of a google_tf1 folder the generator, and not a discriminator.
    """
    if family == "google_tf1":
        return _open_google(folder, generator)
    return {
        "bert_tf": _open_bert_tf,
        "model_garden": open_model_garden,
        "hugging_face": open_hugging_face,
        "keras_hub": _open_keras_hub,
        "adapter": _open_adapter,
    }[family](folder)


class GoogleVariables(SourceVariables):
    """Names of google-research/bert, which our own folders use too.

    Kernels are [in, out]; the weights of output layers are [labels, H].

    Args:
      config: what bert_config.json holds.
      arrays: the arrays of the files by name.
    """

    TABLES = {
        "word": "bert/embeddings/word_embeddings",
        "segment": "bert/embeddings/token_type_embeddings",
        "position": "bert/embeddings/position_embeddings",
    }
    LINEAR = {
        "query": "bert/encoder/layer_{}/attention/self/query/",
        "key": "bert/encoder/layer_{}/attention/self/key/",
        "value": "bert/encoder/layer_{}/attention/self/value/",
        "attention_output": "bert/encoder/layer_{}/attention/output/dense/",
        "intermediate": "bert/encoder/layer_{}/intermediate/dense/",
        "output": "bert/encoder/layer_{}/output/dense/",
    }
    HEADS = {
        "pooler": "bert/pooler/dense/",
        "masked_lm": "cls/predictions/transform/dense/",
        "next_sentence": "cls/seq_relationship/output_",
        "classifier": "output_",
        "span": "cls/squad/output_",
        "token_classifier": "cls/token_classification/output_",
        "multiple_choice": "cls/multiple_choice/output_",
        "bilstm": "bert/bilstm/{}/",
        "embeddings_project": "bert/embeddings_project/",
        "replaced_tokens": "discriminator_predictions/dense/",
        "replaced_tokens_output": "discriminator_predictions/dense_1/",
    }
    NORMS = {
        "embeddings": "bert/embeddings/LayerNorm/",
        "attention": "bert/encoder/layer_{}/attention/output/LayerNorm/",
        "output": "bert/encoder/layer_{}/output/LayerNorm/",
        "masked_lm": "cls/predictions/transform/LayerNorm/",
    }
    NORM_ENDS = ("gamma", "beta")
    WORD_BIAS = "cls/predictions/output_bias"

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        super().__init__(Form.of(config, GOOGLE_ACTIVATIONS), arrays)
        self.heads = {
            part: name
            for part, name in self.HEADS.items()
            if f"{name}bias".format("forward") in arrays
        }

    def kernel_and_bias(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Kernels are used as they lie, output weights transposed."""
        bias = self.array(f"{name}bias")
        if name.endswith("output_"):
            return self.array(f"{name}weights").T, bias
        return self.array(f"{name}kernel"), bias


def _open_bert_tf(folder: pathlib.Path) -> GoogleVariables:
    return GoogleVariables(
        read_json_object(folder / "bert_config.json"),
        open_arrays(folder / "bert_model.safetensors"),
    )


class GoogleElectraVariables(GoogleVariables):
    """Names of google-research/electra, of a discriminator or a generator.

    Args:
      config: what bert_config.json holds; of a folder without it, empty.
      arrays: the arrays of the files by name.
      generator: whether to take the generator where there are both.
    """

    TABLES = {
        part: name.replace("bert/", "electra/")
        for part, name in GoogleVariables.TABLES.items()
    }
    WORD_BIAS = "generator_predictions/output_bias"

    def __init__(
        self,
        config: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        generator: bool,
    ) -> None:
        layers = {
            body: {
                found[1]
                for name in arrays
                if (found := re.match(rf"{body}/encoder/layer_(\d+)/", name))
            }
            for body in ("electra", "generator")
        }
        body = "electra"
        if layers["generator"] and (generator or not layers["electra"]):
            body = "generator"
        mine, theirs = f"{body}/encoder/", "bert/encoder/"
        self.LINEAR = {
            part: name.replace(theirs, mine)
            for part, name in self.LINEAR.items()
        }
        self.NORMS = {
            "embeddings": "electra/embeddings/LayerNorm/",
            "attention": self.NORMS["attention"].replace(theirs, mine),
            "output": self.NORMS["output"].replace(theirs, mine),
            "masked_lm": "generator_predictions/LayerNorm/",
        }
        width = len(arrays[f"{mine}layer_0/output/dense/bias"])
        sizes = {
            "model_type": "electra",
            "num_hidden_layers": len(layers[body]),
            # util/training_utils.py, get_bert_config.
            "num_attention_heads": max(1, width // 64),
            "hidden_act": "gelu_erf",
        }
        super().__init__({**sizes, **config}, arrays)
        heads = {"embeddings_project": f"{body}/embeddings_project/"}
        if body == "electra":
            dense = "discriminator_predictions/dense"
            heads["replaced_tokens"] = f"{dense}/"
            heads["replaced_tokens_output"] = f"{dense}_1/"
        if body == "generator" or not layers["generator"]:
            heads["masked_lm"] = "generator_predictions/dense/"
        self.heads = {
            part: name
            for part, name in heads.items()
            if f"{name}bias" in arrays
        }


def _open_google(folder: pathlib.Path, generator: bool) -> GoogleVariables:
    path = folder / "bert_config.json"
    arrays, _ = open_google_variables(folder)
    if "electra/embeddings/word_embeddings" not in arrays:
        return GoogleVariables(read_json_object(path), arrays)
    config = read_json_object(path) if path.exists() else {}
    return GoogleElectraVariables(config, arrays, generator)


def _open_adapter(folder: pathlib.Path) -> AdapterVariables:
    base = base_folder(folder)
    return AdapterVariables(
        open_variables(base, recognise(base)),
        read_json_object(folder / "adapter_config.json"),
        open_arrays(folder / "adapter_model.safetensors"),
    )


class KerasHubVariables(SourceVariables):
    """Paths in KerasHub's HDF5 files, the first layer's number written out.

    Kernels are [in, out], those of attention have the heads apart.

    Args:
      config: the arguments of the BertBackbone.
      arrays: the arrays by file (model or task) and path.
    """

    _LAYER = "model/layers/transformer_encoder_{}/"
    TABLES = {
        "word": "model/layers/reversible_embedding/vars/0",
        "segment": "model/layers/embedding/vars/0",
        "position": "model/layers/position_embedding/vars/0",
    }
    LINEAR = {
        "query": f"{_LAYER}_self_attention_layer/query_dense/vars/",
        "key": f"{_LAYER}_self_attention_layer/key_dense/vars/",
        "value": f"{_LAYER}_self_attention_layer/value_dense/vars/",
        "attention_output": f"{_LAYER}_self_attention_layer/output_dense/vars/",
        "intermediate": f"{_LAYER}_feedforward_intermediate_dense/vars/",
        "output": f"{_LAYER}_feedforward_output_dense/vars/",
    }
    HEADS = {
        "pooler": "model/layers/dense/vars/",
        "masked_lm": "task/layers/masked_lm_head/_intermediate_dense/vars/",
        "classifier": "task/layers/dense/vars/",
    }
    NORMS = {
        "embeddings": "model/layers/layer_normalization/vars/",
        "attention": f"{_LAYER}_self_attention_layer_norm/vars/",
        "output": f"{_LAYER}_feedforward_layer_norm/vars/",
        "masked_lm": (
            "task/layers/masked_lm_head/_intermediate_layer_norm/vars/"
        ),
    }
    NORM_ENDS = ("0", "1")
    WORD_BIAS = "task/layers/masked_lm_head/vars/0"

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        # Not in the files: bert_backbone.py has the tanh form and 1e-12,
        # masked_lm_head.py as bert_masked_lm.py builds it the exact form and
        # 1e-5.
        form = Form(
            layers=config["num_layers"],
            heads=config["num_heads"],
            activation="tanh_gelu",
            epsilon=1e-12,
            masked_lm_activation="erf_gelu",
            masked_lm_epsilon=1e-5,
        )
        super().__init__(form, arrays)
        self.heads = {
            part: name
            for part, name in self.HEADS.items()
            if f"{name}0" in arrays
        }

    def kernel_and_bias(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Kernels are used as they lie."""
        return self.array(f"{name}0"), self.array(f"{name}1")


class DistilBertHubVariables(KerasHubVariables):
    """Paths in the files of KerasHub's DistilBertBackbone."""

    _EMBEDDING = "model/layers/token_and_position_embedding/"
    TABLES = {
        "word": f"{_EMBEDDING}token_embedding/vars/0",
        "position": f"{_EMBEDDING}position_embedding/vars/0",
    }
    HEADS = {
        "pooler": "task/layers/dense/vars/",
        "masked_lm": KerasHubVariables.HEADS["masked_lm"],
        "classifier": "task/layers/dense_1/vars/",
    }

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        super().__init__(config, arrays)
        # distil_bert_backbone.py has the exact form.
        self.form = dataclasses.replace(
            self.form,
            activation="erf_gelu",
            pooler_activation="relu",
            segments=False,
            model_type="distilbert",
        )


class ElectraHubVariables(KerasHubVariables):
    """Paths in the files of KerasHub's ElectraBackbone, which has no tasks."""

    # Its pooler, which no task reads, is the last Dense.
    HEADS = {"embeddings_project": "model/layers/dense/vars/"}

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        super().__init__(config, arrays)
        self.form = dataclasses.replace(self.form, model_type="electra")
        if config["embedding_dim"] == config["hidden_dim"]:
            self.heads = {}


def _open_keras_hub(folder: pathlib.Path) -> KerasHubVariables:
    whole = folder / "model.weights.h5"
    files = [whole] if whole.exists() else folder.glob("model_*.weights.h5")
    opened: dict[str, tuple[LazyArrays, str]] = {}
    for path in (*sorted(files), folder / "task.weights.h5"):
        if path.exists():
            arrays = open_h5_arrays(path)
            place = "task" if path.name.startswith("task") else "model"
            for name in arrays:
                # Keras 2.13 and early Keras 3 wrote other names.
                today = (
                    name.replace("_layer_checkpoint_dependencies/", "layers/")
                    .replace(
                        "_self_attention_layer/_", "_self_attention_layer/"
                    )
                    .replace("transformer_encoder/", "transformer_encoder_0/")
                )
                opened[f"{place}/{today}"] = arrays, name
    preset = read_json_object(folder / "config.json")
    names = {
        "DistilBertBackbone": DistilBertHubVariables,
        "ElectraBackbone": ElectraHubVariables,
    }
    opened_as = names.get(preset["class_name"], KerasHubVariables)
    return opened_as(
        preset["config"],
        LazyArrays(
            {new: arrays.shapes[old] for new, (arrays, old) in opened.items()},
            lambda new: opened[new][0][opened[new][1]],
        ),
    )
