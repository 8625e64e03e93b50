"""Checkpoints and parameters of TensorFlow Model Garden.

tests/conversion/test_parity.py compares outputs with recorded ones.
"""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import yaml

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.model_garden import read_params
from bert_tf.config import BertConfig
from tests.checkpoints.damage import assert_refused, with_bytes, with_keys
from tests.user_errors import error_of

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "model_garden"
DATA = "bert_model.ckpt.data-00000-of-00001"


def test_names_left_out():
    pooler = {f"encoder/_pooler_layer/{end}" for end in ("kernel", "bias")}
    assert set(load_checkpoint(GOLDEN / "pretrainer_v1").left_out) == pooler
    left_out = set(load_checkpoint(GOLDEN / "trainer_v2").left_out)
    assert left_out > pooler | {"global_step", "save_counter"}
    # Two moments of each of the 46 arrays but the untrained pooler's.
    assert sum(".OPTIMIZER_SLOT" in name for name in left_out) == 2 * 46
    assert load_checkpoint(GOLDEN / "encoder_v2").left_out == ()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_bytes(DATA, lambda data: data[:-40]), "damaged checkpoint"),
        (
            with_bytes(DATA, lambda d: d.replace(b"encoder_n", b"fncoder_n")),
            "damaged checkpoint at _CHECKPOINTABLE",
        ),
        (
            with_keys("bert_config.json", num_attention_heads=4),
            r"kernel is \[8, 2, 4\] where .* says \[8, 4, 2\]",
        ),
    ],
)
def test_a_damaged_folder(tmp_path, damage, message):
    assert_refused(GOLDEN / "pretrainer_v1", tmp_path, damage, message)


def save_objects(folder, **items):
    folder.mkdir()
    shutil.copy(GOLDEN / "encoder_v1" / "bert_config.json", folder)
    tf.train.Checkpoint(**items).write(str(folder / "ckpt"))
    return folder


def node(**parts):
    module = tf.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def encoder_objects(**more):
    random = np.random.default_rng(3)

    def variable(*shape):
        return tf.Variable(random.normal(size=shape).astype("float32"))

    def dense(*shape, bias=(8,)):
        return node(kernel=variable(*shape), bias=variable(*bias))

    def norm():
        return node(gamma=variable(8), beta=variable(8))

    def layer():
        heads = {
            f"_{name}_dense": dense(8, 2, 4, bias=(2, 4))
            for name in ("query", "key", "value")
        }
        return node(
            _attention_layer=node(**heads, _output_dense=dense(2, 4, 8)),
            _attention_layer_norm=norm(),
            _intermediate_dense=dense(8, 12, bias=(12,)),
            _output_dense=dense(12, 8),
            _output_layer_norm=norm(),
        )

    return node(
        _embedding_layer=node(embeddings=variable(19, 8)),
        _position_embedding_layer=node(embeddings=variable(12, 8)),
        _type_embedding_layer=node(embeddings=variable(2, 8)),
        _embedding_norm_layer=norm(),
        _transformer_layers=[layer(), layer()],
        _pooler_layer=dense(8, 8),
        **more,
    )


def test_graphs_of_other_objects(tmp_path):
    other = node(kernel=tf.Variable([1.0, 2.0]))
    extra = tf.Variable(np.ones((4, 8), "float32"))
    for name, items, message in (
        ("other", {"model": other}, "holds no BertEncoder of TensorFlow"),
        (
            "extra",
            {"model": encoder_objects(_embedding_projection=extra)},
            "unexpected: model/_embedding_projection [4, 8]",
        ),
        (
            "two",
            {"query": encoder_objects(), "passage": encoder_objects()},
            "holds two models, each with encoder",
        ),
    ):
        folder = save_objects(tmp_path / name, **items)
        assert message in error_of(load_checkpoint, folder)


def test_one_encoder_under_two_names_is_one(tmp_path):
    model = encoder_objects()
    folder = save_objects(tmp_path / "m", model=model, encoder=model)
    np.testing.assert_array_equal(
        load_checkpoint(folder).arrays["bert/embeddings/word_embeddings"],
        model._embedding_layer.embeddings.numpy(),
    )


def params(**changes):
    values = yaml.safe_load((GOLDEN / "trainer_v2/params.yaml").read_text())
    values["task"]["model"]["encoder"]["bert_v2"] |= changes
    return values


def test_reads_every_size_of_the_parameters(tmp_path):
    path = tmp_path / "params.yaml"
    same = {
        "vocab_size": 40,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "intermediate_size": 7,
        "max_position_embeddings": 9,
        "type_vocab_size": 6,
        "initializer_range": 0.5,
    }
    values = params(
        **same,
        num_layers=5,
        hidden_activation="relu",
        dropout_rate=0.3,
        attention_dropout_rate=0.4,
        embedding_size=12,
    )
    values["task"]["model"]["mlm_activation"] = "relu"
    path.write_text(yaml.safe_dump(values))
    assert read_params(path) == BertConfig(
        **same,
        num_hidden_layers=5,
        hidden_act="relu",
        hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.4,
    )


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("bert_v2", {"norm_first": True}, "norm_first is true"),
        ("bert_v2", {"embedding_size": 4}, "embedding_size is 4 and hidden"),
        ("bert_v2", {"share_layers": True}, "unknown key share_layers"),
        ("bert_v2", {"num_layers": "two"}, "num_hidden_layers is 'two'"),
        ("model", {"mlm_activation": "relu"}, "mlm_activation is 'relu'"),
        ("model", {"cls_heads": [3]}, "cls_heads is 3; it takes an object"),
        ("head", {"cls_token_idx": 1}, "of the head next_sentence is 1"),
        ("encoder", {"type": "albert"}, "encoder.type='albert'"),
        ("a: [", None, "params.yaml: not valid"),
        ("- 1\n", None, "params.yaml: has no task"),
        ("task: {model: 1}", None, "params.yaml: task.model is 1; it takes"),
    ],
)
def test_parameters_of_another_model(tmp_path, part, change, message):
    text = part
    if change:
        values = params()
        model = values["task"]["model"]
        {
            "model": model,
            "head": model["cls_heads"][0],
            "encoder": model["encoder"],
            "bert_v2": model["encoder"]["bert_v2"],
        }[part].update(change)
        text = yaml.safe_dump(values)
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert message in error_of(read_params, path)
