"""The command as a user types it, with good input and with bad."""

import json
import os
import pathlib
import pickle
import re
import shlex
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
    write_arrays,
)
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.errors import UserError
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests import commands
from tests.hugging_face_models import random_arrays, tiny_checkpoint

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
WEIGHTS = "model.safetensors"


def command(*arguments: object) -> subprocess.CompletedProcess:
    return commands.run(*arguments, environment={"HF_HUB_OFFLINE": "1"})


def convert(*arguments: object) -> subprocess.CompletedProcess:
    return command("tools.convert_checkpoint", *arguments)


def two_families(folder):
    other = folder.with_name("other")
    save_checkpoint(other, tiny_checkpoint("BertForPreTraining"), "google_tf1")
    shutil.copytree(other, folder, dirs_exist_ok=True)
    shutil.rmtree(other)
    return "holds weights of google_tf1 and of hugging_face"


def no_vocabulary(folder):
    (folder / "vocab.txt").unlink()
    return "holds no vocabulary (vocab.txt); pass the one it was trained with"


def other_sizes(folder):
    path = folder / "config.json"
    values = json.loads(path.read_text()) | {"intermediate_size": 16}
    path.write_text(json.dumps(values))
    return "do not fit the configuration; other shapes: "


def truncated(folder):
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-10])
    return f"{WEIGHTS}: damaged weights file"


def truncated_tensorflow(folder):
    shutil.rmtree(folder)
    save_checkpoint(folder, tiny_checkpoint("BertForPreTraining"), "google_tf1")
    (path,) = folder.glob("*.data-*")
    path.write_bytes(path.read_bytes()[:-10])
    return "cut short"


def lying_header(folder):
    """A header that gives an array more bytes than the file has."""
    path = folder / WEIGHTS
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    last = max(
        (name for name in header if name != "__metadata__"),
        key=lambda name: header[name]["data_offsets"][1],
    )
    header[last]["data_offsets"][1] += 1 << 40
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    return f"{WEIGHTS}: damaged weights file"


def endless_header(folder):
    path = folder / WEIGHTS
    path.write_bytes(struct.pack("<Q", 1 << 62) + path.read_bytes()[8:])
    return f"{WEIGHTS}: damaged weights file"


def path_traversal(folder):
    shutil.move(folder / WEIGHTS, folder.parent / "stolen.safetensors")
    arrays = load_checkpoint(GOLDEN / "hugging_face/saved/sharded").arrays
    index = {"weight_map": dict.fromkeys(arrays, "../stolen.safetensors")}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    return "names the file '../stolen.safetensors'; it takes the plain names"


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def a_pickle(folder):
    (folder / WEIGHTS).unlink()
    bomb = _Bomb(folder / "exploded")
    (folder / "model.pkl").write_bytes(pickle.dumps(bomb))
    return "model.pkl is a pickle, which may hold any program and is not opened"


def a_torch_pickle(folder):
    (folder / WEIGHTS).unlink()
    bomb = _Bomb(folder / "exploded")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(bomb))
    return "pytorch_model.bin: "


def no_weights(folder):
    (folder / WEIGHTS).unlink()
    return "not a model folder; config.json is there, but neither"


def not_finite(folder):
    arrays = read_arrays(folder / WEIGHTS)
    arrays["cls.predictions.bias"][3] = float("nan")
    write_arrays(folder / WEIGHTS, arrays)
    return "cls.predictions.bias holds values that are not finite"


BAD_FOLDERS = (
    two_families,
    no_vocabulary,
    other_sizes,
    truncated,
    truncated_tensorflow,
    lying_header,
    endless_header,
    path_traversal,
    a_pickle,
    a_torch_pickle,
    no_weights,
    not_finite,
)


@pytest.fixture
def bad(request, tmp_path):
    """A damaged folder, what is said of it, and where nothing may appear."""
    source = tmp_path / "source"
    save_checkpoint(
        source, tiny_checkpoint("BertForPreTraining"), "hugging_face"
    )
    message = request.param(source)
    (tmp_path / "here").mkdir()
    return source, message, tmp_path / "here"


def check(error, bad):
    source, message, here = bad
    assert message in error
    assert str(source) in error
    assert list(here.iterdir()) == []
    assert not (source / "exploded").exists()


def names(damage):
    return damage.__name__


@pytest.mark.parametrize("bad", BAD_FOLDERS, ids=names, indirect=True)
@pytest.mark.parametrize("to", ["google_tf1", "hugging_face"])
def test_bad_input_leaves_nothing(to, bad):
    source, _, here = bad
    with pytest.raises(UserError) as caught:
        convert_checkpoint(source, to, here / "out")
    assert "\n" not in str(caught.value)
    check(str(caught.value), bad)


@pytest.mark.parametrize(
    "bad",
    [
        *BAD_FOLDERS[:1],
        *(pytest.param(d, marks=pytest.mark.slow) for d in BAD_FOLDERS[1:]),
    ],
    ids=names,
    indirect=True,
)
def test_bad_input_is_one_line_of_the_command(bad):
    source, _, here = bad
    done = convert(
        f"--input={source}", "--to=bert_tf", f"--output_dir={here / 'out'}"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    check(done.stderr, bad)


def test_a_conversion_and_what_is_next(tmp_path):
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
    took = re.fullmatch(
        r"took (\d+\.\d) s, at most (\d+) MB of memory", lines[-3]
    )
    assert 0 < float(took[1]) < 300
    assert 100 < int(took[2]) < 3000
    assert lines[-2] == f"written: {tmp_path / 'out'} (bert_tf)"
    made = load_checkpoint(tmp_path / "out")
    assert made.heads == ("pooler", "masked_lm")
    assert made.config.max_position_embeddings == 11
    assert made.lower_case is False
    words = shlex.split(lines[-1].removeprefix("next: python -m "))
    following = command(*words)
    assert following.returncode == 0, following.stderr
    assert "[MASK] 1: " in following.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--to=bert_tf", "--output_dir=x"], "error: --input is needed"),
        (["--input=x", "--output_dir=x"], "error: --to is needed"),
        (["--input=x", "--to=bert_tf"], "error: --output_dir is needed"),
        (
            ["--input=x", "--to=onnx", "--output_dir=x"],
            "error: --to=onnx: unknown layout; it takes one of bert_tf, "
            "google_tf1, hugging_face.",
        ),
        (
            ["--input=x", "--to=bert_tf", "--output_dir=x", "--batch=2"],
            "error: Unknown command line flag 'batch'",
        ),
        (
            ["--input=hf://some/one", "--to=bert_tf", "--output_dir=/tmp/x-y"],
            "error: hf://some/one: huggingface.co cannot be reached",
        ),
    ],
)
def test_a_mistake_in_the_flags_is_one_line(arguments, line):
    done = convert(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("to", ["bert_tf", "google_tf1", "hugging_face"])
def test_memory_of_a_base_size_conversion(to, tmp_path):
    """Less than three times the checkpoint's size, TensorFlow included."""
    config = BertConfig.from_size("base", 30522)
    arrays = random_arrays(config, ("pooler", "masked_lm", "next_sentence"))
    size = sum(array.nbytes for array in arrays.values())
    rest = range(config.vocab_size - len(SPECIAL_TOKENS))
    vocabulary = Vocabulary([*SPECIAL_TOKENS, *(f"t{i}" for i in rest)])
    for name, array in arrays.items():
        # As large as those of trained models, so that the proof is fair.
        arrays[name] = (array - name.endswith("gamma")) * np.float32(0.15)
        arrays[name] += np.float32(name.endswith("gamma"))
    save_checkpoint(
        tmp_path / "source", Checkpoint(config, arrays, vocabulary, True)
    )
    # A process of its own, whose libraries the command itself sets up.
    ours = ("TF_ENABLE_ONEDNN_OPTS", "OPENBLAS_NUM_THREADS")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tools.convert_checkpoint",
            f"--input={tmp_path / 'source'}",
            f"--to={to}",
            f"--output_dir={tmp_path / 'out'}",
        ],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in ours},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (megabytes,) = re.findall(r"at most (\d+) MB", done.stdout)
    assert float(megabytes) * 1e6 < 3 * size
