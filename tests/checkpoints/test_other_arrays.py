"""Arrays that are no part of a model, and prefixes of all names."""

import numpy as np
import pytest

from bert_tf import BertEncoder
from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
    write_arrays,
)
from bert_tf.conversion import convert_checkpoint
from bert_tf.text.vocabulary import Vocabulary
from tests.checkpoints.arrays import assert_same_arrays
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config
from tests.user_errors import error_of

HEADS = ("pooler", "classifier")
WORDS = "bert/embeddings/word_embeddings"


@pytest.fixture
def folder(tmp_path):
    """Gives a function that changes the names of a folder of transformers."""
    config = tiny_config()
    arrays = random_arrays(config, HEADS)
    save_checkpoint(
        tmp_path / "theirs",
        Checkpoint(
            config,
            arrays,
            Vocabulary(TOKENS),
            lower_case=True,
            labels=("a", "b", "c"),
        ),
        to="hugging_face",
    )
    path = tmp_path / "theirs" / "model.safetensors"
    stored = read_arrays(path)

    def changed(prefix="", others=(), begins="", instead=""):
        names = {
            name: prefix + name.replace(begins, instead, 1)
            if name.startswith(begins)
            else name
            for name in stored
        }
        given = {names[name]: array for name, array in stored.items()}
        given |= {name: np.ones(3, np.float32) for name in others}
        write_arrays(path, given, {"format": "pt"})
        return tmp_path / "theirs", arrays

    return changed


@pytest.mark.parametrize(
    "changes",
    [
        {"prefix": "module."},
        {"prefix": "_orig_mod."},
        {"prefix": "module._orig_mod."},
        # The encoder alone, in a module of the program's own.
        {"begins": "bert.", "instead": "model."},
        {"begins": "bert.", "instead": "model.bert."},
    ],
    ids=["module", "compiled", "both", "model", "model.bert"],
)
def test_a_prefix_of_all_names(changes, folder, capsys):
    theirs, arrays = folder(**changes)
    found = load_checkpoint(theirs)
    assert found.heads == HEADS
    assert_same_arrays(found.arrays, arrays)
    prefix = changes.get("prefix", "model.")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{theirs}: ")
    assert f"begin with {prefix!r}, " in line


def test_two_models_in_one_file(folder):
    theirs, _ = folder("student.")
    stored = read_arrays(theirs / "model.safetensors")
    both = stored | {n.replace("student", "teacher"): stored[n] for n in stored}
    write_arrays(theirs / "model.safetensors", both, {"format": "pt"})
    line = error_of(load_checkpoint, theirs)
    assert ": student.bert.embeddings.LayerNorm.bias" in line


def test_arrays_of_other_layers(folder, tmp_path, capsys):
    others = ["loss_fct.weight", "crf.transitions", "crf.start_transitions"]
    theirs, arrays = folder("module.", others)
    line = error_of(load_checkpoint, theirs)
    assert ": crf.start_transitions [3], crf.transitions" in line
    assert "`ignore` is a regular expression" in line
    found = load_checkpoint(theirs, ignore=r"^crf\.|loss_fct")
    assert sorted(found.left_out) == sorted(others)
    assert_same_arrays(found.arrays, arrays)
    report = convert_checkpoint(
        theirs, "bert_tf", tmp_path / "ours", ignore=r"crf|loss_fct"
    )
    assert len(report.comparisons) == 3
    BertEncoder.from_checkpoint(theirs, ignore=r"crf|loss_fct")
    line = error_of(load_checkpoint, theirs, ignore="crf|loss_fct|classif")
    assert line.startswith("`ignore`=crf|loss_fct|classif: ")
    assert "classifier.bias, classifier.weight of " in line
    assert "crf" in error_of(load_checkpoint, theirs, ignore="nothere")
    assert "`ignore`=nothere matches no array" in capsys.readouterr().err
    line = error_of(load_checkpoint, theirs, ignore="crf[")
    assert line.startswith("`ignore`=crf[: is no regular expression (")
