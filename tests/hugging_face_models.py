"""Checkpoints of every class of transformers, the same on every machine.

Also used where the golden data is made, so it needs NumPy alone.
"""

import hashlib
import json
import pathlib

import numpy as np

from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    NEXT_SENTENCE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Checkpoint,
    head_shapes,
    read_arrays,
)
from bert_tf.checkpoints.layout import encoder_shapes
from bert_tf.config import BertConfig
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

LABELS = ("négatif", "neutral", "positive")
TEXTS = (
    "Élan vital, déjà vu!",
    "elan vital deja vu",
    "ÉLAN DÉJÀ naïve Ångström",
    "漢字and kana カナ, 中文",
    "tab\there\u200b zero\u00a0width\u00ad and\x00 control",
    "a,b.c-d's 3.14 [brackets] $5",
    "STRASSE straße İstanbul ǅ ﬁ",
    "",
    "vitality vitals déjàs",
)
TOKENS = (
    *SPECIAL_TOKENS,
    *"élan elan Élan ÉLAN vital ##ity ##s deja déjà DÉJÀ vu naive".split(),
    *"naïve angstrom Ångström 漢 字 中 文 and kana カ ##ナ ##ー tab".split(),
    *"here zero width control a b c d s 3 14 brackets 5 strasse".split(),
    *"straße STRASSE istanbul İstanbul fi , . - ' [ ] $ !".split(),
)
# Class of transformers -> our heads, what differs from the plain
# configuration, and the number of labels.
CLASSES = {
    "BertModel": ((POOLER,), {}),
    "BertForPreTraining": (
        (POOLER, MASKED_LM, NEXT_SENTENCE),
        {"layer_norm_eps": 1e-7},
    ),
    "BertForMaskedLM": ((MASKED_LM,), {"causal": True}),
    "BertForNextSentencePrediction": (
        (POOLER, NEXT_SENTENCE),
        {"hidden_act": "relu"},
    ),
    "BertForSequenceClassification": (
        (POOLER, CLASSIFIER),
        {"hidden_act": "gelu_erf"},
    ),
    "BertForTokenClassification": ((TOKEN_CLASSIFIER,), {"hidden_act": "tanh"}),
    "BertForQuestionAnswering": ((SPAN,), {"type_vocab_size": 3}),
    "BertForMultipleChoice": (
        (POOLER, MULTIPLE_CHOICE),
        {"hidden_act": "linear"},
    ),
}

# Outputs of transformers, Model Garden and TensorFlow Hub by our names.
_OURS = {
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
    "sop_logits": "next_sentence_logits",
    "mlm_logits": "masked_lm_logits",
    "next_sentence": "next_sentence_logits",
}


def by_our_names(recorded, place="", head=""):
    """Recorded outputs below a place, `logits` being those of a head."""
    ours = {}
    for key, value in recorded.items():
        start, _, name = key.rpartition("/")
        if start != place or name == "end_logits":
            continue
        if name == "start_logits":
            ends = recorded[key.replace("start", "end")]
            ours["span_logits"] = np.stack([value, ends], -1)
        elif name == "logits":
            turned = head == "multiple_choice"
            ours[f"{head}_logits"] = value.T if turned else value
        else:
            ours[_OURS.get(name, name)] = value
    return ours


def tiny_config(**changes) -> BertConfig:
    """Two layers of width 8 with two heads."""
    values = {
        "vocab_size": len(TOKENS),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 12,
        **changes,
    }
    return BertConfig(**values)


def random_arrays(config, heads, labels=3, seed=0) -> dict[str, np.ndarray]:
    """Distinct float32 values for the encoder and some heads."""
    shapes = encoder_shapes(config)
    for head in heads:
        shapes |= head_shapes(config)[head]
    random = np.random.default_rng(seed)
    arrays = {}
    for name, shape in shapes.items():
        size = [labels if n is None else n for n in shape]
        values = random.normal(0.0, 0.3, size)
        if name.endswith("gamma"):
            values += 1.0
        arrays[name] = values.astype(np.float32)
    return arrays


def tiny_checkpoint(name: str, lower_case: bool = True) -> Checkpoint:
    """A checkpoint that is written as a class of transformers."""
    heads, changes = CLASSES[name]
    config = tiny_config(**changes)
    labelled = {CLASSIFIER, TOKEN_CLASSIFIER} & set(heads)
    return Checkpoint(
        config,
        random_arrays(config, heads, seed=list(CLASSES).index(name)),
        vocabulary=Vocabulary(TOKENS),
        lower_case=lower_case,
        labels=LABELS if labelled else None,
    )


def inputs(types: int = 2) -> dict[str, np.ndarray]:
    """Ids, a mask with padding and segments, int32 [3, 10]."""
    random = np.random.default_rng(7)
    lengths = np.array([[10], [6], [8]])
    return {
        "input_ids": random.integers(0, 24, (3, 10)).astype("int32"),
        "input_mask": (np.arange(10)[None] < lengths).astype("int32"),
        "segment_ids": random.integers(0, types, (3, 10)).astype("int32"),
    }


def digest(folder: pathlib.Path) -> str:
    """The SHA-256 of a folder's configuration and arrays."""
    config = json.loads((folder / "config.json").read_text())
    hashed = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, array in sorted(
        read_arrays(folder / "model.safetensors").items()
    ):
        hashed.update(f"{name} {array.dtype} {array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()
