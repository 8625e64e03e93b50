import dataclasses
import json

import pytest

from bert_tf.errors import UserError, did_you_mean
from bert_tf.recipe import Settings, read_json_object, setting


@dataclasses.dataclass(frozen=True)
class Example(Settings):
    steps: int = setting(10, "how many")
    rate: float = setting(0.5, "how fast")
    fast: bool = setting(False, "whether")
    name: str = setting("a", "which")


@dataclasses.dataclass(frozen=True)
class Required(Settings):
    size: int = setting(dataclasses.MISSING, "needed")


def test_assignments_are_typed():
    changed = Example().override(
        ["steps=3", "rate=1e-3", "fast=true", "name=x=y"]
    )
    assert changed == Example(3, 1e-3, True, "x=y")
    assert changed.override(["fast=No", "rate=2"]) == Example(
        3, 2.0, False, "x=y"
    )
    assert Example() == Example(10, 0.5, False, "a")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("steps", "write key=value"),
        ("step=3", "unknown key 'step'. Did you mean steps\\?"),
        ("zzz=3", "'zzz'. Valid keys: steps, rate, fast, name"),
        ("steps=3.5", "`steps`=3.5: takes a whole number"),
        ("rate=fast", "takes a number"),
        ("fast=maybe", "true or false"),
    ],
)
def test_bad_assignments(assignment, message):
    with pytest.raises(UserError, match=message):
        Example().override([assignment])


def test_json_round_trip_and_strictness(tmp_path):
    path = tmp_path / "r.json"
    settings = Example(3, 0.1, True, "ü")
    settings.save(path)
    assert Example.from_json(path) == settings
    for values, message in (
        ({"stepz": 1}, "unknown key 'stepz'. Did you mean steps"),
        ({"steps": "1"}, "steps is '1'; it takes a whole number"),
        ({"steps": True}, "steps is True"),
        ({"rate": None}, "rate is None"),
    ):
        path.write_text(json.dumps(values))
        with pytest.raises(UserError, match=f"{path}.*{message}"):
            Example.from_json(path)
    assert Example.from_dict({"rate": 1}, "here").rate == 1.0
    with pytest.raises(UserError, match="here: missing key size"):
        Required.from_dict({}, "here")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"a": "\xff"', "not valid JSON"),
        (b"[1]", "holds list, not an object"),
    ],
)
def test_files_that_hold_no_object(content, message, tmp_path):
    path = tmp_path / "damaged.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"damaged.json: {message}"):
        read_json_object(path)
    with pytest.raises(UserError, match="Is a directory"):
        read_json_object(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        read_json_object(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("learnin_rate", "learning_rate"),
        ("lr", "learning_rate"),
        ("wd", "weight_decay_rate"),
        ("epoch", "num_train_epochs"),
        # The first one that has these words, not the one with like letters.
        ("batch_size", "train_batch_size"),
        ("Batch-Size", "train_batch_size"),
        # The same letters come first.
        ("eval_batchsize", "eval_batch_size"),
        ("max_length", "max_seq_length"),
        ("x", ""),
        ("zebra", ""),
        ("", ""),
    ],
)
def test_the_nearest_name(typed, meant):
    names = ["num_train_epochs", "train_batch_size", "eval_batch_size"]
    names += ["max_seq_length", "learning_rate", "weight_decay_rate"]
    sentence = f" Did you mean {meant}?" if meant else ""
    assert did_you_mean(typed, names) == sentence
