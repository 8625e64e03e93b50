"""Folders that others made run nothing, block nothing and fill no memory."""

import bz2
import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import foreign_files
from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.checkpoints.model_garden import load_params
from bert_tf.corpora import data_sets
from bert_tf.corpora.streams import ByteStream, Position
from bert_tf.families.model_folder import task_of
from bert_tf.files import read_lines
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.records.record_file import count_records
from bert_tf.server.loaded_model import LoadedModel, LoadError
from tests import commands
from tests.hugging_face_models import tiny_checkpoint
from tests.user_errors import error_of
from tools.shared_flags import task_named

GARDEN = pathlib.Path(__file__).parent / "golden/model_garden/trainer_v2"


@contextlib.contextmanager
def seconds(limit: int) -> Iterator[None]:
    """Fails a test that waits for a pipe or a device."""

    def too_long(*_: object) -> None:
        raise AssertionError("waits without end")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write_model(folder: pathlib.Path, to: str = "bert_tf") -> pathlib.Path:
    checkpoint = tiny_checkpoint("BertForSequenceClassification")
    save_checkpoint(folder, checkpoint, to)
    return folder


# What a folder may hold that would run code, and what opens it. Each takes the
# folder and the marker that the code would make.


def recipe_names(field: str) -> Callable:
    def write(folder: pathlib.Path, marker: pathlib.Path) -> None:
        evil = folder / "evil.py"
        evil.write_text(f"open({str(marker)!r}, 'w')\n")
        write_model(folder)
        recipe = json.dumps({field: str(evil)})
        (folder / "recipe.json").write_text(recipe)

    return write


def remote_code(folder: pathlib.Path, marker: pathlib.Path) -> None:
    write_model(folder, "hugging_face")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Evil"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")


def yaml_object(folder: pathlib.Path, marker: pathlib.Path) -> None:
    shutil.copytree(GARDEN, folder, dirs_exist_ok=True)
    call = f"!!python/object/apply:builtins.open [{marker}, w]"
    (folder / "params.yaml").write_text(f"task: {call}\n")


def keras_lambda(folder: pathlib.Path, marker: pathlib.Path) -> None:
    inputs = keras.Input((2,))
    code = f"lambda x: (open({str(marker)!r}, 'w'), x)[1]"
    outputs = keras.layers.Lambda(eval(code), output_shape=(2,))(inputs)
    keras.Model(inputs, outputs).save(folder / "model.keras")
    marker.unlink(missing_ok=True)


def saved_graph(folder: pathlib.Path, marker: pathlib.Path) -> None:
    class Evil(tf.saved_model.experimental.TrackableResource):
        """What TensorFlow initialises when it loads the folder."""

        def _create_resource(self):
            return tf.raw_ops.HashTableV2(
                key_dtype="int64", value_dtype="int64"
            )

        def _initialize(self):
            tf.io.write_file(str(marker), "executed")

    module = tf.Module()
    module.evil = Evil()
    tf.saved_model.save(module, str(folder))
    tf.saved_model.load(str(folder))
    assert marker.exists()
    marker.unlink()


def another_file(folder: pathlib.Path, marker: pathlib.Path) -> None:
    """An HDF5 file that names another one as the place of its numbers."""
    write_preset(folder)
    marker.with_suffix(".secret").write_bytes(bytes(64))
    with h5py.File(folder / "model.weights.h5", "w") as file:
        secret = [(str(marker.with_suffix(".secret")), 0, 64)]
        file.create_dataset("a", (16,), "float32", external=secret)


def data_set_class(folder: pathlib.Path, marker: pathlib.Path) -> None:
    (folder / "evil_features.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (folder / "features.json").write_text(
        json.dumps({"pythonClassName": "evil_features.Evil"})
    )
    info = {"name": "evil", "version": "1.0.0"}
    (folder / "dataset_info.json").write_text(json.dumps(info))


def older_data_set_class(folder: pathlib.Path, marker: pathlib.Path) -> None:
    data_set_class(folder, marker)
    inner = json.dumps({"python_class_name": "evil_features.Evil"})
    value = {
        "type": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "content": {"features": {"text": inner}},
    }
    (folder / "features.json").write_text(json.dumps(value))


def command(*words: str) -> Callable:
    def opens(folder: pathlib.Path) -> str:
        done = commands.run(
            *words, f"--model={folder}", f"--output_dir={folder / 'out'}"
        )
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert not (folder / "out").exists()
        return line

    return opens


def fails(call: Callable, *arguments: object) -> Callable:
    return lambda folder: error_of(call, *arguments, folder)


def split_of(folder: pathlib.Path) -> object:
    return data_sets.describe(f"tfds:{folder}")


NOT_RUN = "not run because a file names it"
HOSTILE = {
    "a task, pruned": (
        recipe_names("task"),
        command("tools.prune"),
        f"{NOT_RUN}.* --task=/.*evil.py$",
    ),
    "a task, measured": (
        recipe_names("task"),
        command("tools.export_saved_model", "--format=onnx", "--quantize=int8"),
        f"{NOT_RUN}.* --set task=/.*evil.py$",
    ),
    "a task of a recipe": (
        recipe_names("task"),
        lambda folder: error_of(task_named, [], folder / "recipe.json"),
        NOT_RUN,
    ),
    "an objective of a recipe": (
        recipe_names("objective"),
        lambda folder: error_of(
            PretrainingRecipe.from_json, folder / "recipe.json"
        ),
        f"objective is .*{NOT_RUN}.*`objective`=",
    ),
    "code of its own": (
        remote_code,
        lambda folder: str(load_checkpoint(folder).heads),
        "classifier",
    ),
    "YAML": (yaml_object, fails(load_checkpoint), "params.yaml: not valid"),
    "a Keras file": (
        keras_lambda,
        lambda folder: error_of(bert_tf.load, folder / "model.keras"),
        r"model.keras: .* `keras\.models\.load_model\('/.*model.keras'\)",
    ),
    "a graph": (saved_graph, fails(bert_tf.load), "."),
    "another file": (
        another_file,
        fails(load_checkpoint),
        "keeps its numbers in another file",
    ),
    "a data set": (data_set_class, fails(split_of), "'evil_features.Evil'"),
    "an older data set": (
        older_data_set_class,
        fails(split_of),
        "'evil_features.Evil'",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_runs_nothing(name, tmp_path, monkeypatch):
    write, opens, expected = HOSTILE[name]
    folder, marker = tmp_path / "model", tmp_path / "executed"
    folder.mkdir()
    write(folder, marker)
    # As `python -m` has the folder that one stands in.
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    line = opens(folder)
    assert not marker.exists()
    assert re.search(expected, line), line


def open_all(folder: pathlib.Path) -> None:
    checkpoint = load_checkpoint(folder)
    for array in checkpoint.arrays.values():
        array.sum()
    bert_tf.BertTokenizer.from_checkpoint(folder)
    task_of(folder)


def write_fine_tuned(folder: pathlib.Path) -> None:
    write_model(folder)
    (folder / "task.json").write_text(json.dumps({"task": "sentence"}))


def write_preset(folder: pathlib.Path) -> None:
    """Of KerasHub, as far as a pipe lets anybody read."""
    folder.mkdir(exist_ok=True)
    (folder / "model.weights.h5").touch()
    (folder / "config.json").write_text(json.dumps(PRESET))


PRESET = {
    "class_name": "BertBackbone",
    "config": {
        "vocabulary_size": 12,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 20,
        "dropout": 0.1,
        "max_sequence_length": 16,
        "num_segments": 2,
    },
}
LAYOUTS: dict[str, Callable] = {
    "ours": write_fine_tuned,
    "transformers": lambda folder: write_model(folder, "hugging_face"),
    "google": lambda folder: write_model(folder, "google_tf1"),
    "garden": lambda folder: shutil.copytree(GARDEN, folder),
    "keras_hub": write_preset,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pipe_in_the_place_of_a_file(layout, tmp_path):
    """Of each file in turn; a device and a socket are no files either."""
    LAYOUTS[layout](tmp_path / "model")
    for name in set(os.listdir(tmp_path / "model")) - {"outputs.npz"}:
        folder = tmp_path / f"without {name}"
        shutil.copytree(tmp_path / "model", folder)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with seconds(20):
            line = error_of(open_all, folder)
        # Without an index it is no model folder.
        is_index = name.endswith(".index")
        assert is_index or f"{name}: is a pipe, not a regular file" in line


def test_devices_and_sockets_are_no_files(tmp_path):
    (tmp_path / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(tmp_path):
        made.bind("socket")
    for name in ("device", "socket"):
        with seconds(20):
            line = error_of(foreign_files.read_bytes, tmp_path / name)
        assert f"{name}: is a {name}, not a regular file" in line
        with seconds(20):
            assert f"a {name}" in error_of(count_records, tmp_path / name)


def test_a_served_model_with_a_pipe(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").touch()
    os.mkfifo(tmp_path / "variables" / "variables.index")
    with seconds(20), pytest.raises(LoadError, match=r"index: is a pipe"):
        LoadedModel(tmp_path, tf.compat.v1.ConfigProto(), ("serve",))


def test_weights_that_unpack_to_more_than_the_memory(tmp_path):
    """A preset whose configuration agrees with its shapes."""
    write_preset(tmp_path / "model")
    weights = tmp_path / "model" / "model.weights.h5"
    with h5py.File(weights, "w") as file:
        table = "layers/reversible_embedding/vars/0"
        file.create_dataset(
            table,
            (250_000_000, 32),
            "float32",
            chunks=(1 << 14, 32),
            compression="gzip",
        )
        file[table][:4] = 0.0
    assert weights.stat().st_size < 200_000
    line = error_of(load_checkpoint, tmp_path / "model")
    assert re.search(r"unpacks from [\d,]+ bytes to 32,000,000,000", line)
    # What is as large as it looks is read.
    with h5py.File(weights, "w") as file:
        file.create_dataset("a", data=np.zeros(100_000, np.float32))
    assert "the weights do not fit" in error_of(
        load_checkpoint, tmp_path / "model"
    )


def test_compressed_lines_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_files, "LONGEST_LINE", 1000)
    for name, pack in (("a.gz", gzip.compress), ("a.bz2", bz2.compress)):
        path = tmp_path / name
        longest = b"a" * 999 + b"\n"
        path.write_bytes(pack(longest * 3))
        with ByteStream(path, Position()) as stream:
            lines = [line for some in stream.line_batches() for line in some]
        assert lines == [longest] * 3
        path.write_bytes(pack(longest + b"b" * 1001))
        with ByteStream(path, Position()) as stream:
            line = error_of(list, stream.line_batches())
        assert line.startswith(f"{path}: unpacks to a line of more than")
    line = error_of(list, read_lines(tmp_path / "a.gz", "strict"))
    assert "a.gz: unpacks to a line of more than" in line


def test_settings_are_bounded(tmp_path, monkeypatch):
    write_model(tmp_path / "model")
    monkeypatch.setattr(foreign_files, "LARGEST_FILE", 1000)
    (tmp_path / "model" / "vocab.txt").write_text("a\n" * 600)
    line = error_of(load_checkpoint, tmp_path / "model")
    assert "vocab.txt: is larger than 0 MB" in line


def test_aliases_of_yaml_are_bounded(tmp_path):
    path = tmp_path / "params.yaml"
    levels = [
        f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)
    ]
    path.write_text("\n".join(["l0: &l0 [a]", *levels]))
    assert "its aliases expand to" in error_of(load_params, path)
    path.write_text("a: &a [*a]")
    assert "not valid YAML" in error_of(load_params, path)
    path.write_text("a: &a [1, 2]\nb: *a")
    assert load_params(path) == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a" * 5000, "File name too long"),
        ("a\0b", "null byte"),
        ("{file}/model", "Not a directory"),
        ("{loop}", "symbolic links"),
    ],
)
def test_names_that_no_file_can_have(name, expected, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    name = name.format(file=tmp_path / "file", loop=tmp_path / "loop")
    for call in (
        bert_tf.load,
        bert_tf.load_checkpoint,
        bert_tf.BertTokenizer,
        bert_tf.BertEncoder.from_checkpoint,
    ):
        line = error_of(call, name)
        assert expected in line, call
        assert len(line) < 500
