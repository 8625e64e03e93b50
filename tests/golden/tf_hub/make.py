"""Makes the golden data beside it; see README.md.

Needs tf-models-official, and TF_USE_LEGACY_KERAS=1.
"""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from official.legacy.bert import configs
from official.nlp.configs import encoders
from official.nlp.tools import export_tfhub_lib as hub

from tests.golden.common import fill_keras, pack

HERE = pathlib.Path(__file__).parent
TOKENS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the The quick Quick fox ##es jump ##ed "
    "over lazy dog . , élan elan"
).split()
TEXTS = ["The Quick foxes, Élan jumped.", "the lazy dog over élan"]
LENGTH = 12


def inputs() -> dict[str, np.ndarray]:
    """Two rows, of which one is padded."""
    random = np.random.default_rng(7)
    given = {
        "input_word_ids": random.integers(0, len(TOKENS), (2, LENGTH)),
        "input_mask": np.arange(LENGTH)[None] < np.array([[LENGTH], [7]]),
        "input_type_ids": random.integers(0, 2, (2, LENGTH)),
    }
    return {name: value.astype("int32") for name, value in given.items()}


def models() -> dict[str, dict]:
    """Arguments of `export_model` for each encoder."""
    sizes = {
        "vocab_size": len(TOKENS),
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": LENGTH,
        "type_vocab_size": 2,
    }
    second = encoders.EncoderConfig(type="bert_v2")
    second.bert_v2.override(
        {**sizes, "num_layers": 2, "hidden_activation": "relu"}
    )
    first = configs.BertConfig(**sizes, num_hidden_layers=2)
    return {
        "with_mlm": {"bert_config": first, "with_mlm": True},
        "relu": {"encoder_config": second, "with_mlm": False},
    }


def make_encoder(folder: pathlib.Path, vocab: str, seed: int, **given) -> None:
    """Exports an encoder with distinct weights, as those of the Hub were."""
    _, model = hub._create_model(**given)
    fill_keras(model, seed)
    items = {"model": model, "encoder": model}
    if given["with_mlm"]:
        items = model.checkpoint_items
    with tempfile.TemporaryDirectory() as made:
        prefix = tf.train.Checkpoint(**items).save(f"{made}/ckpt")
        hub.export_model(
            str(folder),
            **given,
            model_checkpoint_path=prefix,
            vocab_file=vocab,
            do_lower_case=given["with_mlm"],
        )


def main() -> None:
    recorded = inputs()
    with tempfile.TemporaryDirectory() as made:
        vocab = pathlib.Path(made) / "vocab.txt"
        vocab.write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
        saved = pathlib.Path(made) / "saved"
        for seed, (name, given) in enumerate(models().items()):
            make_encoder(saved / name, str(vocab), seed, **given)
            model = tf.saved_model.load(str(saved / name))
            outputs = dict(model(inputs()))
            if given["with_mlm"]:
                places = np.tile(np.arange(LENGTH, dtype="int32"), (2, 1))
                batch = {**inputs(), "masked_lm_positions": places}
                outputs["mlm_logits"] = model.mlm(batch)["mlm_logits"]
            for key in ("sequence_output", "pooled_output", "mlm_logits"):
                if key in outputs:
                    recorded[f"{name}/{key}"] = outputs[key].numpy()
        for name, lower_case in (("uncased", True), ("cased", False)):
            folder = saved / f"preprocess_{name}"
            hub.export_preprocessing(
                str(folder),
                vocab_file=str(vocab),
                do_lower_case=lower_case,
                tokenize_with_offsets=False,
                default_seq_length=LENGTH,
                experimental_disable_assert=True,
            )
            rows = tf.saved_model.load(str(folder))(tf.constant(TEXTS))
            recorded[f"{name}/ids"] = rows["input_word_ids"].numpy()
        pack(saved, HERE / "saved.tar.xz")
    np.savez_compressed(HERE / "outputs.npz", **recorded)


if __name__ == "__main__":
    main()
