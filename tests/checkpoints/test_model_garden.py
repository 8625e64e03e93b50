import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import yaml

from bert_tf.checkpoints import load_checkpoint, recognise, save_checkpoint
from bert_tf.checkpoints.model_garden import read_params
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.pretraining.pretrainer import BertPretrainer

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "model_garden"
CONFIG = BertConfig(
    vocab_size=19,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=12,
)
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
HEADS = {
    "encoder_v1": ("pooler",),
    "encoder_v2": ("pooler",),
    "pretrainer_v1": ("pooler", "masked_lm", "next_sentence"),
    "pretrainer_items_v2": ("pooler", "masked_lm"),
    "trainer_v2": ("pooler", "masked_lm", "next_sentence"),
    "classifier_v1": ("pooler", "classifier"),
    "classifier_v2_own_pooler": ("pooler", "classifier"),
    "token_classifier_v2": ("pooler", "token_classifier"),
    "span_labeler_v1": ("pooler", "span"),
}


def inputs():
    given = np.load(GOLDEN / "inputs.npz")
    return {
        "input_ids": given["input_word_ids"],
        "input_mask": given["input_mask"],
        "segment_ids": given["input_type_ids"],
        "masked_lm_positions": given["masked_lm_positions"],
    }


def head_outputs(arrays, outputs, head):
    """What a head computes from the encoder's outputs, in NumPy."""
    vectors = outputs[
        "pooled_output" if head == "classifier" else "sequence_output"
    ].numpy()
    name = {
        "classifier": "",
        "token_classifier": "cls/token_classification/",
        "span": "cls/squad/",
    }[head]
    weights, bias = (
        arrays[f"{name}output_{kind}"] for kind in ("weights", "bias")
    )
    logits = vectors @ weights.T + bias
    if head == "span":
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    return {"logits": logits}


@pytest.mark.parametrize("name", HEADS)
def test_computes_what_model_garden_computes(name):
    folder = GOLDEN / name
    assert recognise(folder) == "model_garden"
    checkpoint = load_checkpoint(folder)
    assert checkpoint.config == CONFIG
    assert checkpoint.heads == HEADS[name]
    arrays = dict(checkpoint.arrays)
    encoder = BertEncoder(checkpoint.config)
    encoder.load_arrays(arrays)
    outputs = encoder(inputs())
    ours = {key: value.numpy() for key, value in outputs.items()}
    if "next_sentence" in checkpoint.heads:
        pretrainer = BertPretrainer(encoder)
        pretrainer.load_arrays(arrays)
        scores = pretrainer(inputs())
        ours["mlm_logits"] = scores["masked_lm_logits"].numpy()
        ours["next_sentence"] = scores["next_sentence_logits"].numpy()
    for head in ("classifier", "token_classifier", "span"):
        if head in checkpoint.heads:
            ours |= head_outputs(arrays, outputs, head)
    theirs = np.load(folder / "outputs.npz")
    compared = sorted(set(theirs) & set(ours))
    for key in compared:
        np.testing.assert_allclose(
            ours[key], theirs[key], rtol=0, atol=1e-5, err_msg=key
        )
    left = (
        {"mlm_logits", "next_sentence"} if name.endswith("items_v2") else set()
    )
    assert set(compared) == set(theirs) - left


def test_arrays_are_reshapes_of_theirs():
    arrays = load_checkpoint(GOLDEN / "encoder_v1").arrays
    theirs = tf.train.load_checkpoint(
        str(GOLDEN / "encoder_v1/bert_model.ckpt")
    )
    layer = "model/layer_with_weights-5/_attention_layer/"
    at = "bert/encoder/layer_1/attention"
    for ours, key, shape in (
        (f"{at}/self/key/kernel", f"{layer}_key_dense/kernel", (8, 2, 4)),
        (f"{at}/self/key/bias", f"{layer}_key_dense/bias", (2, 4)),
        (
            f"{at}/output/dense/kernel",
            f"{layer}_output_dense/kernel",
            (2, 4, 8),
        ),
    ):
        stored = theirs.get_tensor(key + VALUE)
        assert stored.shape == shape
        np.testing.assert_array_equal(arrays[ours].ravel(), stored.ravel())
    heads = load_checkpoint(GOLDEN / "pretrainer_v1").arrays
    theirs = tf.train.load_checkpoint(
        str(GOLDEN / "pretrainer_v1/bert_model.ckpt")
    )
    np.testing.assert_array_equal(
        heads["cls/seq_relationship/output_weights"],
        theirs.get_tensor(
            f"model/classification_heads/0/out_proj/kernel{VALUE}"
        ).T,
    )
    # The pooler is the head's own; the encoder's was never trained.
    np.testing.assert_array_equal(
        heads["bert/pooler/dense/kernel"],
        theirs.get_tensor(f"model/classification_heads/0/dense/kernel{VALUE}"),
    )


def test_what_is_left_out_is_told():
    pooler = {f"encoder/_pooler_layer/{end}" for end in ("kernel", "bias")}
    assert set(load_checkpoint(GOLDEN / "pretrainer_v1").left_out) == pooler
    left_out = set(load_checkpoint(GOLDEN / "trainer_v2").left_out)
    assert left_out > pooler | {"global_step", "save_counter"}
    slots = {name for name in left_out if ".OPTIMIZER_SLOT" in name}
    # Two moments of each of the 46 arrays but the untrained pooler's.
    assert len(slots) == 2 * 46
    assert load_checkpoint(GOLDEN / "encoder_v2").left_out == ()


def test_converts_to_the_two_others(tmp_path):
    checkpoint = load_checkpoint(GOLDEN / "trainer_v2")
    for to in ("bert_tf", "google_tf1"):
        save_checkpoint(tmp_path / to, checkpoint, to)
        back = load_checkpoint(tmp_path / to)
        assert back.config == checkpoint.config
        assert set(back.arrays) == set(checkpoint.arrays)
        for name in checkpoint.arrays:
            np.testing.assert_array_equal(
                back.arrays[name], checkpoint.arrays[name]
            )


@pytest.fixture
def folder(tmp_path):
    """A copy of a pretrainer's folder, to damage."""
    return shutil.copytree(GOLDEN / "pretrainer_v1", tmp_path / "m")


def cut_data(folder):
    path = folder / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:2000])


def cut_graph(folder):
    path = folder / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-40])


def changed_graph(folder):
    path = folder / "bert_model.ckpt.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[content.index(b"encoder_network") + 3] ^= 1
    path.write_bytes(content)


def no_data(folder):
    (folder / "bert_model.ckpt.data-00000-of-00001").unlink()


def cut_index(folder):
    path = folder / "bert_model.ckpt.index"
    path.write_bytes(path.read_bytes()[:-5])


def other_sizes(folder):
    values = json.loads((folder / "bert_config.json").read_text())
    values["num_attention_heads"] = 4
    (folder / "bert_config.json").write_text(json.dumps(values))


def no_config(folder):
    (folder / "bert_config.json").unlink()


def two_prefixes(folder):
    for path in list(folder.glob("bert_model.ckpt.*")):
        shutil.copy(path, str(path).replace("bert_model.ckpt", "ckpt-7"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_data, r"cut short; the variables take \d+ bytes"),
        (cut_graph, "damaged checkpoint"),
        (changed_graph, "damaged checkpoint at _CHECKPOINTABLE"),
        (no_data, r"its .data files are not all there \(found none\)"),
        (cut_index, "ckpt.index: damaged checkpoint"),
        (other_sizes, r"kernel is \[8, 2, 4\] where .* says \[8, 4, 2\]"),
        (no_config, "has no bert_config.json"),
        (two_prefixes, r"2 checkpoints \(bert_model.ckpt, ckpt-7\)"),
    ],
)
def test_a_damaged_folder_is_one_line(folder, damage, message):
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


def other_activation(values):
    values["task"]["model"]["mlm_activation"] = "relu"


def other_head(values):
    values["task"]["model"]["cls_heads"][0]["cls_token_idx"] = 1


def no_head(values):
    values["task"]["model"]["cls_heads"] = [3]


def other_encoder(values):
    values["task"]["model"]["encoder"] = {"type": "albert", "albert": {}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_first": True}, "norm_first is true"),
        ({"embedding_size": 4}, "embedding_size is 4 and hidden_size 8"),
        ({"share_layers": True}, "unknown key share_layers"),
        ({"num_layers": "two"}, "num_hidden_layers is 'two'"),
        (other_activation, "mlm_activation is 'relu'"),
        (no_head, r"cls_heads is \[3\]; it takes objects"),
        (other_head, "cls_token_idx of the head next_sentence is 1"),
        (other_encoder, "encoder.type is 'albert'"),
    ],
)
def test_parameters_of_another_model(tmp_path, change, message):
    path = tmp_path / "params.yaml"
    values = params(**change) if isinstance(change, dict) else params()
    if not isinstance(change, dict):
        change(values)
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
