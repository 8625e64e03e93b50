"""Makes the golden data beside it; see README.md.

Needs torch, transformers and safetensors, no TensorFlow.
"""

import json
import pathlib
import tempfile

import numpy as np
import torch
import transformers

from bert_tf.checkpoints import save_checkpoint
from tests.golden.common import SIZES, fill_torch
from tests.hugging_face_models import (
    CLASSES,
    TEXTS,
    digest,
    inputs,
    tiny_checkpoint,
)

HERE = pathlib.Path(__file__).parent
# What differs from the plain configuration in models saved by transformers.
SAVED = {
    "BertModel": {},
    "BertForPreTraining": {"hidden_act": "gelu_new"},
    "BertForMaskedLM": {"layer_norm_eps": 1e-7},
    "BertForNextSentencePrediction": {"hidden_act": "gelu_pytorch_tanh"},
    "BertForSequenceClassification": {
        "id2label": {0: "négatif", 1: "neutral", 2: "positive"},
        "label2id": {"négatif": 0, "neutral": 1, "positive": 2},
    },
    "BertForTokenClassification": {"num_labels": 5},
    "BertForQuestionAnswering": {"type_vocab_size": 3},
    "BertForMultipleChoice": {"hidden_act": "relu"},
    "BertLMHeadModel": {"is_decoder": True},
}


def random_model(name: str, seed: int):
    config = transformers.BertConfig(**SIZES | SAVED[name])
    model = getattr(transformers, name)(config)
    torch.manual_seed(seed)
    fill_torch(model)
    return model


def outputs_of(model) -> dict[str, np.ndarray]:
    """Every output of a model for the fixed inputs."""
    model = model.eval()
    batch = {
        theirs: torch.tensor(inputs(model.config.type_vocab_size)[ours]).long()
        for ours, theirs in (
            ("input_ids", "input_ids"),
            ("input_mask", "attention_mask"),
            ("segment_ids", "token_type_ids"),
        )
    }
    encoder = getattr(model, "bert", model)
    with torch.no_grad():
        encoded = encoder(**batch)
        outputs = {"sequence_output": encoded.last_hidden_state}
        if encoded.pooler_output is not None:
            outputs["pooled_output"] = encoded.pooler_output
        if encoder is not model:
            if isinstance(model, transformers.BertForMultipleChoice):
                batch = {key: value[None] for key, value in batch.items()}
            scored = model(**batch)
            for key in scored:
                if "logits" in key:
                    outputs[key] = scored[key]
    return {key: value.numpy() for key, value in outputs.items()}


def make_saved() -> dict[str, np.ndarray]:
    """Folders that transformers writes, and the outputs of their models."""
    recorded = {}
    for seed, name in enumerate(SAVED):
        model = random_model(name, seed)
        model.save_pretrained(HERE / "saved" / name)
        for key, value in outputs_of(model).items():
            recorded[f"saved/{name}/{key}"] = value
    model = random_model("BertForPreTraining", 1)
    model.save_pretrained(HERE / "saved" / "sharded", max_shard_size="4KB")
    old = HERE / "saved" / "old_style"
    model.config.save_pretrained(old)
    tensors = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for key, value in model.state_dict().items()
    }
    tensors["bert.embeddings.position_ids"] = torch.arange(12)[None]
    # As PyTorch wrote before version 1.6.
    torch.save(
        tensors, old / "pytorch_model.bin", _use_new_zipfile_serialization=False
    )
    return recorded


def make_written() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Outputs of transformers for the folders that this project writes."""
    recorded, digests = {}, {}
    for name in CLASSES:
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            save_checkpoint(folder, tiny_checkpoint(name), "hugging_face")
            model, report = getattr(transformers, name).from_pretrained(
                folder, output_loading_info=True
            )
            faults = {key: value for key, value in report.items() if value}
            assert not faults, (name, faults)
            print(f"{name}: every key matches")
            digests[name] = digest(folder)
            for key, value in outputs_of(model).items():
                recorded[f"written/{name}/{key}"] = value
    return recorded, digests


def make_ids() -> dict[str, list[list[int]]]:
    """Ids of AutoTokenizer for the vocabulary that this project writes."""
    ids = {}
    for lower_case in (True, False):
        with tempfile.TemporaryDirectory() as made:
            checkpoint = tiny_checkpoint("BertModel", lower_case)
            save_checkpoint(made, checkpoint, "hugging_face")
            tokenizer = transformers.AutoTokenizer.from_pretrained(made)
            assert tokenizer.model_max_length == 12
            key = "uncased" if lower_case else "cased"
            ids[key] = [
                tokenizer(text, add_special_tokens=False)["input_ids"]
                for text in TEXTS
            ]
            assert tokenizer("elan")["input_ids"][0] == tokenizer.cls_token_id
    return ids


def main() -> None:
    transformers.logging.set_verbosity_error()
    saved = make_saved()
    written, digests = make_written()
    np.savez_compressed(HERE / "outputs.npz", **saved, **written)
    text = json.dumps({"digests": digests, "ids": make_ids()}, indent=1)
    (HERE / "written.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
