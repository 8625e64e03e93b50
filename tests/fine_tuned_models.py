"""Fine-tuned models as transformers saves them, the same on every machine.

Also used where their golden answers are made, so it needs NumPy and safetensors
alone. The weights are drawn here; what else lies in the folders is recorded.
"""

import json
import pathlib
from collections.abc import Sequence

import numpy as np
import safetensors.numpy

GOLDEN = pathlib.Path(__file__).parent / "golden" / "fine_tuned"
TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"abcdefghijklmnopqrstuvwxyz0123456789.,'-?",
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"),
    *"the film was good bad anna lives in paris who is ##ly ##ing".split(),
)
TEXTS = (
    "The film was good.",
    "Anna lives in Paris, who is badly",
    "bad",
    "is the goodly film bad ? anna was in the film , and it was good",
)
# The orders of the outputs of models of natural language inference.
NLI_LABELS = {
    "contradiction first": ("contradiction", "neutral", "entailment"),
    "entailment first": ("ENTAILMENT", "neutral", "contradiction"),
}
NLI_MODEL = "BertForSequenceClassification"
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def recorded() -> dict:
    """config.json, tokenizer_config.json and shapes of each folder."""
    return json.loads((GOLDEN / "folders.json").read_text(encoding="utf-8"))


def answers() -> dict:
    """The answers of transformers for each folder."""
    return json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))


def zero_shot() -> list:
    """What the pipeline zero-shot-classification answers to `TEXTS`."""
    text = (GOLDEN / "zero_shot.json").read_text(encoding="utf-8")
    return json.loads(text)


def write_folder(
    folder: pathlib.Path, name: str, labels: Sequence[str] = ()
) -> pathlib.Path:
    """Writes one of the folders of `recorded`.

    Args:
      folder: where, made if it is not there.
      name: its architecture and its class.
      labels: the names of its outputs, if not the recorded ones.
    """
    found = recorded()[name]
    if labels:
        found["config"]["id2label"] = dict(enumerate(labels))
        found["config"]["label2id"] = {x: n for n, x in enumerate(labels)}
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config", "tokenizer_config"):
        text = json.dumps(found[file], indent=2)
        (folder / f"{file}.json").write_text(text, encoding="utf-8")
    text = "".join(f"{token}\n" for token in TOKENS)
    (folder / "vocab.txt").write_text(text, encoding="utf-8")
    random = np.random.default_rng(len(name))
    arrays = {}
    for key, shape in sorted(found["shapes"].items()):
        # Texts must influence outputs more than biases.
        scale = 0.8 if key.endswith("weight") else 0.2
        values = random.normal(0.0, scale, shape)
        if key.endswith("LayerNorm.weight") or "layer_norm.weight" in key:
            values = 1 + 0.1 * values
        arrays[key] = values.astype(np.float32)
    safetensors.numpy.save_file(
        arrays, folder / "model.safetensors", {"format": "pt"}
    )
    return folder
