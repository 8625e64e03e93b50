"""Files of Keras are loaded by a process that has only imported bert_tf."""

import ast
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from test_conformance import CASES, made, outputs_of

import bert_tf
from bert_tf import keras_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIMIZERS = {
    "adamw": bert_tf.adamw,
    "lamb": bert_tf.lamb,
    "stable": bert_tf.stable_adamw,
}

# One of each kind; classes of layers are looked up in one table.
FILES = (
    *("BertEncoder, with LoRA", "BiLSTM", "ElectraPretrainer"),
    *("LeftToRightLanguageModeling", "TextClassifier", "bert_multiple_choice"),
)

# Prints each file's outputs on the inputs beside it, and its optimizer.
READ = """
import json, pathlib, sys
import numpy as np
assert not [m for m in sys.modules if m.startswith("bert_tf.layers")]
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob(sys.argv[2])):
    model = keras.models.load_model(path)
    inputs = dict(np.load(path.with_suffix(".npz")))
    outputs = keras.tree.flatten(model(inputs))
    optimizer = getattr(model, "optimizer", None)
    config = optimizer.get_config() if optimizer else {}
    found[path.stem] = {
        "outputs": [np.asarray(o).tolist() for o in outputs],
        "optimizer": type(optimizer).__name__,
        "rate": config.get("learning_rate"),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of files, and what each model gives."""
    folder = tmp_path_factory.mktemp("files")
    expected = {}

    for name in FILES:
        model = made(name)
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", **CASES[name][1])
        expected[name] = outputs_of(model, name)
    # With a small model, as an optimizer is stored beside any in the same way.
    inputs = CASES["NextSentenceHead"][1]
    for name, make in OPTIMIZERS.items():
        model = made("NextSentenceHead")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(make(1e-3, total_steps=4), loss, run_eagerly=True)
        best = keras.callbacks.ModelCheckpoint(
            folder / f"{name}.keras", monitor="loss", save_best_only=True
        )
        labels = np.int32([0, 1, 1, 0])
        model.fit(inputs, labels, verbose=0, callbacks=[best])
        np.savez(folder / f"{name}.npz", **inputs)
        expected[name] = outputs_of(model, "NextSentenceHead")
    return folder, expected


@pytest.mark.witness(
    "a process that only imported bert_tf loads files of Keras"
)
@pytest.mark.parametrize(
    ("imports", "files"),
    [
        ("import keras, bert_tf", "*.keras"),
        # The order decides how the classes are registered, not which.
        ("import bert_tf, keras", "lamb.keras"),
    ],
)
def test_every_file_is_loaded(imports, files, saved) -> None:
    folder, expected = saved
    if files == "lamb.keras":
        expected = {"lamb": expected["lamb"]}
    done = subprocess.run(
        [sys.executable, "-c", imports + READ, folder, files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.keys() == expected.keys()
    for name, outputs in expected.items():
        for ours, theirs in zip(found[name]["outputs"], outputs, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5, err_msg=name)
    kinds = {"adamw": "AdamW", "lamb": "Lamb", "stable": "StableAdamW"}
    for name in kinds.keys() & found.keys():
        assert found[name]["optimizer"] == kinds[name]
        assert found[name]["rate"]["class_name"] == "LinearWarmupDecay"


def registered_classes() -> dict[str, str]:
    """Every class that is registered with Keras, read from the files."""
    found = {}
    for path in (ROOT / "bert_tf").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                "register_keras_serializable" in ast.dump(decorator)
                for decorator in node.decorator_list
            ):
                module = path.relative_to(ROOT).with_suffix("")
                assert node.name not in found
                found[node.name] = ".".join(module.parts)
    return found


def test_the_table_has_every_class() -> None:
    assert keras_files.CLASSES == registered_classes()
    for name in keras_files.CLASSES:
        known = keras.saving.get_registered_object(f"bert_tf>{name}")
        assert known.from_config.__self__.__name__ == name
