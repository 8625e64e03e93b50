"""What a folder states of a model, and folders that cannot be served."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inference.served_folder import describe_training, served_model
from tests.finetuning.sentence_runs import texts
from tests.inference.model_folders import make


def test_folders_that_cannot_be_served(tmp_path):
    start, folder = make(tmp_path, "encoder"), make(tmp_path, "classes")
    names = sorted(served_model(start).signatures())
    assert names == ["embed", "serving_default", "tokens"]
    values = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**values, "more": 1}))
    with pytest.raises(UserError, match="the keys more are missing or too m"):
        served_model(folder)
    (folder / "task.json").unlink()
    (start / "task.json").write_text('{"task": "names"}')
    with pytest.raises(UserError, match="was fine-tuned for names, whose mod"):
        served_model(start)
    (folder / "vocab.txt").unlink()
    with pytest.raises(UserError, match="holds no vocabulary"):
        served_model(folder)
    with pytest.raises(UserError, match="nowhere"):
        served_model(tmp_path / "nowhere")


def test_what_is_said_of_a_training(tmp_path):
    assert describe_training(tmp_path) == {}
    (tmp_path / "task.json").write_text('{"task": "squad_v2"}')
    assert describe_training(tmp_path) == {"fine_tuned_for": "squad_v2"}
    results = {
        "model": "/home/someone/uncased_L-4",
        "main_metric": "f1",
        "dev": {"dev": {"f1": 0.75, "exact": None}},
        "examples": {"train": 9, "dev": 3},
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert describe_training(tmp_path) == {
        "fine_tuned_for": "squad_v2",
        "init_from": "uncased_L-4",
        "main_metric": "f1",
        "scores": results["dev"],
        "num_examples": results["examples"],
    }
    (tmp_path / "results.json").write_text("[")
    with pytest.raises(UserError, match="results.json: not valid JSON"):
        describe_training(tmp_path)


def test_it_holds_weights_in_the_dtype_that_it_computes_in(tmp_path):
    folder = make(tmp_path, "classes")
    text = tf.constant([e.text_a for e in texts(9, 3)])
    exact = served_model(folder).answers(text)["logits"]
    spread = np.ptp(exact)
    assert spread > 0.1
    for dtype in ("bfloat16", "float16"):
        half = served_model(folder, f"mixed_{dtype}")
        for variable in half.model.weights:
            # The classifier computes in float32.
            expected = dtype if "bert/" in variable.path else "float32"
            assert variable.dtype == expected, variable.path
        near = half.answers(text)["logits"]
        assert 0 < np.abs(near - exact).max() < 0.05 * spread
