"""XLM-R (Conneau et al. 2020): a RoBERTa with a unigram tokenizer."""

import dataclasses
from typing import ClassVar

from bert_tf.architectures.parts import Architecture
from bert_tf.architectures.roberta import NAMES, RobertaConfig
from bert_tf.text.unigram import Unigram


@dataclasses.dataclass(frozen=True)
class XlmRobertaConfig(RobertaConfig):
    """Configuration of an XLM-R (Conneau et al. 2020, section 3)."""

    model_type: ClassVar[str] = "xlm-roberta"
    title: ClassVar[str] = "XLM-R"


_THEIRS = NAMES.hugging_face
XLM_ROBERTA = Architecture(
    config=XlmRobertaConfig,
    names=dataclasses.replace(
        NAMES,
        hugging_face=dataclasses.replace(
            _THEIRS,
            body=f"XLM{_THEIRS.body}",
            classes={
                f"XLM{name}": heads for name, heads in _THEIRS.classes.items()
            },
            # transformers 5.23.0, XLMRobertaConfig.
            keys={**_THEIRS.keys, "vocab_size": ("vocab_size", 250002)},
            keras_layers={
                name.replace("tf_roberta", "tfxlm_roberta"): theirs
                for name, theirs in _THEIRS.keras_layers.items()
            },
        ),
        keras_hub=dataclasses.replace(
            NAMES.keras_hub,
            backbone=f"XLM{NAMES.keras_hub.backbone}",
            tasks=tuple(f"XLM{name}" for name in NAMES.keras_hub.tasks),
        ),
    ),
    tokenizer=Unigram,
    encoder="bert_tf.encoders.xlm_roberta.XlmRobertaEncoder",
)
