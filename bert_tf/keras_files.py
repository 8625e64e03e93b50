"""Registers the classes of this package with Keras without importing them.

Keras finds classes of its files by registered names, which are registered when
their modules are imported. So that `import keras, bert_tf`, in either order,
suffices to load a file, a placeholder of each class is registered at once; it
imports the module on first use.
"""

import importlib
import importlib.machinery
import sys
import types
from typing import Any

from bert_tf.architecture_list import ALL_ARCHITECTURES
from bert_tf.libraries import import_of_keras

# The module of each class that is registered as "bert_tf>name".
CLASSES = {
    "AdamW": "bert_tf.optimization",
    "BiLSTM": "bert_tf.layers.bilstm",
    "BertPretrainer": "bert_tf.pretraining.pretrainer",
    "Dense": "bert_tf.layers.base",
    "Dropout": "bert_tf.layers.base",
    "ElectraPretrainer": "bert_tf.pretraining.electra",
    "Embeddings": "bert_tf.layers.embeddings",
    "FactorizedEmbeddings": "bert_tf.layers.embeddings",
    "FeatureTagger": "bert_tf.families.token_classification.features",
    "GlorotDense": "bert_tf.layers.base",
    "Lamb": "bert_tf.optimization",
    "LayerMix": "bert_tf.families.token_classification.features",
    "LayerNorm": "bert_tf.layers.base",
    "LeftToRightLanguageModeling": "bert_tf.pretraining.objective",
    "LinearWarmupDecay": "bert_tf.optimization",
    "MaskedLMHead": "bert_tf.layers.heads",
    "MaskedLanguageModeling": "bert_tf.pretraining.objective",
    "NextSentenceHead": "bert_tf.layers.heads",
    "Pooler": "bert_tf.layers.heads",
    "ReplacedTokenDetection": "bert_tf.pretraining.objective",
    "ReplacedTokensHead": "bert_tf.layers.heads",
    "RotaryAttention": "bert_tf.layers.rotary",
    "SelfAttention": "bert_tf.layers.attention",
    "StableAdamW": "bert_tf.optimization",
    "SentenceOrderPrediction": "bert_tf.pretraining.objective",
    "TaskModel": "bert_tf.families.task_model",
    "TextClassifier": "bert_tf.inference.text_classifier",
    "TransformerBlock": "bert_tf.layers.block",
    "_MergeChoices": "bert_tf.models",
    "_SplitChoices": "bert_tf.models",
    **{
        name: f"bert_tf.encoders.{listed.data.partition('.')[0]}"
        for listed in ALL_ARCHITECTURES.values()
        for name in listed.keras
    },
}


class _Unloaded:
    """A placeholder of a class, which is imported on attribute access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        module = importlib.import_module(CLASSES[self._name])
        return getattr(getattr(module, self._name), attribute)


def _register() -> None:
    import keras

    known = keras.saving.get_custom_objects()
    for name in CLASSES:
        known.setdefault(f"bert_tf>{name}", _Unloaded(name))


class _KerasFinder:
    """Finds Keras by the other finders, and registers after its import.

    The import writes nothing into the home folder.
    """

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Finds the spec of Keras; see `importlib.abc.MetaPathFinder`."""
        # TensorFlow contains an old Keras, which writes the same file.
        if name not in ("keras", "tensorflow"):
            return None
        specs = (
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if finder is not self
        )
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                with import_of_keras():
                    execute(module)
                if name == "keras":
                    _register()

            # The loader is only used for this import.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register_with_keras() -> None:
    """Registers every class now or when Keras is imported."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _KerasFinder())
