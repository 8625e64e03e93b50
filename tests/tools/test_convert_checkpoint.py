"""The command as a user types it, with good input and with bad."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np

from bert_tf.architectures.xlm_roberta import XlmRobertaConfig
from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
    write_arrays,
)
from bert_tf.config import BertConfig
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tests import commands
from tests.hugging_face_models import random_arrays, tiny_checkpoint
from tests.relatives import UNIGRAM

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def convert(*arguments: object) -> subprocess.CompletedProcess:
    return commands.run("tools.convert_checkpoint", *arguments)


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, eagerly):
    """Seen last, by the proof of what is written."""
    source, here = tmp_path / "source", tmp_path / "here"
    checkpoint = tiny_checkpoint("BertForPreTraining")
    save_checkpoint(source, checkpoint, "hugging_face")
    arrays = read_arrays(source / "model.safetensors")
    arrays["cls.predictions.bias"][3] = float("nan")
    write_arrays(source / "model.safetensors", arrays)
    here.mkdir()
    output = f"--output_dir={here / 'out'}"
    done = convert(f"--input={source}", "--to=bert_tf", output)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {source}")
    assert "cls.predictions.bias holds" in line
    assert "not finite" in line
    assert list(here.iterdir()) == []


def test_a_conversion_and_what_is_next(tmp_path, eagerly):
    source = tmp_path / "source"
    checkpoint = tiny_checkpoint("BertForPreTraining")
    save_checkpoint(source, checkpoint, "hugging_face")
    done = convert(
        f"--input={source}",
        "--to=bert_tf",
        f"--output_dir={tmp_path / 'out'}",
        "--max_position_embeddings=11",
        "--drop_heads=next_sentence",
        "--nolower_case",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"source: {source} (hugging_face), 2 layers")
    assert lines[1].endswith("pooler, masked_lm; dropped: next_sentence")
    assert lines[2] == "positions: the first 11 of 12 kept"
    took = re.fullmatch(r"took (\d+\.\d) s, at most (\d+) MB .*", lines[-3])
    assert 0 < float(took[1]) < 300
    assert int(took[2]) > 100
    assert lines[-2] == f"written: {tmp_path / 'out'} (bert_tf)"
    made = load_checkpoint(tmp_path / "out")
    assert made.heads == ("pooler", "masked_lm")
    assert made.config.max_position_embeddings == 11
    assert made.lower_case is False
    following = commands.run_line(lines[-1].removeprefix("next: "))
    assert following.returncode == 0, following.stderr
    assert "[MASK] 1: " in following.stdout


def test_what_is_next_names_the_mask_of_the_model(tmp_path, eagerly):
    config = XlmRobertaConfig.from_size("1/8/2", len(UNIGRAM))
    arrays = random_arrays(config, ("masked_lm",))
    checkpoint = Checkpoint(config, arrays).with_tokenizer(UNIGRAM)
    save_checkpoint(tmp_path / "source", checkpoint, "hugging_face")
    done = convert(
        f"--input={tmp_path / 'source'}",
        "--to=bert_tf",
        f"--output_dir={tmp_path / 'out'}",
    )
    *_, line = done.stdout.splitlines()
    following = commands.run_line(line.removeprefix("next: "))
    assert following.returncode == 0, following.stderr
    assert "<mask> 1: " in following.stdout


def test_memory_of_a_base_size_conversion(tmp_path):
    """Less than three times the checkpoint's size, TensorFlow included.

    Of all layouts, TensorFlow's needs the most memory.
    """
    config = BertConfig.from_size("base", 30522)
    arrays = random_arrays(config, ("pooler", "masked_lm", "next_sentence"))
    size = sum(array.nbytes for array in arrays.values())
    rest = range(config.vocab_size - len(SPECIAL_TOKENS))
    vocabulary = Vocabulary([*SPECIAL_TOKENS, *(f"t{i}" for i in rest)])
    for name, array in arrays.items():
        # As large as those of trained models, so that the proof is fair.
        arrays[name] = (array - name.endswith("gamma")) * np.float32(0.15)
        arrays[name] += np.float32(name.endswith("gamma"))
    checkpoint = Checkpoint(config, arrays, vocabulary, True)
    save_checkpoint(tmp_path / "source", checkpoint)
    # A process of its own, whose libraries the command itself sets up.
    ours = "TF_ENABLE_ONEDNN_OPTS"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tools.convert_checkpoint",
            f"--input={tmp_path / 'source'}",
            "--to=google_tf1",
            f"--output_dir={tmp_path / 'out'}",
        ],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != ours},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (megabytes,) = re.findall(r"at most (\d+) MB", done.stdout)
    assert float(megabytes) * 1e6 < 3 * size
    # Only here are arrays of that size written and read.
    written = load_checkpoint(tmp_path / "out").arrays
    assert written.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(written[name], array), name
