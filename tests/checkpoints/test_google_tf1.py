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
from bert_tf.errors import UserError
from tests.hugging_face_models import random_arrays

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
DATA = "data-00000-of-00001"
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


def google_keys(config=CONFIG):
    values = config.to_dict()
    for key in ("causal", "layer_norm_eps", "masked_lm_act"):
        del values[key]
    del values["masked_lm_layer_norm_eps"]
    return values


def save_v1(folder, values, prefix="bert_model.ckpt", step=None, **saver):
    """Saves variables as a TensorFlow 1 program does, and a config."""
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(google_keys()))
    with v1.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=value, use_resource=False)
        session.run(v1.global_variables_initializer())
        v1.train.Saver(**saver).save(
            session, str(folder / prefix), step, write_meta_graph=False
        )
    if step is None:
        (folder / "checkpoint").unlink()
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What a TensorFlow 1 program saved: an encoder with its pooler."""
    return save_v1(tmp_path_factory.mktemp("saved") / "m", arrays("pooler"))


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it, to damage."""
    return shutil.copytree(saved, tmp_path / "m")


def assert_same(given, wanted):
    assert set(given) == set(wanted)
    for name in wanted:
        assert given[name].dtype == np.float32
        np.testing.assert_array_equal(given[name], wanted[name])


def test_reads_what_a_run_left(tmp_path, capsys):
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
        save_v1(
            folder,
            {k: v + number for k, v in values.items()} | slots | step,
            "model.ckpt",
            number,
        )
    assert recognise(folder) == "google_tf1"
    checkpoint = load_checkpoint(folder)
    assert checkpoint.config == CONFIG
    assert checkpoint.heads == PRETRAINING
    assert set(checkpoint.left_out) == {*slots, "global_step"}
    (line,) = capsys.readouterr().err.splitlines()
    assert f"moving averages of {len(averages)} weights" in line
    assert line.endswith("the weights are taken, as google-research/bert does.")
    # The newest, as the file `checkpoint` says.
    assert_same(checkpoint.arrays, {k: v + 30 for k, v in values.items()})


def test_reads_names_within_a_scope(tmp_path, capsys):
    values = arrays("pooler")
    scoped = {f"tower_0/{name}": value for name, value in values.items()}
    folder = save_v1(tmp_path / "scoped", scoped | {"crf": np.ones(3, "f")})
    found = load_checkpoint(folder, ignore="^crf$")
    assert_same(found.arrays, values)
    assert "begin with 'tower_0/', which is left out" in capsys.readouterr().err


def test_reads_partitioned_variables_and_shards(tmp_path):
    values = arrays("pooler")
    words = "bert/embeddings/word_embeddings"
    (tmp_path / "bert_config.json").write_text(json.dumps(google_keys()))
    with v1.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():

            def part(shape, dtype, partition_info, value=value):
                start = partition_info.var_offset[0] if partition_info else 0
                return value[start : start + shape[0]]

            v1.get_variable(
                name,
                value.shape,
                initializer=part,
                partitioner=(
                    v1.fixed_size_partitioner(3) if name == words else None
                ),
                use_resource=False,
            )
        session.run(v1.global_variables_initializer())
        v1.train.Saver(sharded=True).save(
            session, str(tmp_path / "bert_model.ckpt")
        )
    assert_same(load_checkpoint(tmp_path).arrays, values)


def test_reads_the_keys_of_released_files(folder):
    path = folder / "bert_config.json"
    values = {**google_keys(), **RELEASED, "hidden_act": "GELU"}
    path.write_text(json.dumps(values))
    assert load_checkpoint(folder).config == CONFIG


def test_absent_keys_take_googles_defaults(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text('{"vocab_size": 9}')
    assert google_tf1.read_google_config(path) == BertConfig(
        9, type_vocab_size=16
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"directionality": "left"}, "directionality is 'left'"),
        ({"pooler_type": "mean"}, "pooler_type is 'mean'"),
        ({"embedding_size": 2}, "embedding_size is 2"),
        ({"causal": True}, "unknown key causal"),
        ({"hiden_size": 4}, "unknown key hiden_size"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
        ({"hidden_size": "4"}, "hidden_size is '4'"),
    ],
)
def test_config_of_another_model(folder, changes, message):
    path = folder / "bert_config.json"
    path.write_text(json.dumps({**google_keys(), **changes}))
    with pytest.raises(UserError, match=message):
        load_checkpoint(folder)


ALL_HEADS = tuple(head_shapes(CONFIG))


def test_round_trip_is_exact(tmp_path):
    values = arrays(*ALL_HEADS)
    given = Checkpoint(CONFIG, values, labels=("no", "yes", "mäßig"))
    save_checkpoint(tmp_path / "ours", given)
    save_checkpoint(
        tmp_path / "google", load_checkpoint(tmp_path / "ours"), "google_tf1"
    )
    assert sorted(path.name for path in (tmp_path / "google").iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "labels.json",
    ]
    back = load_checkpoint(tmp_path / "google")
    assert (back.config, back.labels) == (CONFIG, given.labels)
    assert (back.heads, back.left_out) == (ALL_HEADS, ())
    assert_same(back.arrays, values)


def test_a_v1_saver_restores_what_is_written(tmp_path):
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
        assert_same(session.run(variables), values)
    config = json.loads((tmp_path / "bert_config.json").read_text())
    assert config == google_keys()


def test_what_google_does_otherwise_is_said_and_read_back(tmp_path):
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


def test_a_causal_model_is_not_written(tmp_path):
    config = dataclasses.replace(CONFIG, causal=True)
    with pytest.raises(UserError, match="causal is true"):
        save_checkpoint(
            tmp_path / "m", Checkpoint(config, arrays("pooler")), "google_tf1"
        )
    assert list(tmp_path.iterdir()) == []


def test_writing_leaves_nothing_when_it_fails(tmp_path):
    values = arrays("pooler")
    values["bert/pooler/dense/bias"] = np.array(["text"])
    with pytest.raises((TypeError, ValueError)):
        google_tf1.write(tmp_path, Checkpoint(CONFIG, values))
    assert list(tmp_path.iterdir()) == []


def damaged(end, change):
    """Changes the bytes of the file with such an end."""

    def damage(folder):
        path = folder / f"bert_model.ckpt.{end}"
        path.write_bytes(change(path.read_bytes()))

    return damage


def gone(end):
    return lambda folder: (folder / f"bert_model.ckpt.{end}").unlink()


def no_shard(folder):
    (folder / f"bert_model.ckpt.{DATA}").rename(
        folder / "bert_model.ckpt.data-00000-of-00002"
    )


def no_config(folder):
    (folder / "bert_config.json").unlink()


def other_sizes(folder):
    values = {**google_keys(), "intermediate_size": 7}
    (folder / "bert_config.json").write_text(json.dumps(values))


def two_prefixes(folder):
    for path in list(folder.glob("bert_model.ckpt.*")):
        shutil.copy(path, str(path).replace("bert_model", "other"))


def newest_is_missing(folder):
    text = 'model_checkpoint_path: "/there/model.ckpt-9"\n'
    (folder / "checkpoint").write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            damaged(DATA, lambda data: data[:-1]),
            r"data-00000-of-00001: truncated; .* take \d+ bytes",
        ),
        (gone(DATA), r"ckpt.index: its .data files .* \(found none\)"),
        (no_shard, r"\(found bert_model.ckpt.data-00000-of-00002\)"),
        (gone("index"), "bert_model.ckpt.index is missing"),
        (
            damaged("index", lambda data: data[:-9]),
            "ckpt.index: damaged checkpoint",
        ),
        (
            damaged("index", lambda data: data[:60] + b"?" + data[61:]),
            "ckpt.index: damaged checkpoint",
        ),
        (damaged("index", lambda _: b""), "ckpt.index: damaged checkpoint"),
        (no_config, "no bert_config.json"),
        (other_sizes, r"dense/kernel is \[4, 6\] .* says \[4, 7\]"),
        (two_prefixes, r"2 checkpoints \(bert_model.ckpt, other.ckpt\)"),
        (newest_is_missing, "names model.ckpt-9, but .* has bert_model.ckpt"),
    ],
)
def test_a_damaged_folder_is_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_changed_values_are_found_when_they_are_read(folder, tmp_path):
    damaged(DATA, lambda data: data[:3] + bytes([data[3] ^ 1]) + data[4:])(
        folder
    )
    checkpoint = load_checkpoint(folder)
    with pytest.raises(UserError, match="at bert/embeddings/LayerNorm/beta"):
        checkpoint.arrays["bert/embeddings/LayerNorm/beta"]
    with pytest.raises(UserError, match="damaged checkpoint"):
        save_checkpoint(tmp_path / "ours", checkpoint)
    assert not (tmp_path / "ours").exists()


def test_the_first_format_is_told(tmp_path):
    version = v1.train.SaverDef.V1
    folder = save_v1(tmp_path / "m", arrays("pooler"), write_version=version)
    with pytest.raises(UserError, match="TensorFlow's first format") as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_a_path_that_tensorflow_takes_for_a_pattern(folder, tmp_path):
    assert load_checkpoint(folder.rename(tmp_path / "a* ä?")).heads
    with pytest.raises(UserError, match="opens no path with"):
        load_checkpoint((tmp_path / "a* ä?").rename(tmp_path / "a[1]"))


def test_other_libraries_ckpt_files_are_not_googles(tmp_path):
    (tmp_path / "bert_config.json").write_text("{}")
    (tmp_path / "epoch=3.ckpt").write_bytes(b"PK\x03\x04 no table of ours")
    assert not FOUND_IN["google_tf1"](tmp_path)


def test_heads_of_googles_fine_tuning():
    """As run_classifier.py and run_squad.py call their variables."""
    heads = head_shapes(CONFIG)
    assert heads["classifier"] == {
        "output_weights": (None, 4),
        "output_bias": (None,),
    }
    assert heads["span"] == {
        "cls/squad/output_weights": (2, 4),
        "cls/squad/output_bias": (2,),
    }
