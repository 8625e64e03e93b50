"""The command that exports: one line for each mistake.

What it writes, tests/inference/test_serving_docs.py sees.
"""

import pathlib

import pytest

from tests import commands


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output_dir=x"], "--model"),
        (["--model=nowhere", "--output_dir=x"], "nowhere"),
        (
            ["--model=nowhere", "--output_dir=x", "--format=onnx"],
            "nowhere: no such model folder",
        ),
        (
            ["--model=.", "--output_dir=x", "--beside=a", "--labels=b"],
            "--labels=b: is for a model alone; leave it out, or --beside.",
        ),
        (
            ["--model=.", "--output_dir=x", "--format=onnx", "--version=3"],
            "--version: is for --format=saved_model; leave it out.",
        ),
        (
            [
                *("--model=.", "--output_dir=x", "--format=onnx"),
                "--precision=mixed_bfloat16",
            ],
            "--precision: is for --format=saved_model",
        ),
        (
            ["--model=.", "--output_dir=x", "--quantize=int8"],
            "--quantize=int8: is for --format=onnx",
        ),
        (
            ["--model=.", "--output_dir=x", "--max_score_drop=0.5"],
            "--max_score_drop: is for --quantize=int8; leave it out.",
        ),
        (
            [
                *("--model=.", "--output_dir=x", "--format=onnx"),
                "--set=data_dir=x",
            ],
            "--set: is for --quantize=int8; leave it out.",
        ),
        (
            [
                *("--model=.", "--output_dir=x", "--format=onnx"),
                "--quantize=int8",
            ],
            "--quantize=int8: . has no recipe.json of a fine-tuning",
        ),
    ],
)
def test_mistakes(flags, message, tmp_path):
    done = commands.run("tools.export_saved_model", *flags)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not pathlib.Path("x").exists()
