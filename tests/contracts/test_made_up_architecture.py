"""What a new architecture costs: two files, and one line in the list.

They are `made_up_architecture/*/mosaic.py`. Its numbers are those of a plain
forward pass here; what every architecture promises is in
`test_architectures.py`, where it is one of the cases.
"""

import csv
import json
import math

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.architecture_list import find_architecture
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import encoder_class
from bert_tf.finetuning.run import run_finetuning
from bert_tf.inference.export_file import export_file
from bert_tf.inference.saving import write_saved_model
from tests.contracts.made_up_architecture import add_to_package
from tests.contracts.task_cases import SETTINGS, write_reviews
from tests.finetuning.sentence_runs import BAD, GOOD
from tests.model_helpers import fill
from tests.server.served_models import fetch, served
from tests.user_errors import error_of
from tools.shared_flags import load_task

LAYERS, HEADS = 6, 2


@pytest.fixture(autouse=True)
def architecture(monkeypatch) -> None:
    add_to_package(monkeypatch)


def write_start(folder, layers, **changes):
    architecture = find_architecture("mosaic", "tests")
    tokenizer = architecture.tokenizer()
    config = architecture.config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=32,
        max_position_embeddings=66,
        layer_norm_eps=1e-5,
        **changes,
    )
    arrays = fill(encoder_class(config)(config), scale=0.3).to_arrays()
    checkpoint = Checkpoint(config, arrays).with_tokenizer(tokenizer)
    save_checkpoint(folder, checkpoint)
    return folder


def normalised(rows, gamma):
    rows = rows - rows.mean(-1, keepdims=True)
    return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5) * gamma


def plain_states(arrays, ids):
    """The hidden states of one row without padding, float64 [L + 1, S, H]."""
    arrays = {n: a.astype("float64") for n, a in arrays.items()}
    length = len(ids)
    hidden = arrays["mosaic/words"][ids]
    hidden = hidden + arrays["mosaic/positions"][2 : 2 + length]
    states = [normalised(hidden, arrays["mosaic/norm/gamma"])]
    places = np.arange(length)
    for layer in range(LAYERS):
        group, block = layer // 2 % 2, layer % 2
        at = f"mosaic/group_{group}/block_{block}"

        def dense(rows, name, at=at):
            return rows @ arrays[f"{at}/{name}/kernel"]

        hidden = states[-1]
        rows = normalised(hidden, arrays[f"{at}/attention_norm/gamma"])
        query, key, value = (
            dense(rows, name).reshape(length, HEADS, -1).transpose(1, 0, 2)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
        if layer % 2:
            far = abs(places[:, None] - places) > 2
            scores = np.where(far, -np.inf, scores)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        context = (shares @ value).transpose(1, 0, 2).reshape(length, -1)
        hidden = hidden + dense(context, "attended")
        rows = normalised(hidden, arrays[f"{at}/inner_norm/gamma"])
        inner = dense(rows, "inner")
        inner = inner * (1 + np.vectorize(math.erf)(inner * 0.5**0.5)) / 2
        states.append(hidden + dense(inner * dense(rows, "gate"), "outer"))
    return np.stack(states)


def test_its_numbers(tmp_path):
    start = write_start(tmp_path, LAYERS)
    encoder = bert_tf.load_encoder(start)
    assert len(encoder.blocks) == LAYERS
    assert len(set(map(id, encoder.blocks))) == 4
    assert encoder.config.longest_input == 64
    arrays = load_checkpoint(start).arrays
    assert encoder.to_arrays().keys() == arrays.keys()
    ids = np.random.default_rng(0).integers(5, 20, 12)
    batch = {
        "input_ids": ids[None].astype("int32"),
        "input_mask": np.ones((1, 12), "int32"),
        "segment_ids": np.zeros((1, 12), "int32"),
    }
    for unpadded in (False, True):
        found = encoder(batch, return_all_layers=True, unpadded=unpadded)
        states = [found["embedding_output"], *found["all_encoder_layers"]]
        expected = plain_states(arrays, ids)
        np.testing.assert_allclose(
            np.concatenate(states), expected, rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            found["pooled_output"][0], expected[-1, 0], rtol=1e-4, atol=1e-4
        )


@pytest.mark.witness("an architecture costs two files and a line")
@pytest.mark.usefixtures("undrawn")
def test_an_architecture_costs_two_files_and_a_line(tmp_path):
    # The third layer is the first one again.
    start = write_start(tmp_path / "start", 3, num_groups=1)
    write = write_reviews(lambda text, good, number: "bad good".split()[good])
    for seed, (name, count) in enumerate((("train", 72), ("dev", 14))):
        write(tmp_path / f"{name}.csv", count, seed, False)
    task = load_task("sentence")
    recipe = task.recipe_type(
        **SETTINGS
        | {
            "init_from": str(start),
            "train_file": str(tmp_path / "train.csv"),
            "dev_file": str(tmp_path / "dev.csv"),
            "max_seq_length": 64,
            "text_columns": "text",
            "label_column": "label",
            "classifier_pooling": "cls",
            "head_start": "given",
            "learning_rate": 1e-2,
            "num_train_epochs": 3.0,
        }
    )
    run = tmp_path / "run"
    line = error_of(
        run_finetuning,
        task,
        recipe.override(["max_seq_length=65"]),
        tmp_path / "no",
        ["train"],
    )
    assert f"64 (longest_input of `init_from`={start})" in line

    # Training and scoring.
    done = run_finetuning(task, recipe, run, ["train", "eval"])
    assert done["train"]["dev"]["dev"]["accuracy"] > 0.9
    assert done["eval"]["dev"] == done["train"]["dev"]["dev"]
    written = json.loads((run / "bert_config.json").read_text())
    assert written["model_type"] == "mosaic"
    assert written["windows"] == [0, 2]

    # Loaded, asked and explained.
    model = bert_tf.load(run)
    with (tmp_path / "dev.csv").open(newline="") as file:
        texts, labels = zip(*list(csv.reader(file))[1:5], strict=True)
    answers = model(list(texts))
    assert tuple(answer["label"] for answer in answers) == labels
    found = model.explain(texts[0])
    assert [word.text for word in found.words] == texts[0].split()
    assert found.completeness_error < 0.05
    charged = [word for word in found.words if word.text in GOOD + BAD]
    assert sum(word.attribution for word in charged) > 0

    # Exported and served.
    write_saved_model(model.served, tmp_path / "export")
    with served(tmp_path / "export") as server:
        url = f"{server.rest}/v1/models/m:predict"
        status, body = fetch(url, {"instances": list(texts)})
        assert status == 200
    for ours, theirs in zip(answers, body["predictions"], strict=True):
        np.testing.assert_allclose(
            list(ours["probabilities"].values()),
            theirs["probabilities"],
            atol=1e-5,
        )

    # As files of other runtimes, which are compared with it when written.
    for kind in ("onnx", "litert"):
        export_file(run, tmp_path / kind, kind)

    # Saved by Keras.
    classifier = bert_tf.bert_classifier(bert_tf.load_encoder(run), 2)
    bert_tf.restore(classifier, run)
    classifier.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for name, array in bert_tf.model_arrays(classifier).items():
        np.testing.assert_array_equal(bert_tf.model_arrays(again)[name], array)

    # Converted to the names of another program and back.
    convert_checkpoint(run, "hugging_face", tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["MosaicForSequenceClassification"]
    convert_checkpoint(tmp_path / "theirs", "bert_tf", tmp_path / "back")
    first, last = load_checkpoint(run), load_checkpoint(tmp_path / "back")
    assert first.config == last.config
    assert first.arrays.keys() == last.arrays.keys()
    for name in first.arrays:
        np.testing.assert_array_equal(first.arrays[name], last.arrays[name])
