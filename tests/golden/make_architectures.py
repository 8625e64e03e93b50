"""Makes the folders of architectures; see the README.md of each.

Needs torch, transformers and safetensors, no TensorFlow.
"""

import pathlib
import sys
from typing import Any

import numpy as np
import torch
import transformers

from tests.golden.common import DISTILBERT_SIZES, SIZES, fill_torch

HERE = pathlib.Path(__file__).parent
VOCAB, LENGTH = 24, 9
# The classes of each architecture, with what differs from its sizes.
SAVED: dict[str, dict[str, dict[str, Any]]] = {
    "bert": {
        "BertModel": {},
        "BertForPreTraining": {"layer_norm_eps": 1e-7},
        "BertForMaskedLM": {"hidden_act": "relu"},
        "BertForSequenceClassification": {"num_labels": 3},
        "BertForTokenClassification": {
            "num_labels": 5,
            "hidden_act": "gelu_new",
        },
        "BertForQuestionAnswering": {},
        "BertForMultipleChoice": {},
    },
    "distilbert": {
        "DistilBertModel": {},
        "DistilBertForMaskedLM": {"activation": "relu"},
        "DistilBertForSequenceClassification": {"num_labels": 3},
        "DistilBertForTokenClassification": {"num_labels": 5},
        "DistilBertForQuestionAnswering": {"sinusoidal_pos_embds": True},
        "DistilBertForMultipleChoice": {},
    },
    "electra": {
        "ElectraModel": {},
        "ElectraForPreTraining": {},
        # The generator of the one before: narrower than its embeddings.
        "ElectraForMaskedLM": {
            "hidden_size": 4,
            "intermediate_size": 16,
            "num_attention_heads": 1,
            # Its head computes GELU all the same.
            "hidden_act": "relu",
        },
        "ElectraForSequenceClassification": {"num_labels": 3},
        "ElectraForTokenClassification": {"num_labels": 5},
        "ElectraForQuestionAnswering": {"embedding_size": 8},
        "ElectraForMultipleChoice": {},
    },
    "roberta": {
        "RobertaModel": {},
        "RobertaForMaskedLM": {"hidden_act": "relu"},
        "RobertaForSequenceClassification": {"num_labels": 3},
        "RobertaForTokenClassification": {"num_labels": 5},
        "RobertaForQuestionAnswering": {},
        "RobertaForMultipleChoice": {},
    },
    "xlm-roberta": {
        "XLMRobertaModel": {},
        "XLMRobertaForMaskedLM": {},
        "XLMRobertaForSequenceClassification": {"num_labels": 3},
        "XLMRobertaForTokenClassification": {"num_labels": 5},
        "XLMRobertaForQuestionAnswering": {},
        "XLMRobertaForMultipleChoice": {},
    },
    "albert": {
        "AlbertModel": {"hidden_act": "gelu"},
        # Three layers of two groups of two blocks.
        "AlbertForPreTraining": {
            "num_hidden_layers": 3,
            "num_hidden_groups": 2,
            "inner_group_num": 2,
        },
        "AlbertForMaskedLM": {"hidden_act": "relu"},
        "AlbertForSequenceClassification": {"num_labels": 3},
        "AlbertForTokenClassification": {"num_labels": 5},
        "AlbertForQuestionAnswering": {},
        "AlbertForMultipleChoice": {},
    },
    "modernbert": {
        "ModernBertModel": {},
        "ModernBertForMaskedLM": {},
        "ModernBertForSequenceClassification": {
            "num_labels": 3,
            "classifier_pooling": "mean",
        },
        "ModernBertForTokenClassification": {"num_labels": 5},
        "ModernBertForQuestionAnswering": {},
        "ModernBertForMultipleChoice": {},
    },
}
CONFIGS = {
    "bert": transformers.BertConfig,
    "distilbert": transformers.DistilBertConfig,
    "electra": transformers.ElectraConfig,
    "roberta": transformers.RobertaConfig,
    "xlm-roberta": transformers.XLMRobertaConfig,
    "albert": transformers.AlbertConfig,
    "modernbert": transformers.ModernBertConfig,
}
# A token for each byte and five special ones.
_BYTES = {"vocab_size": 261}
_ROBERTA = SIZES | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
ALL_SIZES = {
    "bert": SIZES,
    "distilbert": DISTILBERT_SIZES,
    "electra": SIZES | {"embedding_size": 6},
    "roberta": _ROBERTA | _BYTES,
    "xlm-roberta": _ROBERTA,
    "albert": SIZES | {"embedding_size": 6},
    # Three layers, of which the last two see three tokens.
    "modernbert": SIZES
    | _BYTES
    | {
        "num_hidden_layers": 3,
        "local_attention": 2,
        "pad_token_id": 0,
        "attn_implementation": "eager",
    },
}


def inputs(segments: bool, pad: int) -> dict[str, np.ndarray]:
    """Three rows, of which two are padded."""
    random = np.random.default_rng(0)
    lengths = np.array([LENGTH, 5, 7])
    mask = (np.arange(LENGTH) < lengths[:, None]).astype("int32")
    ids = random.integers(pad + 1, VOCAB, (3, LENGTH)).astype("int32")
    given = {"input_ids": np.where(mask, ids, pad), "input_mask": mask}
    if segments:
        types = random.integers(0, 2, (3, LENGTH)).astype("int32")
        given["segment_ids"] = types * mask
    return given


def random_model(architecture: str, name: str, seed: int):
    sizes = ALL_SIZES[architecture] | SAVED[architecture][name]
    config = CONFIGS[architecture](**sizes)
    torch.manual_seed(seed)
    model = getattr(transformers, name)(config)
    fill_torch(model)
    return model.eval()


def outputs_of(model, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns all outputs of a model, and the gradients of a loss."""
    names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    batch = {names.get(n, n): torch.tensor(a).long() for n, a in given.items()}
    body = model.base_model
    states = body(**batch, output_hidden_states=True).hidden_states
    found = {f"hidden_{n}": state for n, state in enumerate(states)}
    if body is not model:
        real = batch["attention_mask"] == 1
        if type(model).__name__.endswith("ForMultipleChoice"):
            batch = {key: value[None] for key, value in batch.items()}
        scored = model(**batch)
        found |= {key: scored[key] for key in scored if "logits" in key}
        if "logits" in found:
            # The mean square of the logits of real tokens, or of rows.
            logits = found["logits"]
            if logits.shape[:2] == real.shape:
                logits = logits[real]
            model.zero_grad()
            logits.square().mean().backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    found[f"gradient/{name}"] = parameter.grad
    return {name: tensor.detach().numpy() for name, tensor in found.items()}


def main() -> None:
    for architecture in sys.argv[1:] or SAVED:
        classes = SAVED[architecture]
        segments = architecture in ("bert", "electra", "albert")
        given = inputs(segments, int("roberta" in architecture))
        recorded = dict(given)
        for seed, name in enumerate(classes):
            model = random_model(architecture, name, seed)
            model.save_pretrained(HERE / architecture / "saved" / name)
            for key, value in outputs_of(model, given).items():
                recorded[f"{name}/{key}"] = value
        np.savez_compressed(HERE / architecture / "outputs.npz", **recorded)


if __name__ == "__main__":
    main()
