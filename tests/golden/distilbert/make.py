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
    "DistilBertModel": {},
    "DistilBertForMaskedLM": {"activation": "relu"},
    "DistilBertForSequenceClassification": {"num_labels": 3},
    "DistilBertForTokenClassification": {"num_labels": 5},
    "DistilBertForQuestionAnswering": {"sinusoidal_pos_embds": True},
    "DistilBertForMultipleChoice": {},
}
VOCAB, LENGTH = 24, 9


def inputs() -> dict[str, np.ndarray]:
    """Three rows, of which two are padded."""
    random = np.random.default_rng(0)
    lengths = np.array([LENGTH, 5, 7])
    mask = (np.arange(LENGTH) < lengths[:, None]).astype("int32")
    ids = random.integers(1, VOCAB, (3, LENGTH)).astype("int32")
    return {"input_ids": ids * mask, "input_mask": mask}


def random_model(name: str, seed: int):
    config = transformers.DistilBertConfig(
        **{
            "vocab_size": VOCAB,
            "dim": 8,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 12,
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
    """All that a model gives for the inputs."""
    given = {name: torch.tensor(a).long() for name, a in inputs().items()}
    batch = {
        "input_ids": given["input_ids"],
        "attention_mask": given["input_mask"],
    }
    body = getattr(model, "distilbert", model)
    states = body(**batch, output_hidden_states=True).hidden_states
    found = {f"hidden_{n}": state for n, state in enumerate(states)}
    if body is not model:
        if isinstance(model, transformers.DistilBertForMultipleChoice):
            batch = {key: value[None] for key, value in batch.items()}
        scored = model(**batch)
        found |= {key: scored[key] for key in scored if "logits" in key}
        if "logits" in found and found["logits"].shape[-1] in (3, VOCAB):
            # The mean square of the logits of real tokens, or of rows.
            logits = found["logits"]
            if logits.ndim == 3:
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
