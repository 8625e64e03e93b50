"""RoBERTa (Liu et al. 2019): its configuration and its arrays.

Google has released none; ours are BERT's but for what is said here. A
classifier's hidden layer lies in the place of the pooler, and the models of
choices have one of their own there.
"""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from bert_tf.architectures.bert import KERAS_LAYERS
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
    Names,
    Part,
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
    """Sizes of a RoBERTa (Liu et al. 2019, section 3.1).

    A BERT of one segment without pooler, the first of whose positions are those
    of padding: 512 tokens have 514. Classifiers put a layer with tanh in the
    pooler's place, so that is what ours is here.
    """

    model_type: ClassVar[str] = "roberta"
    has_pooler: ClassVar[bool] = False
    # Behind that of padding, whose id is 1.
    first_position: ClassVar[int] = 2

    @property
    def pooler_dropout(self) -> float:
        """Dropout on the token that is pooled."""
        return self.hidden_dropout_prob

    @property
    def pooled_dropout(self) -> float:
        """Dropout on what classes and choices are scored by."""
        return self.hidden_dropout_prob


def _body(parts: Iterable[Part]) -> tuple[Part, ...]:
    """BERT's parts under their names here."""
    return tuple(
        part.renamed(part.hugging_face.replace("bert.", "roberta.", 1))
        for part in parts
    )


# transformers' names of the parts of heads.
_HEADS = {
    POOLER: ("classifier.dense",),
    MASKED_LM: ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    CLASSIFIER: ("classifier.out_proj",),
    SPAN: ("qa_outputs",),
    TOKEN_CLASSIFIER: ("classifier",),
    MULTIPLE_CHOICE: ("classifier",),
}
_NAMES = Names(
    embeddings=_body(BERT.embeddings),
    layer=_body(BERT.layer),
    heads={
        head: tuple(map(Part.renamed, BERT.heads[head], names))
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
            "RobertaForSequenceClassification": (CLASSIFIER,),
            "RobertaForTokenClassification": (TOKEN_CLASSIFIER,),
            "RobertaForQuestionAnswering": (SPAN,),
            "RobertaForMultipleChoice": (MULTIPLE_CHOICE,),
        },
        words_copy="lm_head.decoder.weight",
        bias="lm_head.bias",
        bias_copy="lm_head.decoder.bias",
        targets=BERT.hugging_face.targets,
        poolers={MULTIPLE_CHOICE: "roberta.pooler.dense"},
        # modeling_roberta.py, RobertaLMHead.
        masked_lm_act="gelu_erf",
        # Its pre-training has trained no pooler.
        unread=r"(roberta\.)?pooler\.dense\.(weight|bias)",
        keras_layers={
            "tf_roberta_main_layer": "roberta",
            "tf_roberta_layer": "{}",
            "tf_roberta_lm_head": "lm_head",
            "tf_roberta_classification_head": "classifier",
            **KERAS_LAYERS,
        },
    ),
)
ROBERTA = Architecture(
    config=RobertaConfig,
    names=_NAMES,
    tokenizer=ByteLevelBpe,
    encoder="bert_tf.encoders.roberta.RobertaEncoder",
)
