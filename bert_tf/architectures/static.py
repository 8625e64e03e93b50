"""Static vectors of tokens: a table without layers (StaticEmbedding).

Source: sentence-transformers 6.2, static_embedding.py; a text's vector is the
mean of its tokens' vectors, without special tokens around it.
"""

import dataclasses
from typing import ClassVar

from bert_tf.architectures.bert import NAMES as BERT
from bert_tf.architectures.parts import Architecture, HuggingFaceForm, Names
from bert_tf.config import MEAN, BertConfig
from bert_tf.recipe import setting
from bert_tf.text.wordpiece import WordPiece


@dataclasses.dataclass(frozen=True)
class StaticConfig(
    BertConfig,
    defaults={
        "num_attention_heads": 1,
        "intermediate_size": 1,
        "hidden_dropout_prob": 0.0,
        # As in model2vec's config.json; there are no positions.
        "max_position_embeddings": 1_000_000,
        "classifier_pooling": MEAN,
    },
):
    """Configuration of a table of V vectors of H numbers."""

    model_type: ClassVar[str] = "static"
    title: ClassVar[str] = "table of static vectors"
    has_pooler: ClassVar[bool] = False
    states_pooling: ClassVar[bool] = True

    num_hidden_layers: int = setting(
        0, "Transformer blocks: none", at_least=0, at_most=0
    )
    type_vocab_size: int = setting(
        0, "number of segments: none", at_least=0, at_most=0
    )


STATIC = Architecture(
    config=StaticConfig,
    names=Names(
        embeddings=(BERT.embeddings[0].renamed("embedding"),),
        layer=(),
        heads={},
        # transformers has no class for it; `static_embedding.py` reads files.
        hugging_face=HuggingFaceForm("", "", {}, {}, {}, "", "", "", {}),
    ),
    tokenizer=WordPiece,
    encoder="bert_tf.encoders.static.StaticEncoder",
)
