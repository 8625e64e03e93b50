"""The command as a user types it."""

import json
import pathlib
import subprocess

import numpy as np
import pytest

import bert_tf
from tests import commands
from tests.extraction.extraction_models import save_model

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("tool") / "model")


def run(*arguments: object, **options: str) -> subprocess.CompletedProcess:
    return commands.run("tools.extract_features", *arguments, **options)


@pytest.mark.slow
def test_features_and_sentence_vectors(model, tmp_path):
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
    wanted = bert_tf.embed(model, ["the cat sat", ("Über", "a dog")], "max")
    found = [row["layers"][0]["values"] for row in rows]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "none.txt"}, "error: --input=none.txt: no such file."),
        ({"layers": "9"}, "error: layers=9: the model has layers 1 to 3"),
        ({"pooling": "sum"}, "error: pooling=sum: unknown; it takes one of"),
    ],
)
def test_mistakes_are_one_line(model, tmp_path, changes, message):
    (tmp_path / "text.txt").write_text("the cat\n")
    flags = {
        "model": model,
        "input": tmp_path / "text.txt",
        "output": tmp_path / "out.npz",
        **changes,
    }
    done = run(*(f"--{name}={value}" for name, value in flags.items()))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)
    assert not (tmp_path / "out.npz").exists()
