"""BERT: its arrays under the names of every family of checkpoints.

bert_tf's names are those of Google's TF1 checkpoints; names for heads that
Google does not have follow their form.
"""

from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    NEXT_SENTENCE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Architecture,
    HuggingFaceForm,
    KerasHubForm,
    Kind,
    Names,
    Part,
    task_classes,
)
from bert_tf.config import ALL_DENSE, QUERY_VALUE, BertConfig
from bert_tf.text.wordpiece import WordPiece

_HIDDEN, _INNER = "hidden_size", "intermediate_size"
_ATTENTION, _EMBEDDING = "attention_size", "embedding_size"
_EMBEDDINGS = (
    Part(
        Kind.TABLE,
        "bert/embeddings/word_embeddings",
        ("vocab_size", _EMBEDDING),
        "bert.embeddings.word_embeddings",
        "encoder/_embedding_layer/embeddings",
        "model/layers/reversible_embedding",
    ),
    Part(
        Kind.TABLE,
        "bert/embeddings/token_type_embeddings",
        ("type_vocab_size", _EMBEDDING),
        "bert.embeddings.token_type_embeddings",
        "encoder/_type_embedding_layer/embeddings",
        "model/layers/embedding",
    ),
    Part(
        Kind.TABLE,
        "bert/embeddings/position_embeddings",
        ("max_position_embeddings", _EMBEDDING),
        "bert.embeddings.position_embeddings",
        "encoder/_position_embedding_layer/embeddings",
        "model/layers/position_embedding",
    ),
    Part(
        Kind.NORM,
        "bert/embeddings/LayerNorm",
        (_EMBEDDING,),
        "bert.embeddings.LayerNorm",
        "encoder/_embedding_norm_layer",
        "model/layers/layer_normalization",
    ),
)
_OURS, _THEIRS = "bert/encoder/layer_{}", "bert.encoder.layer.{}"
_GARDEN = "encoder/_transformer_layers/{}"
_HUB = "model/layers/transformer_encoder{}"
_LAYER = (
    *(
        Part(
            Kind.DENSE,
            f"{_OURS}/attention/self/{name}",
            (_HIDDEN, _ATTENTION),
            f"{_THEIRS}.attention.self.{name}",
            f"{_GARDEN}/_attention_layer/_{name}_dense",
            f"{_HUB}/_self_attention_layer/{name}_dense",
        )
        for name in ("query", "key", "value")
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/attention/output/dense",
        (_ATTENTION, _HIDDEN),
        f"{_THEIRS}.attention.output.dense",
        f"{_GARDEN}/_attention_layer/_output_dense",
        f"{_HUB}/_self_attention_layer/output_dense",
    ),
    Part(
        Kind.NORM,
        f"{_OURS}/attention/output/LayerNorm",
        (_HIDDEN,),
        f"{_THEIRS}.attention.output.LayerNorm",
        f"{_GARDEN}/_attention_layer_norm",
        f"{_HUB}/_self_attention_layer_norm",
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/intermediate/dense",
        (_HIDDEN, _INNER),
        f"{_THEIRS}.intermediate.dense",
        f"{_GARDEN}/_intermediate_dense",
        f"{_HUB}/_feedforward_intermediate_dense",
    ),
    Part(
        Kind.DENSE,
        f"{_OURS}/output/dense",
        (_INNER, _HIDDEN),
        f"{_THEIRS}.output.dense",
        f"{_GARDEN}/_output_dense",
        f"{_HUB}/_feedforward_output_dense",
    ),
    Part(
        Kind.NORM,
        f"{_OURS}/output/LayerNorm",
        (_HIDDEN,),
        f"{_THEIRS}.output.LayerNorm",
        f"{_GARDEN}/_output_layer_norm",
        f"{_HUB}/_feedforward_layer_norm",
    ),
)
# Three heads share a name in transformers and differ by config.json.
_HEADS = {
    POOLER: (
        Part(
            Kind.DENSE,
            "bert/pooler/dense",
            (_HIDDEN, _HIDDEN),
            "bert.pooler.dense",
            "encoder/_pooler_layer",
            "model/layers/dense",
        ),
    ),
    MASKED_LM: (
        Part(
            Kind.DENSE,
            "cls/predictions/transform/dense",
            (_HIDDEN, _EMBEDDING),
            "cls.predictions.transform.dense",
            "masked_lm/dense",
            "task/layers/masked_lm_head/_intermediate_dense",
        ),
        Part(
            Kind.NORM,
            "cls/predictions/transform/LayerNorm",
            (_EMBEDDING,),
            "cls.predictions.transform.LayerNorm",
            "masked_lm/layer_norm",
            "task/layers/masked_lm_head/_intermediate_layer_norm",
        ),
        Part(
            Kind.VECTOR,
            "cls/predictions/output_bias",
            ("vocab_size",),
            "cls.predictions.bias",
            "masked_lm/bias",
            "task/layers/masked_lm_head",
        ),
    ),
    NEXT_SENTENCE: (
        Part(
            Kind.OUTPUT,
            "cls/seq_relationship/",
            (2, _HIDDEN),
            "cls.seq_relationship",
            "next_sentence/out_proj",
        ),
    ),
    CLASSIFIER: (
        Part(
            Kind.OUTPUT,
            "",
            (None, _HIDDEN),
            "classifier",
            "classifier/out_proj",
            "task/layers/dense",
        ),
    ),
    SPAN: (
        Part(
            Kind.OUTPUT,
            "cls/squad/",
            (2, _HIDDEN),
            "qa_outputs",
            "span_labeling",
        ),
    ),
    TOKEN_CLASSIFIER: (
        Part(
            Kind.OUTPUT,
            "cls/token_classification/",
            (None, _HIDDEN),
            "classifier",
            "token_classifier",
        ),
    ),
    MULTIPLE_CHOICE: (
        Part(
            Kind.OUTPUT,
            "cls/multiple_choice/",
            (1, _HIDDEN),
            "classifier",
        ),
    ),
}

_HUB_TABLES = "model/layers/token_and_position_embedding"
# KerasHub's names of the tables of relatives without segments.
HUB_TABLES = {
    "bert/embeddings/word_embeddings": f"{_HUB_TABLES}/token_embedding",
    "bert/embeddings/position_embeddings": f"{_HUB_TABLES}/position_embedding",
}
# The layers that TensorFlow's BERT and its relatives share.
KERAS_LAYERS = {
    "self_attention": "self",
    "dense_output": "output",
    "bert_output": "output",
}
NAMES = Names(
    google_config="bert_config.json",
    embeddings=_EMBEDDINGS,
    layer=_LAYER,
    heads=_HEADS,
    hugging_face=HuggingFaceForm(
        body="BertModel",
        prefix="bert.",
        # transformers 5.23.0, BertConfig.
        keys={
            "vocab_size": ("vocab_size", 30522),
            "hidden_size": ("hidden_size", 768),
            "num_hidden_layers": ("num_hidden_layers", 12),
            "num_attention_heads": ("num_attention_heads", 12),
            "intermediate_size": ("intermediate_size", 3072),
            "hidden_act": ("hidden_act", "gelu"),
            "hidden_dropout_prob": ("hidden_dropout_prob", 0.1),
            "attention_probs_dropout_prob": (
                "attention_probs_dropout_prob",
                0.1,
            ),
            "max_position_embeddings": ("max_position_embeddings", 512),
            "type_vocab_size": ("type_vocab_size", 2),
            "initializer_range": ("initializer_range", 0.02),
            "layer_norm_eps": ("layer_norm_eps", 1e-12),
        },
        fixed={
            "position_embedding_type": "absolute",
            "add_cross_attention": False,
            "is_encoder_decoder": False,
            "pruned_heads": {},
            "quantization_config": None,
        },
        classes={
            "BertModel": (),
            "BertForPreTraining": (MASKED_LM, NEXT_SENTENCE),
            "BertForMaskedLM": (MASKED_LM,),
            "BertForNextSentencePrediction": (NEXT_SENTENCE,),
            **task_classes("Bert"),
        },
        words_copy="cls.predictions.decoder.weight",
        bias="cls.predictions.bias",
        bias_copy="cls.predictions.decoder.bias",
        targets={
            QUERY_VALUE: ("query", "value"),
            # "output.dense" also matches that of attention.
            ALL_DENSE: (
                "query",
                "key",
                "value",
                "intermediate.dense",
                "output.dense",
            ),
        },
        keras_layers={
            "tf_bert_main_layer": "bert",
            "tf_bert_layer": "{}",
            "mlm": "cls",
            "nsp": "cls",
            **KERAS_LAYERS,
        },
    ),
    keras_hub=KerasHubForm(
        backbone="BertBackbone",
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
            "num_segments": (int, ("type_vocab_size",)),
        },
        # bert_backbone.py: gelu_approximate and 1e-12 throughout.
        computation={"hidden_act": "gelu", "layer_norm_eps": 1e-12},
        # bert_masked_lm.py, masked_lm_head.py: Keras' defaults.
        masked_lm={
            "masked_lm_act": "gelu_erf",
            "masked_lm_layer_norm_eps": 1e-5,
        },
        tasks=("BertMaskedLM", "BertTextClassifier", "BertClassifier"),
    ),
)

BERT = Architecture(
    config=BertConfig,
    names=NAMES,
    tokenizer=WordPiece,
    encoder="bert_tf.encoders.bert.BertEncoder",
)
