"""ELECTRA's arrays under the names of every family, discriminator or generator.

Our names and shapes are BERT's but for what is said here, and those of the
discriminator's head are Google's. A classifier's hidden layer lies in the place
of the pooler. In Google's checkpoints the generator's own arrays begin with
generator/ in place of electra/; see `google_tf1.py`.
"""

import dataclasses
from collections.abc import Iterable

from bert_tf.checkpoints.architectures.bert import BERT
from bert_tf.checkpoints.parts import (
    BILSTM,
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    POOLER,
    REPLACED_TOKENS,
    SPAN,
    TOKEN_CLASSIFIER,
    HuggingFaceForm,
    KerasHubForm,
    Kind,
    Names,
    Part,
)


def _body(parts: Iterable[Part]) -> tuple[Part, ...]:
    """BERT's parts under their names here."""
    return tuple(
        dataclasses.replace(
            part,
            hugging_face=part.hugging_face.replace("bert.", "electra.", 1),
            model_garden="",
            google_tf1=part.ours.replace("bert/", "electra/", 1),
        )
        for part in parts
    )


def _head(
    head: str, *hugging_face: str, google_tf1: tuple[str, ...] = ()
) -> tuple[Part, ...]:
    """The parts of a head of BERT's under their names here."""
    return tuple(
        dataclasses.replace(
            part,
            hugging_face=theirs,
            model_garden="",
            keras_hub="",
            google_tf1=googles,
        )
        for part, theirs, googles in zip(
            BERT.heads[head],
            hugging_face,
            google_tf1 or ("",) * len(hugging_face),
            strict=True,
        )
    )


_HIDDEN = "hidden_size"
_HEADS = {
    POOLER: _head(POOLER, "classifier.dense"),
    MASKED_LM: _head(
        MASKED_LM,
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head.bias",
        google_tf1=(
            "generator_predictions/dense",
            "generator_predictions/LayerNorm",
            "generator_predictions/output_bias",
        ),
    ),
    REPLACED_TOKENS: tuple(
        Part(
            Kind.DENSE,
            name,
            (_HIDDEN, size),
            theirs,
            google_tf1=name,
        )
        for name, size, theirs in (
            (
                "discriminator_predictions/dense",
                _HIDDEN,
                "discriminator_predictions.dense",
            ),
            (
                "discriminator_predictions/dense_1",
                1,
                "discriminator_predictions.dense_prediction",
            ),
        )
    ),
    CLASSIFIER: _head(CLASSIFIER, "classifier.out_proj"),
    SPAN: _head(SPAN, "qa_outputs"),
    TOKEN_CLASSIFIER: _head(TOKEN_CLASSIFIER, "classifier"),
    MULTIPLE_CHOICE: _head(MULTIPLE_CHOICE, "classifier"),
    BILSTM: BERT.heads[BILSTM],
}

ELECTRA = Names(
    embeddings=_body(BERT.embeddings),
    embeddings_project=(
        Part(
            Kind.DENSE,
            "bert/embeddings_project",
            ("embedding_size", _HIDDEN),
            "electra.embeddings_project",
            keras_hub="model/layers/dense",
            google_tf1="electra/embeddings_project",
        ),
    ),
    layer=_body(BERT.layer),
    heads=_HEADS,
    hugging_face=HuggingFaceForm(
        body="ElectraModel",
        prefix="electra.",
        # transformers 5.23.0, ElectraConfig.
        keys={
            **BERT.hugging_face.keys,
            "embedding_size": ("embedding_size", 128),
            "hidden_size": (_HIDDEN, 256),
            "num_attention_heads": ("num_attention_heads", 4),
            "intermediate_size": ("intermediate_size", 1024),
        },
        # Of the summary, what a choice between texts is scored by.
        fixed={
            **BERT.hugging_face.fixed,
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
            "summary_proj_to_labels": False,
        },
        classes={
            "ElectraModel": (),
            "ElectraForPreTraining": (REPLACED_TOKENS,),
            "ElectraForMaskedLM": (MASKED_LM,),
            "ElectraForSequenceClassification": (CLASSIFIER,),
            "ElectraForTokenClassification": (TOKEN_CLASSIFIER,),
            "ElectraForQuestionAnswering": (SPAN,),
            "ElectraForMultipleChoice": (MULTIPLE_CHOICE,),
        },
        words_copy="generator_lm_head.weight",
        bias="generator_lm_head.bias",
        bias_copy="",
        targets=BERT.hugging_face.targets,
        poolers={MULTIPLE_CHOICE: "sequence_summary.summary"},
        masked_lm_act="gelu_erf",
    ),
    keras_hub=KerasHubForm(
        backbone="ElectraBackbone",
        arguments={
            **{
                name: argument
                for name, argument in BERT.keras_hub.arguments.items()
                if name != "vocabulary_size"
            },
            "vocab_size": (int, ("vocab_size",)),
            "embedding_dim": (int, ("embedding_size",)),
        },
        # electra_backbone.py: the tanh form, other than Google's, and 1e-12.
        computation={"hidden_act": "gelu", "layer_norm_eps": 1e-12},
        tasks=(),
        # Its pooler is tanh, and no ELECTRA has been trained with one. It is
        # the second Dense, or where E is H the first.
        unread=r"model/layers/dense(_1)?/vars/[01]",
    ),
)
