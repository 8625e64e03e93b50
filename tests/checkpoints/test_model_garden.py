import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import yaml

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.model_garden import read_params
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "model_garden"


def test_what_is_left_out_is_told():
    pooler = {f"encoder/_pooler_layer/{end}" for end in ("kernel", "bias")}
    assert set(load_checkpoint(GOLDEN / "pretrainer_v1").left_out) == pooler
    left_out = set(load_checkpoint(GOLDEN / "trainer_v2").left_out)
    assert left_out > pooler | {"global_step", "save_counter"}
    slots = {name for name in left_out if ".OPTIMIZER_SLOT" in name}
    # Two moments of each of the 46 arrays but the untrained pooler's.
    assert len(slots) == 2 * 46
    assert load_checkpoint(GOLDEN / "encoder_v2").left_out == ()


def damaged_data(start, change):
    """Changes what stands at some bytes of the data."""

    def damage(folder):
        path = folder / "bert_model.ckpt.data-00000-of-00001"
        content = path.read_bytes()
        at = content.index(start) if start else len(content) - 40
        path.write_bytes(content[:at] + change(content[at:]))

    return damage


def other_sizes(folder):
    path = folder / "bert_config.json"
    values = json.loads(path.read_text()) | {"num_attention_heads": 4}
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged_data(b"", lambda end: b""), "damaged checkpoint"),
        (
            damaged_data(b"encoder_network", lambda end: b"f" + end[1:]),
            "damaged checkpoint at _CHECKPOINTABLE",
        ),
        (other_sizes, r"kernel is \[8, 2, 4\] where .* says \[8, 4, 2\]"),
    ],
)
def test_a_damaged_folder_is_one_line(tmp_path, damage, message):
    folder = shutil.copytree(GOLDEN / "pretrainer_v1", tmp_path / "m")
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


def save_objects(folder, **items):
    folder.mkdir()
    shutil.copy(GOLDEN / "encoder_v1" / "bert_config.json", folder)
    tf.train.Checkpoint(**items).write(str(folder / "ckpt"))
    return folder


def test_other_objects_are_no_bert(tmp_path):
    module = tf.Module()
    module.kernel = tf.Variable([1.0, 2.0])
    folder = save_objects(tmp_path / "m", model=module)
    with pytest.raises(UserError, match="holds no BertEncoder of TensorFlow"):
        load_checkpoint(folder)


def encoder_objects(**more):
    def node(**parts):
        module = tf.Module()
        for name, part in parts.items():
            setattr(module, name, part)
        return module

    random = np.random.default_rng(3)

    def variable(*shape):
        return tf.Variable(random.normal(size=shape).astype("float32"))

    def dense(*shape, bias):
        return node(kernel=variable(*shape), bias=variable(*bias))

    def norm():
        return node(gamma=variable(8), beta=variable(8))

    def layer():
        return node(
            _attention_layer=node(
                _query_dense=dense(8, 2, 4, bias=(2, 4)),
                _key_dense=dense(8, 2, 4, bias=(2, 4)),
                _value_dense=dense(8, 2, 4, bias=(2, 4)),
                _output_dense=dense(2, 4, 8, bias=(8,)),
            ),
            _attention_layer_norm=norm(),
            _intermediate_dense=dense(8, 12, bias=(12,)),
            _output_dense=dense(12, 8, bias=(8,)),
            _output_layer_norm=norm(),
        )

    return node(
        _embedding_layer=node(embeddings=variable(19, 8)),
        _position_embedding_layer=node(embeddings=variable(12, 8)),
        _type_embedding_layer=node(embeddings=variable(2, 8)),
        _embedding_norm_layer=norm(),
        _transformer_layers=[layer(), layer()],
        _pooler_layer=dense(8, 8, bias=(8,)),
        **more,
    )


def test_unknown_variables_are_listed(tmp_path):
    extra = tf.Variable(np.ones((4, 8), "float32"))
    model = encoder_objects(_embedding_projection=extra)
    folder = save_objects(tmp_path / "m", model=model)
    with pytest.raises(
        UserError, match=r"unexpected: model/_embedding_projection \[4, 8\]"
    ):
        load_checkpoint(folder)


def test_two_encoders_are_refused(tmp_path):
    folder = save_objects(
        tmp_path / "m", query=encoder_objects(), passage=encoder_objects()
    )
    with pytest.raises(UserError, match="holds two models, each with encoder"):
        load_checkpoint(folder)


def test_one_encoder_under_two_names_is_one(tmp_path):
    model = encoder_objects()
    folder = save_objects(tmp_path / "m", model=model, encoder=model)
    arrays = load_checkpoint(folder).arrays
    np.testing.assert_array_equal(
        arrays["bert/embeddings/word_embeddings"],
        model._embedding_layer.embeddings.numpy(),
    )


def params(**changes):
    values = yaml.safe_load((GOLDEN / "trainer_v2/params.yaml").read_text())
    values["task"]["model"]["encoder"]["bert_v2"] |= changes
    return values


def test_reads_every_size_of_the_parameters(tmp_path):
    path = tmp_path / "params.yaml"
    sizes = {
        "vocab_size": 40,
        "hidden_size": 12,
        "num_layers": 5,
        "num_attention_heads": 3,
        "hidden_activation": "relu",
        "intermediate_size": 7,
        "dropout_rate": 0.3,
        "attention_dropout_rate": 0.4,
        "max_position_embeddings": 9,
        "type_vocab_size": 6,
        "initializer_range": 0.5,
        "embedding_size": 12,
    }
    values = params(**sizes)
    values["task"]["model"]["mlm_activation"] = "relu"
    path.write_text(yaml.safe_dump(values))
    assert read_params(path) == BertConfig(
        vocab_size=40,
        hidden_size=12,
        num_hidden_layers=5,
        num_attention_heads=3,
        hidden_act="relu",
        intermediate_size=7,
        hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.4,
        max_position_embeddings=9,
        type_vocab_size=6,
        initializer_range=0.5,
    )


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("bert_v2", {"norm_first": True}, "norm_first is true"),
        ("bert_v2", {"embedding_size": 4}, "embedding_size is 4 and hidden"),
        ("bert_v2", {"share_layers": True}, "unknown key share_layers"),
        ("bert_v2", {"num_layers": "two"}, "num_hidden_layers is 'two'"),
        ("model", {"mlm_activation": "relu"}, "mlm_activation is 'relu'"),
        ("model", {"cls_heads": [3]}, r"cls_heads is \[3\]; it takes objects"),
        ("head", {"cls_token_idx": 1}, "of the head next_sentence is 1"),
        ("encoder", {"type": "albert"}, "encoder.type='albert'"),
    ],
)
def test_parameters_of_another_model(tmp_path, part, change, message):
    values = params()
    model = values["task"]["model"]
    {
        "model": model,
        "head": model["cls_heads"][0],
        "encoder": model["encoder"],
        "bert_v2": model["encoder"]["bert_v2"],
    }[part].update(change)
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match=message):
        read_params(path)


@pytest.mark.parametrize(
    "text", ["a: [", "- 1\n", "task: {model: 1}", "!!python/name:os.system x"]
)
def test_parameters_that_are_none(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(
        UserError, match=r"params.yaml: (has no task|not valid)"
    ):
        read_params(path)
