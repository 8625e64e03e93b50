"""RoBERTa (Liu et al. 2019): its configuration and its arrays.

The hidden layer of transformers' classifiers is the pooler here; models of
multiple choice have another one. Google has released no RoBERTa.
"""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from bert_tf.architectures.bert import HUB_TABLES, KERAS_LAYERS
from bert_tf.architectures.bert import NAMES as BERT
from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Architecture,
    HuggingFaceForm,
    KerasHubForm,
    Names,
    Part,
    task_classes,
)
from bert_tf.config import BertConfig
from bert_tf.text.byte_bpe import ByteLevelBpe


@dataclasses.dataclass(frozen=True)
class RobertaConfig(
    BertConfig,
    defaults={
        "hidden_act": "gelu_erf",
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    },
):
    """Configuration of a RoBERTa (Liu et al. 2019, section 3.1).

    A BERT with one segment and without a pooler, whose position table starts
    with rows for padding: 514 rows for 512 tokens. The pooler is the dense
    layer with tanh of classifiers.
    """

    model_type: ClassVar[str] = "roberta"
    title: ClassVar[str] = "RoBERTa"
    has_pooler: ClassVar[bool] = False
    drops_pooled: ClassVar[bool] = True
    # After the row of padding, whose id is 1.
    first_position: ClassVar[int] = 2


def _body(parts: Iterable[Part]) -> tuple[Part, ...]:
    """BERT's parts with RoBERTa's names."""
    return tuple(
        part.renamed(
            part.hugging_face.replace("bert.", "roberta.", 1),
            HUB_TABLES.get(part.ours, part.keras_hub),
        )
        for part in parts
    )


# KerasHub's names of parts of heads.
_HUB = {
    "bert/pooler/dense": "task/layers/dense",
    "": "task/layers/dense_1",
}
# transformers' names of the heads' parts.
_HEADS = {
    POOLER: ("classifier.dense",),
    MASKED_LM: ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    CLASSIFIER: ("classifier.out_proj",),
    SPAN: ("qa_outputs",),
    TOKEN_CLASSIFIER: ("classifier",),
    MULTIPLE_CHOICE: ("classifier",),
}
NAMES = Names(
    embeddings=_body(BERT.embeddings),
    layer=_body(BERT.layer),
    heads={
        head: tuple(
            part.renamed(theirs, _HUB.get(part.ours, part.keras_hub))
            for part, theirs in zip(BERT.heads[head], names, strict=True)
        )
        for head, names in _HEADS.items()
    },
    hugging_face=HuggingFaceForm(
        body="RobertaModel",
        prefix="roberta.",
        # transformers 5.23.0, RobertaConfig.
        keys={
            **BERT.hugging_face.keys,
            "vocab_size": ("vocab_size", 50265),
        },
        fixed={**BERT.hugging_face.fixed, "pad_token_id": 1},
        classes={
            "RobertaModel": (),
            "RobertaForMaskedLM": (MASKED_LM,),
            **task_classes("Roberta"),
        },
        words_copy="lm_head.decoder.weight",
        bias="lm_head.bias",
        bias_copy="lm_head.decoder.bias",
        targets=BERT.hugging_face.targets,
        poolers={MULTIPLE_CHOICE: "roberta.pooler.dense"},
        # modeling_roberta.py, RobertaLMHead.
        masked_lm_act="gelu_erf",
        # Not trained by its pre-training.
        unread=r"(roberta\.)?pooler\.dense\.(weight|bias)",
        keras_layers={
            "tf_roberta_main_layer": "roberta",
            "tf_roberta_layer": "{}",
            "tf_roberta_lm_head": "lm_head",
            "tf_roberta_classification_head": "classifier",
            **KERAS_LAYERS,
        },
    ),
    keras_hub=KerasHubForm(
        backbone="RobertaBackbone",
        arguments={
            name: argument
            for name, argument in BERT.keras_hub.arguments.items()
            if name != "num_segments"
        },
        # roberta_backbone.py, also of the masked LM head.
        computation={"hidden_act": "gelu_erf", "layer_norm_eps": 1e-5},
        tasks=(
            "RobertaMaskedLM",
            "RobertaTextClassifier",
            "RobertaClassifier",
        ),
    ),
)
ROBERTA = Architecture(
    config=RobertaConfig,
    names=NAMES,
    tokenizer=ByteLevelBpe,
    encoder="bert_tf.encoders.roberta.RobertaEncoder",
)
