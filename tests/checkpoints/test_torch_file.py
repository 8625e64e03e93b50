"""pytorch_model.bin: never unpickled but by torch's restricted reader."""

import json
import os
import pathlib
import pickle
import shutil
import sys
import types
import zipfile

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.hugging_face_files import open_torch
from tests.checkpoints.arrays import assert_same_arrays
from tests.user_errors import error_of

SAVED = (
    pathlib.Path(__file__).parent.parent / "golden" / "hugging_face" / "saved"
)


class Marker:
    """Unpickled, it makes a file."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def write_malice(folder: pathlib.Path, archive: bool) -> pathlib.Path:
    """A model folder whose weights run a program, and what that would make."""
    shutil.copy(SAVED / "BertModel" / "config.json", folder)
    made = folder / "executed"
    data = pickle.dumps(Marker(made))
    path = folder / "pytorch_model.bin"
    if archive:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", data)
            file.writestr("archive/version", "3\n")
    else:
        path.write_bytes(data)
    return made


@pytest.mark.parametrize("archive", [True, False])
def test_a_malicious_pickle_is_never_executed(archive, tmp_path):
    made = write_malice(tmp_path, archive)
    assert "pytorch_model.bin" in error_of(load_checkpoint, tmp_path)
    assert not made.exists()
    # Unpickled, the file does it.
    data = (tmp_path / "pytorch_model.bin").read_bytes()
    if not archive:
        pickle.loads(data)
        assert made.exists()


def test_without_torch_a_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    write_malice(tmp_path, archive=True)
    line = error_of(load_checkpoint, tmp_path)
    assert line.startswith(
        f"{tmp_path / 'pytorch_model.bin'}: reading it needs"
    )
    assert "transformers.AutoModel" in line


@pytest.mark.parametrize(
    ("architectures", "kind", "named"),
    [
        (["RobertaForTokenClassification"], "ForTokenClassification", True),
        (["XLMRobertaModel"], "", True),
        (["BertLMHeadModel"], "ForCausalLM", True),
        (["BertForMaskedLM", "BertModel"], "ForMaskedLM", True),
        *((other, "ForPreTraining", False) for other in ([], [3], "a", ["x"])),
    ],
)
def test_without_torch_the_class_of_the_folder_is_named(
    architectures, kind, named, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch", None)
    config = {"model_type": "bert", "architectures": architectures}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    line = error_of(open_torch, tmp_path / "pytorch_model.bin")
    assert f'transformers.AutoModel{kind}.from_pretrained("{tmp_path}")' in line
    kept = f"the {architectures[0]} of" if named else "a pre-trained model"
    assert f"keeps {kept}" in line


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
def test_without_torch_modules_are_converted_together(
    inner, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / inner).mkdir(exist_ok=True)
    path = tmp_path / inner / "pytorch_model.bin"
    path.write_bytes(b"")
    whole = f'SentenceTransformer("{tmp_path}").save("converted").'
    assert whole in error_of(open_torch, path)


@pytest.fixture
def torch():
    """The package, or a skip."""
    return pytest.importorskip("torch", reason="torch is not installed")


def assert_whole(folder):
    whole = load_checkpoint(SAVED / "BertForPreTraining")
    assert_same_arrays(load_checkpoint(folder).arrays, whole.arrays)


def test_an_old_style_file(torch):
    assert_whole(SAVED / "old_style")


def test_an_archive_whole_and_in_shards(torch, tmp_path):
    old = SAVED / "old_style"
    tensors = torch.load(old / "pytorch_model.bin", weights_only=True)
    for folder in (tmp_path / "whole", tmp_path / "shards"):
        folder.mkdir()
        shutil.copy(old / "config.json", folder)
    torch.save(tensors, tmp_path / "whole" / "pytorch_model.bin")
    assert_whole(tmp_path / "whole")
    names = sorted(tensors)
    parts = {"a.bin": names[:20], "b.bin": names[20:]}
    for file, part in parts.items():
        chosen = {name: tensors[name] for name in part}
        torch.save(chosen, tmp_path / "shards" / file)

    index = {name: file for file, part in parts.items() for name in part}
    path = tmp_path / "shards" / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    assert_whole(tmp_path / "shards")


def test_half_precision(torch, tmp_path):
    tensors = {"a": torch.tensor([1.5, 2.0], dtype=torch.bfloat16)}
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    array = open_torch(tmp_path / "pytorch_model.bin")["a"]
    np.testing.assert_array_equal(array, np.array([1.5, 2.0], np.float32))
    assert array.dtype == np.float32


def test_damaged_and_other_files(torch, tmp_path):
    path = tmp_path / "pytorch_model.bin"

    def refused(message):
        assert message in error_of(open_torch, path)

    refused("no such file")
    path.write_bytes(b"")
    refused("damaged")
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:-700])
    refused("damaged")
    torch.save([torch.zeros(2)], path)
    refused("does not hold named tensors")
    torch.save({"model": {"a": torch.zeros(2)}}, path)
    refused("does not hold named tensors")


class _Tensor:
    """What `open_torch` uses of a tensor."""

    def __init__(self, array):
        self.array = array
        self.shape = getattr(array, "shape", (2,))

    def detach(self):
        return self

    def is_floating_point(self):
        return True

    def to(self, dtype):
        return (
            _Tensor(self.array.astype(dtype))
            if self.array is not None
            else self
        )

    def numpy(self):
        if self.array is None:
            raise TypeError("can't convert Sparse layout tensor to numpy")
        return self.array


def test_the_restricted_reader_is_the_one_that_is_used(tmp_path, monkeypatch):
    """With a stand-in for torch, so that this runs everywhere."""
    asked = []
    half = np.array([0.5, 1.5], np.float16)
    path = tmp_path / "pytorch_model.bin"

    def load(*arguments, **options):
        asked.append((*arguments, options))
        if len(asked) == 1:
            raise ValueError("first line.\nsecond line")
        return {"a": _Tensor(half), "sparse": _Tensor(None)}

    stub = types.ModuleType("torch")
    stub.load, stub.Tensor, stub.float32 = load, _Tensor, np.float32
    monkeypatch.setitem(sys.modules, "torch", stub)
    path.write_bytes(b"anything")
    stub.__version__ = "2.5.1+cpu"
    assert "torch 2.5.1+cpu may run code" in error_of(open_torch, path)
    stub.__version__ = "2.13.0a0"
    assert error_of(open_torch, path).endswith("tensors (first line).")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", "b")
    arrays = open_torch(path)
    options = {"map_location": "cpu", "weights_only": True}
    assert asked == [
        (path, options | {"mmap": False}),
        (path, options | {"mmap": True}),
    ]
    assert arrays["a"].dtype == np.float32
    np.testing.assert_array_equal(arrays["a"], half)
    assert "sparse is no plain tensor" in error_of(lambda: arrays["sparse"])
