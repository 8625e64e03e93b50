"""Checkpoints of google-research/bert: read, written, damaged."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import (
    Checkpoint,
    google_tf1,
    load_checkpoint,
    recognise,
    save_checkpoint,
)
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.checkpoints.recognition import FOUND_IN
from bert_tf.config import BertConfig
from tests.checkpoints.arrays import assert_same_arrays
from tests.checkpoints.damage import (
    assert_refused,
    truncated,
    with_bytes,
    with_keys,
    without,
)
from tests.hugging_face_models import random_arrays
from tests.user_errors import error_of

v1 = tf.compat.v1

CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=4,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=5,
    type_vocab_size=3,
)
INDEX, DATA = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
PRETRAINING = ("pooler", "masked_lm", "next_sentence")
# The keys of a file that Google released.
RELEASED = {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}


def arrays(*heads):
    return random_arrays(CONFIG, heads, seed=len(heads))


def google_keys(**changes):
    values = CONFIG.to_dict()
    for key in ("causal", "layer_norm_eps", "masked_lm_act"):
        del values[key]
    del values["masked_lm_layer_norm_eps"]
    return values | changes


def save_v1(
    folder, values, prefix="bert_model.ckpt", step=None, parts=(), **saver
):
    """Saves variables as a TensorFlow 1 program does, and a config."""
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(google_keys()))
    with v1.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():

            def part(shape, dtype, partition_info, value=value):
                start = partition_info.var_offset[0] if partition_info else 0
                return value[start : start + shape[0]] if shape else value

            v1.get_variable(
                name,
                value.shape,
                value.dtype,
                initializer=part,
                partitioner=(
                    v1.fixed_size_partitioner(3) if name in parts else None
                ),
                use_resource=False,
            )
        session.run(v1.global_variables_initializer())
        v1.train.Saver(**saver).save(
            session, str(folder / prefix), step, write_meta_graph=False
        )
    if step is None:
        (folder / "checkpoint").unlink()
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An encoder with its pooler, saved by a TensorFlow 1 program."""
    return save_v1(tmp_path_factory.mktemp("saved") / "m", arrays("pooler"))


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it."""
    return shutil.copytree(saved, tmp_path / "m")


def test_reads_the_checkpoint_of_a_run(tmp_path, capsys):
    values = arrays(*PRETRAINING)
    slots = {
        f"{name}/adam_{moment}": value + number
        for name, value in values.items()
        for number, moment in enumerate("mv", start=1)
    }
    # TensorFlow's own Adam.
    name = "bert/pooler/dense/bias"
    slots |= {f"{name}/Adam": values[name], f"{name}/Adam_1": values[name]}
    slots |= {"beta1_power": np.float32(0.9), "beta2_power": np.float32(1)}
    # Of mixed precision, and averages that google-research/bert does not read.
    slots |= {"loss_scale": np.float32(8), "good_steps": np.int32(1)}
    slots |= {"opt/bad_steps": np.int32(0), "current_loss_scale": np.float32(8)}
    averages = {
        f"{n}/ExponentialMovingAverage": v + 7 for n, v in values.items()
    }
    slots |= averages
    step = {"global_step": np.int64(30)}
    folder = tmp_path / "run"
    for number in (20, 30):
        changed = {k: v + number for k, v in values.items()}
        save_v1(folder, changed | slots | step, "model.ckpt", number)
    assert recognise(folder) == "google_tf1"
    checkpoint = load_checkpoint(folder)
    assert checkpoint.config == CONFIG
    assert checkpoint.heads == PRETRAINING
    assert set(checkpoint.left_out) == {*slots, "global_step"}
    (line,) = capsys.readouterr().err.splitlines()
    assert f"moving averages of {len(averages)} weights" in line
    # The newest, by the file `checkpoint`.
    assert_same_arrays(
        checkpoint.arrays, {k: v + 30 for k, v in values.items()}
    )


def test_reads_names_within_a_scope(tmp_path, capsys):
    values = arrays("pooler")
    scoped = {f"tower_0/{name}": value for name, value in values.items()}
    folder = save_v1(tmp_path / "scoped", scoped | {"crf": np.ones(3, "f")})
    found = load_checkpoint(folder, ignore="^crf$")
    assert_same_arrays(found.arrays, values)
    assert "begin with 'tower_0/', which is left out" in capsys.readouterr().err


def test_reads_partitioned_variables_and_shards(tmp_path):
    values, words = arrays("pooler"), "bert/embeddings/word_embeddings"
    save_v1(tmp_path, values, parts=(words,), sharded=True)
    assert_same_arrays(load_checkpoint(tmp_path).arrays, values)


def test_keys_of_released_files_and_defaults(folder):
    path = folder / "bert_config.json"
    path.write_text(json.dumps(google_keys(**RELEASED, hidden_act="GELU")))
    assert load_checkpoint(folder).config == CONFIG
    path.write_text('{"vocab_size": 9}')
    assert google_tf1.read_google_config(path) == BertConfig(
        9, type_vocab_size=16
    )


def test_a_v1_saver_restores_a_written_folder(tmp_path):
    values = arrays(*PRETRAINING)
    google_tf1.write(tmp_path, Checkpoint(CONFIG, values))
    prefix = str(tmp_path / "bert_model.ckpt")
    assert dict(tf.train.list_variables(prefix)) == {
        name: list(value.shape) for name, value in values.items()
    }
    with v1.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, value.shape, use_resource=False)
            for name, value in values.items()
        }
        v1.train.Saver().restore(session, prefix)
        assert_same_arrays(session.run(variables), values)
    config = json.loads((tmp_path / "bert_config.json").read_text())
    assert config == google_keys()


def test_what_google_computes_otherwise(tmp_path):
    config = dataclasses.replace(
        CONFIG, hidden_act="gelu_erf", layer_norm_eps=1e-5
    )
    given = Checkpoint(config, arrays("pooler"))
    save_checkpoint(tmp_path / "m", given, "google_tf1")
    written = json.loads((tmp_path / "m/bert_config.json").read_text())
    assert written["hidden_act"] == "gelu_erf"
    assert written["layer_norm_eps"] == 1e-5
    assert load_checkpoint(tmp_path / "m").config == config
    activation, epsilon = google_tf1.notices(config)
    assert "gelu_erf" in activation
    assert "1e-05" in epsilon
    assert google_tf1.notices(CONFIG) == []


def test_a_failed_write_leaves_nothing(tmp_path):
    config = dataclasses.replace(CONFIG, causal=True)
    causal = Checkpoint(config, arrays("pooler"))
    line = error_of(save_checkpoint, tmp_path / "m", causal, "google_tf1")
    assert "causal is true" in line
    values = arrays("pooler")
    values["bert/pooler/dense/bias"] = np.array(["text"])
    with pytest.raises((TypeError, ValueError)):
        google_tf1.write(tmp_path, Checkpoint(CONFIG, values))
    assert list(tmp_path.iterdir()) == []


def two_prefixes(folder):
    for path in list(folder.glob("bert_model.ckpt.*")):
        shutil.copy(path, str(path).replace("bert_model", "other"))


def newest_is_missing(folder):
    text = 'model_checkpoint_path: "/there/model.ckpt-9"\n'
    (folder / "checkpoint").write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated(DATA, 1), r"of-00001: truncated; .* take \d+ bytes"),
        (without(DATA), r"ckpt.index: its .data files .* \(found none\)"),
        (
            lambda folder: (folder / DATA).rename(folder / f"{DATA[:-1]}2"),
            r"\(found bert_model.ckpt.data-00000-of-00002\)",
        ),
        (without(INDEX), "bert_model.ckpt.index is missing"),
        (truncated(INDEX, 9), "ckpt.index: damaged checkpoint"),
        (
            with_bytes(INDEX, lambda data: data[:60] + b"?" + data[61:]),
            "ckpt.index: damaged checkpoint",
        ),
        (with_bytes(INDEX, lambda _: b""), "ckpt.index: damaged checkpoint"),
        (without("bert_config.json"), "no bert_config.json"),
        (two_prefixes, r"2 checkpoints \(bert_model.ckpt, other.ckpt\)"),
        (newest_is_missing, "names model.ckpt-9, but .* has bert_model.ckpt"),
        *(
            (with_keys("bert_config.json", **changes), message)
            for changes, message in (
                ({"intermediate_size": 7}, r"kernel is \[4, 6\] .* \[4, 7\]"),
                ({"directionality": "left"}, "directionality is 'left'"),
                ({"pooler_type": "mean"}, "pooler_type is 'mean'"),
                ({"embedding_size": 2}, "embedding_size is 2"),
                ({"causal": True}, "unknown key causal"),
                ({"hiden_size": 4}, "unknown key hiden_size"),
                ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
                ({"hidden_size": "4"}, "hidden_size is '4'"),
            )
        ),
    ],
)
def test_a_damaged_folder(saved, tmp_path, damage, message):
    assert_refused(saved, tmp_path, damage, message)


def test_changed_values_are_found_when_they_are_read(folder, tmp_path):
    with_bytes(DATA, lambda d: d[:3] + bytes([d[3] ^ 1]) + d[4:])(folder)
    checkpoint = load_checkpoint(folder)
    name = "bert/embeddings/LayerNorm/beta"
    assert f"at {name}" in error_of(lambda: checkpoint.arrays[name])
    line = error_of(save_checkpoint, tmp_path / "ours", checkpoint)
    assert "damaged checkpoint" in line
    assert not (tmp_path / "ours").exists()


def test_files_that_are_not_opened(folder, tmp_path):
    version = v1.train.SaverDef.V1
    old = save_v1(tmp_path / "v1", arrays("pooler"), write_version=version)
    assert "TensorFlow's first format" in error_of(load_checkpoint, old)
    assert load_checkpoint(folder.rename(tmp_path / "a* ä?")).heads
    moved = (tmp_path / "a* ä?").rename(tmp_path / "a[1]")
    assert "opens no path with" in error_of(load_checkpoint, moved)
    # Of another library.
    (tmp_path / "bert_config.json").write_text("{}")
    (tmp_path / "epoch=3.ckpt").write_bytes(b"PK\x03\x04 no table of ours")
    assert not FOUND_IN["google_tf1"](tmp_path)


def test_heads_of_googles_fine_tuning():
    """The names of variables in run_classifier.py and run_squad.py."""
    heads = head_shapes(CONFIG)
    assert heads["classifier"] == {
        "output_weights": (None, 4),
        "output_bias": (None,),
    }
    assert heads["span"] == {
        "cls/squad/output_weights": (2, 4),
        "cls/squad/output_bias": (2,),
    }
