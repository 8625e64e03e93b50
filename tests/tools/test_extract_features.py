"""The command as a user types it."""

import json
import subprocess

import numpy as np

import bert_tf
from tests import commands
from tests.families.pretrained.extraction_models import save_model


def run(*arguments: object, **options: str) -> subprocess.CompletedProcess:
    return commands.run("tools.extract_features", *arguments, **options)


def test_features_and_sentence_vectors(tmp_path, eagerly):
    model = save_model(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\nÜber ||| a dog\n", encoding="utf-8")
    output = tmp_path / "new" / "features.npz"
    done = run(
        f"--model={model}",
        f"--input={text}",
        f"--output={output}",
        "--layers=-1,0",
        "--max_seq_length=5",
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 2 texts have more than 5 tokens" in done.stderr
    assert "features.npz: 2 texts, 10 tokens" in done.stderr
    with np.load(output, allow_pickle=False) as file:
        assert file["vectors"].shape == (10, 2, 24)
    done = run(
        f"--model={model}",
        "--input=-",
        "--output=-",
        "--pooling=max",
        standard_input=text.read_text(encoding="utf-8"),
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    expected = bert_tf.embed(model, ["the cat sat", ("Über", "a dog")], "max")
    found = [row["layers"][0]["values"] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-5)
