"""Makes the golden data beside it; see README.md.

Needs transformers 4 with TensorFlow and tf-keras, and TF_USE_LEGACY_KERAS=1.
"""

import pathlib
import tempfile

import numpy as np
import tf_keras as keras
import transformers

from tests.golden.common import DISTILBERT_SIZES, SIZES, fill_keras, pack

HERE = pathlib.Path(__file__).parent
ROWS, LENGTH, VOCAB = 2, 10, 24
CONFIGS = {
    "TFBert": transformers.BertConfig(**SIZES),
    "TFDistilBert": transformers.DistilBertConfig(**DISTILBERT_SIZES),
    "TFElectra": transformers.ElectraConfig(**SIZES, embedding_size=4),
    "TFRoberta": transformers.RobertaConfig(**SIZES, type_vocab_size=1),
    "TFXLMRoberta": transformers.XLMRobertaConfig(**SIZES, type_vocab_size=1),
    "TFAlbert": transformers.AlbertConfig(
        **{**SIZES, "num_hidden_layers": 4},
        embedding_size=4,
        num_hidden_groups=2,
        inner_group_num=2,
    ),
}
LABELS = {0: "négatif", 1: "neutral", 2: "positive"}
# What differs from the plain configuration of each class.
SAVED = {
    "TFBertModel": {},
    "TFBertForPreTraining": {"hidden_act": "gelu_new"},
    "TFBertForMaskedLM": {"layer_norm_eps": 1e-7},
    "TFBertLMHeadModel": {"is_decoder": True},
    "TFBertForNextSentencePrediction": {},
    "TFBertForSequenceClassification": {
        "id2label": LABELS,
        "label2id": {name: number for number, name in LABELS.items()},
    },
    "TFBertForTokenClassification": {"num_labels": 5},
    "TFBertForQuestionAnswering": {"type_vocab_size": 3},
    "TFBertForMultipleChoice": {"hidden_act": "relu"},
    "TFDistilBertModel": {},
    "TFDistilBertForMaskedLM": {},
    "TFDistilBertForSequenceClassification": {"num_labels": 3},
    "TFDistilBertForTokenClassification": {"num_labels": 5},
    "TFDistilBertForQuestionAnswering": {},
    "TFDistilBertForMultipleChoice": {},
    "TFElectraModel": {},
    "TFElectraForPreTraining": {"embedding_size": 8},
    "TFElectraForMaskedLM": {},
    "TFElectraForSequenceClassification": {"num_labels": 3},
    "TFElectraForTokenClassification": {"num_labels": 5},
    "TFElectraForQuestionAnswering": {},
    "TFElectraForMultipleChoice": {},
    "TFRobertaModel": {},
    "TFRobertaForMaskedLM": {"hidden_act": "relu"},
    "TFRobertaForSequenceClassification": {"num_labels": 3},
    "TFRobertaForTokenClassification": {"num_labels": 5},
    "TFRobertaForQuestionAnswering": {},
    "TFRobertaForMultipleChoice": {},
    "TFXLMRobertaModel": {},
    "TFXLMRobertaForMaskedLM": {},
    "TFXLMRobertaForSequenceClassification": {"num_labels": 3},
    "TFXLMRobertaForTokenClassification": {"num_labels": 5},
    "TFXLMRobertaForQuestionAnswering": {},
    "TFXLMRobertaForMultipleChoice": {},
    "TFAlbertModel": {},
    "TFAlbertForPreTraining": {"hidden_act": "gelu"},
    "TFAlbertForMaskedLM": {},
    "TFAlbertForSequenceClassification": {"num_labels": 3},
    "TFAlbertForTokenClassification": {"num_labels": 5},
    "TFAlbertForQuestionAnswering": {
        "num_hidden_groups": 3,
        "inner_group_num": 1,
    },
    "TFAlbertForMultipleChoice": {},
}
# Classes whose weights are also saved in Keras' other formats.
KERAS = (
    "TFBertForPreTraining",
    "TFBertForTokenClassification",
    "TFDistilBertForMaskedLM",
    "TFDistilBertForSequenceClassification",
    "TFElectraForMaskedLM",
    "TFElectraForSequenceClassification",
    "TFRobertaForMaskedLM",
    "TFXLMRobertaForSequenceClassification",
    "TFAlbertForPreTraining",
)


def inputs(name: str, types: int = 2) -> dict[str, np.ndarray]:
    """Two rows, of which one is padded, as a class takes them."""
    random = np.random.default_rng(7)
    lengths = np.array([[10], [6]])
    # A token of id 1 has no position in a RoBERTa.
    first, types = (2, 1) if "Roberta" in name else (0, types)
    given = {
        "input_ids": random.integers(first, VOCAB, (ROWS, LENGTH)),
        "attention_mask": np.arange(LENGTH)[None] < lengths,
        "token_type_ids": random.integers(0, types, (ROWS, LENGTH)),
    }
    if name.startswith("TFDistilBert"):
        del given["token_type_ids"]
    given = {key: value.astype("int32") for key, value in given.items()}
    if name.endswith("MultipleChoice"):
        given = {key: value[None] for key, value in given.items()}
    return given


def build(name: str):
    """A model with distinct weights; the folders take little space packed."""
    prefix = next(p for p in CONFIGS if name.startswith(p))
    plain = CONFIGS[prefix]
    config = type(plain)(**{**plain.to_diff_dict(), **SAVED[name]})
    model = getattr(transformers, name)(config)
    model(inputs(name))
    fill_keras(model, list(SAVED).index(name))
    return model


def outputs_of(model, name: str) -> dict[str, np.ndarray]:
    """Every output of a model for the fixed inputs."""
    types = getattr(model.config, "type_vocab_size", 2)
    batch = inputs(name, types)
    scored = model(batch, output_hidden_states=True)
    found = {}
    # TFRobertaForMultipleChoice returns no hidden states.
    if scored.hidden_states is not None:
        found["sequence_output"] = scored.hidden_states[-1]
    for key in scored:
        if "logits" in key or key == "pooler_output":
            found[key] = scored[key]
    return {key: value.numpy() for key, value in found.items()}


def fit(model, name: str) -> None:
    """Trains for a step, so that the optimizer has slots."""
    batch = inputs(name)
    labels = np.zeros(batch["input_ids"].shape, "int32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.0), loss)
    model.fit(batch, labels, epochs=1, verbose=0)


def main() -> None:
    recorded = {}
    with tempfile.TemporaryDirectory() as made:
        saved = pathlib.Path(made)
        for name in SAVED:
            keras.backend.clear_session()
            model = build(name)
            model.save_pretrained(saved / name, safe_serialization=False)
            for key, value in outputs_of(model, name).items():
                recorded[f"{name}/{key}"] = value
            if name == "TFBertForPreTraining":
                model.save_pretrained(
                    saved / "sharded",
                    safe_serialization=False,
                    max_shard_size="4KB",
                )
                model.save_pretrained(saved / "safetensors")
            if name == "TFBertForTokenClassification":
                fit(model, name)
            if name in KERAS:
                for kind, file in (
                    ("h5", "epoch_3.h5"),
                    ("checkpoint", "cp.ckpt"),
                    ("keras", "epoch_3.weights.h5"),
                ):
                    folder = saved / kind / name
                    model.config.save_pretrained(folder)
                    model.save_weights(folder / file)
        pack(saved, HERE / "saved.tar.xz")
    np.savez_compressed(HERE / "outputs.npz", **recorded)


if __name__ == "__main__":
    main()
