"""Makes flax.tar.xz and flax.npz beside it; see README.md.

Needs transformers 4 with Flax.
"""

import pathlib
import tarfile
import tempfile

import jax
import numpy as np
import transformers

from tests.golden.common import DISTILBERT_SIZES, SIZES, coarse_normal

HERE = pathlib.Path(__file__).parent
CONFIGS = {
    "FlaxBertModel": transformers.BertConfig(**SIZES),
    "FlaxBertForSequenceClassification": transformers.BertConfig(
        **SIZES, num_labels=3
    ),
    "FlaxDistilBertForMaskedLM": transformers.DistilBertConfig(
        **DISTILBERT_SIZES
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
                values = coarse_normal(random, old.shape)
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
