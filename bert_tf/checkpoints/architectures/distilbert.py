"""DistilBERT's arrays under the names of every family.

Google has released none; ours are BERT's names. A classifier's hidden layer
lies in the place of the pooler.
"""

from bert_tf.checkpoints.parts import (
    BILSTM,
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    HuggingFaceForm,
    KerasHubForm,
    Kind,
    Names,
    Part,
)
from bert_tf.config import ALL_DENSE, QUERY_VALUE

_HIDDEN, _INNER = "hidden_size", "intermediate_size"
_ATTENTION = "attention_size"
_HUB_EMBEDDING = "model/layers/token_and_position_embedding"
_EMBEDDINGS = (
    Part(
        Kind.TABLE,
        "bert/embeddings/word_embeddings",
        ("vocab_size", _HIDDEN),
        "distilbert.embeddings.word_embeddings",
        keras_hub=f"{_HUB_EMBEDDING}/token_embedding",
    ),
    Part(
        Kind.TABLE,
        "bert/embeddings/position_embeddings",
        ("max_position_embeddings", _HIDDEN),
        "distilbert.embeddings.position_embeddings",
        keras_hub=f"{_HUB_EMBEDDING}/position_embedding",
    ),
    Part(
        Kind.NORM,
        "bert/embeddings/LayerNorm",
        (_HIDDEN,),
        "distilbert.embeddings.LayerNorm",
        keras_hub="model/layers/layer_normalization",
    ),
)
_OURS, _THEIRS = "bert/encoder/layer_{}", "distilbert.transformer.layer.{}"
_HUB = "model/layers/transformer_encoder{}"
_LAYER = (
    *(
        Part(
            Kind.DENSE,
            f"{_OURS}/attention/self/{name}",
            (_HIDDEN, _ATTENTION),
            f"{_THEIRS}.attention.{name[0]}_lin",
            keras_hub=f"{_HUB}/_self_attention_layer/{name}_dense",
        )
        for name in ("query", "key", "value")
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/attention/output/dense",
        (_ATTENTION, _HIDDEN),
        f"{_THEIRS}.attention.out_lin",
        keras_hub=f"{_HUB}/_self_attention_layer/output_dense",
    ),
    Part(
        Kind.NORM,
        f"{_OURS}/attention/output/LayerNorm",
        (_HIDDEN,),
        f"{_THEIRS}.sa_layer_norm",
        keras_hub=f"{_HUB}/_self_attention_layer_norm",
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/intermediate/dense",
        (_HIDDEN, _INNER),
        f"{_THEIRS}.ffn.lin1",
        keras_hub=f"{_HUB}/_feedforward_intermediate_dense",
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/output/dense",
        (_INNER, _HIDDEN),
        f"{_THEIRS}.ffn.lin2",
        keras_hub=f"{_HUB}/_feedforward_output_dense",
    ),
    Part(
        Kind.NORM,
        f"{_OURS}/output/LayerNorm",
        (_HIDDEN,),
        f"{_THEIRS}.output_layer_norm",
        keras_hub=f"{_HUB}/_feedforward_layer_norm",
    ),
)
_HUB_HEAD = "task/layers/masked_lm_head"
_HEADS = {
    POOLER: (
        Part(
            Kind.DENSE,
            "bert/pooler/dense",
            (_HIDDEN, _HIDDEN),
            "pre_classifier",
            keras_hub="task/layers/dense",
        ),
    ),
    MASKED_LM: (
        Part(
            Kind.DENSE,
            "cls/predictions/transform/dense",
            (_HIDDEN, _HIDDEN),
            "vocab_transform",
            keras_hub=f"{_HUB_HEAD}/_intermediate_dense",
        ),
        Part(
            Kind.NORM,
            "cls/predictions/transform/LayerNorm",
            (_HIDDEN,),
            "vocab_layer_norm",
            keras_hub=f"{_HUB_HEAD}/_intermediate_layer_norm",
        ),
        Part(
            Kind.VECTOR,
            "cls/predictions/output_bias",
            ("vocab_size",),
            "vocab_projector.bias",
            keras_hub=_HUB_HEAD,
        ),
    ),
    CLASSIFIER: (
        Part(
            Kind.OUTPUT,
            "",
            (None, _HIDDEN),
            "classifier",
            keras_hub="task/layers/dense_1",
        ),
    ),
    SPAN: (Part(Kind.OUTPUT, "cls/squad/", (2, _HIDDEN), "qa_outputs"),),
    TOKEN_CLASSIFIER: (
        Part(
            Kind.OUTPUT,
            "cls/token_classification/",
            (None, _HIDDEN),
            "classifier",
        ),
    ),
    MULTIPLE_CHOICE: (
        Part(Kind.OUTPUT, "cls/multiple_choice/", (1, _HIDDEN), "classifier"),
    ),
    BILSTM: tuple(
        Part(Kind.LSTM, f"bert/bilstm/{direction}", (), "")
        for direction in ("forward", "backward")
    ),
}

DISTILBERT = Names(
    embeddings=_EMBEDDINGS,
    layer=_LAYER,
    heads=_HEADS,
    hugging_face=HuggingFaceForm(
        body="DistilBertModel",
        prefix="distilbert.",
        # transformers 5.23.0, DistilBertConfig.
        keys={
            "vocab_size": ("vocab_size", 30522),
            "dim": ("hidden_size", 768),
            "n_layers": ("num_hidden_layers", 6),
            "n_heads": ("num_attention_heads", 12),
            "hidden_dim": ("intermediate_size", 3072),
            "activation": ("hidden_act", "gelu"),
            "dropout": ("hidden_dropout_prob", 0.1),
            "attention_dropout": ("attention_probs_dropout_prob", 0.1),
            "max_position_embeddings": ("max_position_embeddings", 512),
            "initializer_range": ("initializer_range", 0.02),
            "seq_classif_dropout": ("seq_classif_dropout", 0.2),
            "qa_dropout": ("qa_dropout", 0.1),
        },
        # Positions from sines are a table in the files all the same.
        fixed={
            "is_decoder": False,
            "pruned_heads": {},
            "quantization_config": None,
        },
        classes={
            "DistilBertModel": (),
            "DistilBertForMaskedLM": (MASKED_LM,),
            "DistilBertForSequenceClassification": (CLASSIFIER,),
            "DistilBertForTokenClassification": (TOKEN_CLASSIFIER,),
            "DistilBertForQuestionAnswering": (SPAN,),
            "DistilBertForMultipleChoice": (MULTIPLE_CHOICE,),
        },
        words_copy="vocab_projector.weight",
        bias="vocab_projector.bias",
        bias_copy="",
        targets={
            QUERY_VALUE: ("q_lin", "v_lin"),
            ALL_DENSE: ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"),
        },
    ),
    keras_hub=KerasHubForm(
        backbone="DistilBertBackbone",
        arguments={
            "vocabulary_size": (int, ("vocab_size",)),
            "num_layers": (int, ("num_hidden_layers",)),
            "num_heads": (int, ("num_attention_heads",)),
            "hidden_dim": (int, ("hidden_size",)),
            "intermediate_dim": (int, ("intermediate_size",)),
            "dropout": (
                float,
                ("hidden_dropout_prob", "attention_probs_dropout_prob"),
            ),
            "max_sequence_length": (int, ("max_position_embeddings",)),
        },
        # distil_bert_backbone.py: the exact form, and 1e-12 throughout.
        computation={"hidden_act": "gelu_erf", "layer_norm_eps": 1e-12},
        tasks=(
            "DistilBertMaskedLM",
            "DistilBertTextClassifier",
            "DistilBertClassifier",
        ),
    ),
)
