"""Makes flax.tar.xz and flax.npz beside it; see README.md.

Needs transformers 4 with Flax.
"""

import pathlib
import tarfile
import tempfile

import jax
import numpy as np
import transformers

HERE = pathlib.Path(__file__).parent
SIZES = {
    "vocab_size": 24,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 12,
}
CONFIGS = {
    "FlaxBertModel": transformers.BertConfig(**SIZES),
    "FlaxBertForSequenceClassification": transformers.BertConfig(
        **SIZES, num_labels=3
    ),
    "FlaxDistilBertForMaskedLM": transformers.DistilBertConfig(
        vocab_size=24,
        dim=8,
        n_layers=2,
        n_heads=2,
        hidden_dim=12,
        max_position_embeddings=12,
    ),
    "FlaxElectraForPreTraining": transformers.ElectraConfig(
        **SIZES, embedding_size=4
    ),
}


def main() -> None:
    recorded = {}
    # Of the TensorFlow classes' golden data.
    random = np.random.default_rng(7)
    lengths = np.array([[10], [6]])
    batch = {
        "input_ids": random.integers(0, 24, (2, 10)),
        "attention_mask": (np.arange(10)[None] < lengths).astype("int32"),
        "token_type_ids": random.integers(0, 2, (2, 10)),
    }
    with tempfile.TemporaryDirectory() as made:
        for seed, (name, config) in enumerate(CONFIGS.items()):
            model = getattr(transformers, name)(config)
            random = np.random.default_rng(seed)

            def draw(path, old, random=random):
                values = np.round(random.normal(0.0, 0.3, old.shape) * 64) / 64
                scale = path[-1].key == "scale"
                return (values + scale).astype("float32")

            model.params = jax.tree_util.tree_map_with_path(draw, model.params)
            model.save_pretrained(pathlib.Path(made) / name)
            given = dict(batch)
            if name.startswith("FlaxDistilBert"):
                del given["token_type_ids"]
            scored = model(**given, output_hidden_states=True)
            recorded[f"{name}/sequence_output"] = scored.hidden_states[-1]
            if "logits" in scored:
                recorded[f"{name}/logits"] = scored.logits
        with tarfile.open(HERE / "flax.tar.xz", "w:xz") as archive:
            for path in sorted(pathlib.Path(made).glob("*/[cf]*")):
                entry = tarfile.TarInfo(f"{path.parent.name}/{path.name}")
                entry.size = path.stat().st_size
                with open(path, "rb") as file:
                    archive.addfile(entry, file)
    np.savez_compressed(HERE / "flax.npz", **recorded)


if __name__ == "__main__":
    main()
