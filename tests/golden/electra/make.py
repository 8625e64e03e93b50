"""Makes the golden data beside it; see README.md.

Needs torch, transformers and safetensors, no TensorFlow.
"""

import pathlib

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
# What differs from the plain configuration.
SAVED = {
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
}
VOCAB, LENGTH = 24, 9


def inputs() -> dict[str, np.ndarray]:
    """Three rows, of which two are padded."""
    random = np.random.default_rng(0)
    lengths = np.array([LENGTH, 5, 7])
    mask = (np.arange(LENGTH) < lengths[:, None]).astype("int32")
    ids = random.integers(1, VOCAB, (3, LENGTH)).astype("int32")
    segments = random.integers(0, 2, (3, LENGTH)).astype("int32")
    return {
        "input_ids": ids * mask,
        "input_mask": mask,
        "segment_ids": segments * mask,
    }


def random_model(name: str, seed: int):
    config = transformers.ElectraConfig(
        **{
            "vocab_size": VOCAB,
            "embedding_size": 6,
            "hidden_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 12,
            "max_position_embeddings": 12,
            **SAVED[name],
        }
    )
    torch.manual_seed(seed)
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3)
            if key.lower().endswith("norm.weight"):
                parameter.add_(1.0)
    return model.eval()


def outputs_of(model) -> dict[str, np.ndarray]:
    """All that a model gives for the inputs, and the gradients of a loss."""
    given = {name: torch.tensor(a).long() for name, a in inputs().items()}
    batch = {
        "input_ids": given["input_ids"],
        "attention_mask": given["input_mask"],
        "token_type_ids": given["segment_ids"],
    }
    body = getattr(model, "electra", model)
    states = body(**batch, output_hidden_states=True).hidden_states
    found = {f"hidden_{n}": state for n, state in enumerate(states)}
    if body is not model:
        if isinstance(model, transformers.ElectraForMultipleChoice):
            batch = {key: value[None] for key, value in batch.items()}
        scored = model(**batch)
        found |= {key: scored[key] for key in scored if "logits" in key}
        if "logits" in found:
            # The mean square of the logits of real tokens, or of rows.
            logits = found["logits"]
            if logits.shape[:2] == given["input_mask"].shape:
                logits = logits[given["input_mask"] == 1]
            model.zero_grad()
            logits.square().mean().backward()
            for name, parameter in model.named_parameters():
                found[f"gradient/{name}"] = parameter.grad
    return {name: tensor.detach().numpy() for name, tensor in found.items()}


def main() -> None:
    recorded = inputs()
    for seed, name in enumerate(SAVED):
        model = random_model(name, seed)
        model.save_pretrained(HERE / "saved" / name)
        for key, value in outputs_of(model).items():
            recorded[f"{name}/{key}"] = value
    np.savez_compressed(HERE / "outputs.npz", **recorded)


if __name__ == "__main__":
    main()
