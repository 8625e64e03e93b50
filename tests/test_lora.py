"""Low-rank updates: parity, gradients, what is trained, adapters, merging.

Those of whole models in every form are in `test_encoder_variants.py`.
"""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import encoder_inputs, fill, numpy, small_config
from reference_bert import ACTIVATIONS, ReferenceBert

from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_adapter,
    save_checkpoint,
)
from bert_tf.checkpoints.low_rank import merged
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.layers import Dense, SelfAttention
from bert_tf.models import bert_classifier, model_arrays, restore
from bert_tf.optimization import is_excluded
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config
from tests.user_errors import error_of

WAYS = [
    {},
    {"unpadded": True},
    {"pooled_only": True},
    {"pooled_only": True, "unpadded": True},
]
ON = ["query_value", "all_dense"]
KERNEL = "bert/encoder/layer_1/attention/self/value/kernel"


def config_of(lora_on: str, **changes) -> BertConfig:
    return small_config(lora_rank=3, lora_alpha=6.0, lora_on=lora_on, **changes)


class LowRankReference(ReferenceBert):
    """y = x W + b + alpha / r (x A) B (Hu et al. 2021, section 4.1)."""

    def dense(self, x, name):
        outputs = super().dense(x, name)
        if f"{name}/lora_a" in self.arrays:
            a, b = (self.arrays[f"{name}/lora_{end}"] for end in "ab")
            scale = self.config.lora_alpha / self.config.lora_rank
            outputs = outputs + scale * ((x @ a) @ b)
        return outputs


@pytest.mark.parametrize(
    ("lora_on", "causal"), [("query_value", False), ("all_dense", True)]
)
def test_outputs_are_the_reference_and_those_of_the_merged(
    lora_on, causal
) -> None:
    config = config_of(lora_on, causal=causal)
    encoder = fill(BertEncoder(config), scale=0.2)
    inputs = encoder_inputs(config, rows=5)
    arrays = encoder.to_arrays()
    wanted = LowRankReference(config, arrays)(inputs)
    without = ReferenceBert(config, arrays)(inputs)
    whole = BertEncoder(config.without_lora())
    restore(whole, merged(Checkpoint(config, arrays)))
    real = inputs["input_mask"] == 1
    for how in WAYS:
        outputs, plain = encoder(inputs, **how), whole(inputs, **how)
        for name, value in outputs.items():
            part = real if name == "sequence_output" else slice(None)
            found = numpy(value)[part]
            np.testing.assert_allclose(found, wanted[name][part], atol=1e-5)
            np.testing.assert_allclose(
                found, numpy(plain[name])[part], atol=2e-6
            )
            assert np.abs(found - without[name][part]).max() > 0.05


@pytest.mark.parametrize(
    ("lora_on", "policy"),
    [("all_dense", "float32"), ("query_value", "mixed_bfloat16")],
)
def test_a_new_one_computes_what_its_base_does(lora_on, policy) -> None:
    config = config_of(lora_on)
    base = fill(BertEncoder(config.without_lora(), dtype=policy))
    encoder = BertEncoder(config, dtype=policy)
    checkpoint = Checkpoint(base.config, base.to_arrays())
    assert restore(encoder, checkpoint, fresh=["lora"]) == ("lora",)
    inputs = encoder_inputs(config)
    for how in WAYS:
        outputs = encoder(inputs, **how)
        for name, value in base(inputs, **how).items():
            np.testing.assert_array_equal(numpy(value), numpy(outputs[name]))


def test_new_ones_are_drawn_as_in_the_code_of_the_paper() -> None:
    layer = SelfAttention(small_config(hidden_size=48, lora_rank=40))
    layer.build()
    assert set(layer.updates) == {"query", "value"}
    for a, b in layer.updates.values():
        assert not numpy(b).any()
        # Uniform within 48^-0.5.
        assert 0.95 < np.abs(numpy(a)).max() * 48**0.5 <= 1
        assert abs(numpy(a).std() * (3 * 48) ** 0.5 - 1) < 0.05


@pytest.mark.parametrize("activation", ["linear", "gelu", "gelu_erf", "tanh"])
def test_gradients_are_the_products(activation) -> None:
    """Of a and b, against differences of a NumPy forward in float64."""
    layer = Dense(config_of("all_dense"), 7, activation)
    rows = np.random.default_rng(3).normal(size=(5, 24)).astype("float32")
    layer.build(rows.shape)
    fill(layer)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(layer(rows)))
    update = [v.value for v in layer.update]
    found = tape.gradient(loss, update)
    act = ACTIVATIONS[activation]
    kernel, bias = (
        numpy(v).astype("float64") for v in (layer.kernel, layer.bias)
    )

    def value(a, b):
        return (act(rows @ kernel + bias + 2.0 * (rows @ a) @ b) ** 2).sum()

    a, b = (numpy(v).astype("float64") for v in layer.update)
    for which, gradient in enumerate(found):
        for place in np.ndindex(*gradient.shape):
            step = np.zeros(gradient.shape)
            step[place] = 1e-6
            pairs = (
                (a + sign * step, b) if which == 0 else (a, b + sign * step)
                for sign in (1, -1)
            )
            above, below = (value(*pair) for pair in pairs)
            expected = (above - below) / 2e-6
            assert gradient.numpy()[place] == pytest.approx(
                expected, rel=1e-3, abs=1e-3
            )


def test_fit_trains_low_rank_matrices_and_head_alone() -> None:
    encoder = BertEncoder(config_of("query_value"))
    model = bert_classifier(encoder, 2)
    loss = keras.losses.SparseCategoricalCrossentropy(True)
    model.compile("adam", loss, run_eagerly=True)
    before = model_arrays(model)
    inputs = encoder_inputs(encoder.config, rows=8)
    model.fit(inputs, np.arange(8) % 2, epochs=2, verbose=0)
    for name, array in model_arrays(model).items():
        trained = "lora" in name or "pooler" in name or "output" == name[:6]
        assert np.array_equal(array, before[name]) != trained, name
    for weight in encoder.trainable_weights:
        assert is_excluded(weight.path) == weight.path.endswith("pooler/bias")
    # The masked LM head's dense layer is none of the encoder's.
    pretrainer = BertPretrainer(BertEncoder(config_of("all_dense")))
    assert pretrainer.masked_lm.transform.update is None


def trained(folder, lora_on: str, base: Checkpoint) -> Checkpoint:
    """An adapter with a classifier in a folder, and what is in it."""
    config = dataclasses.replace(
        base.config, lora_rank=2, lora_alpha=5.0, lora_on=lora_on
    )
    arrays = random_arrays(config, ("pooler", "classifier", "lora"))
    arrays |= {n: a for n, a in base.arrays.items() if "pooler" not in n}
    checkpoint = Checkpoint(
        config, arrays, Vocabulary(TOKENS), True, labels=("no", "yes", "so")
    )
    save_adapter(folder, checkpoint, base)
    return checkpoint


@pytest.fixture
def base(tmp_path) -> Checkpoint:
    config = tiny_config()
    arrays = random_arrays(config, ("pooler",))
    save_checkpoint(
        tmp_path / "base", Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    )
    return load_checkpoint(tmp_path / "base")


@pytest.mark.parametrize("lora_on", ON)
def test_an_adapter_is_read_with_its_base(lora_on, base, tmp_path) -> None:
    folder = tmp_path / "adapter"
    wanted = trained(folder, lora_on, base)
    apart = load_checkpoint(folder, merge=False)
    assert apart.config == wanted.config
    assert apart.heads == ("pooler", "classifier", "lora")
    for name, array in wanted.arrays.items():
        np.testing.assert_array_equal(apart.arrays[name], array)
    whole = load_checkpoint(folder)
    assert whole.config == base.config
    assert whole.labels == wanted.labels
    assert whole.vocabulary == wanted.vocabulary
    for name, array in whole.arrays.items():
        stem = name.removesuffix("/kernel")
        if f"{stem}/lora_a" in wanted.arrays:
            a, b = (wanted.arrays[f"{stem}/lora_{end}"] for end in "ab")
            array = array - 2.5 * a @ b
        np.testing.assert_allclose(array, wanted.arrays[name], atol=1e-5)
    # Of the base nothing is in the folder.
    sizes = [wanted.arrays[n].nbytes for n in wanted.arrays if "lora" in n]
    stored = read_arrays(folder / "adapter_model.safetensors")
    assert len(stored) == len(sizes) + 4
    # An adapter may be the base of another.
    again = trained(tmp_path / "again", lora_on, load_checkpoint(folder))
    before = load_checkpoint(folder).arrays[KERNEL]
    np.testing.assert_array_equal(again.arrays[KERNEL], before)
    assert np.abs(load_checkpoint(tmp_path / "again").arrays[KERNEL]).max() > 0
    # What is merged is an ordinary folder.
    save_checkpoint(tmp_path / "whole", wanted)
    for name, array in load_checkpoint(tmp_path / "whole").arrays.items():
        np.testing.assert_array_equal(array, whole.arrays[name])


def test_names_are_those_of_peft(base, tmp_path) -> None:
    trained(tmp_path / "adapter", "query_value", base)
    arrays = read_arrays(tmp_path / "adapter" / "adapter_model.safetensors")
    layers = base.config.num_hidden_layers
    hidden = base.config.hidden_size
    at = "base_model.model.bert.encoder.layer.{}.attention.self.{}.lora_{}"
    wanted = {
        at.format(layer, part, end) + ".weight": shape
        for layer in range(layers)
        for part in ("query", "value")
        for end, shape in (("A", (2, hidden)), ("B", (hidden, 2)))
    } | {
        "base_model.model.bert.pooler.dense.weight": (hidden, hidden),
        "base_model.model.bert.pooler.dense.bias": (hidden,),
        "base_model.model.classifier.weight": (3, hidden),
        "base_model.model.classifier.bias": (3,),
    }
    assert {name: array.shape for name, array in arrays.items()} == wanted
    values = json.loads(
        (tmp_path / "adapter" / "adapter_config.json").read_text()
    )
    assert values["base_model_name_or_path"] == str(tmp_path / "base")
    assert (values["r"], values["lora_alpha"]) == (2, 5.0)
    assert values["task_type"] == "SEQ_CLS"
    assert values["target_modules"] == ["query", "value"]
    assert values["modules_to_save"] == ["classifier", "pooler"]


def test_where_a_base_lies(base, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "adapter"
    path = folder / "adapter_config.json"
    hub = dataclasses.replace(base, source="hf://some/model@v1")
    trained(folder, "query_value", hub)
    values = json.loads(path.read_text())
    assert values["base_model_name_or_path"] == "some/model"
    assert values["revision"] == "v1"
    asked = []

    def local(source):
        asked.append(source)
        return tmp_path / ("base" if "some" in str(source) else "adapter")

    monkeypatch.setattr("bert_tf.checkpoints.folder.local_folder", local)
    load_checkpoint(folder)
    assert asked == [folder, "hf://some/model@v1"]
    monkeypatch.undo()
    # A path that begins with a dot is meant from the adapter on.
    values["base_model_name_or_path"] = "../base"
    path.write_text(json.dumps(values))
    load_checkpoint(folder)


def test_a_base_that_is_not_the_one(base, tmp_path) -> None:
    folder = tmp_path / "adapter"
    trained(folder, "query_value", base)
    shutil.move(tmp_path / "base", tmp_path / "moved")
    line = error_of(load_checkpoint, folder)
    assert line.startswith(f"{folder}: the base model of this adapter cannot")
    assert "base_model_name_or_path in adapter_config.json" in line
    moved = load_checkpoint(tmp_path / "moved")
    arrays = {name: np.array(a) for name, a in moved.arrays.items()}
    arrays[KERNEL][2, 3] += 1e-3
    save_checkpoint(
        tmp_path / "base", dataclasses.replace(moved, arrays=arrays)
    )
    assert "is not the model that this" in error_of(load_checkpoint, folder)
    other = dataclasses.replace(moved.config, hidden_act="relu")
    save_checkpoint(tmp_path / "base", dataclasses.replace(moved, config=other))
    assert "is not the model that this" in error_of(load_checkpoint, folder)
    save_checkpoint(tmp_path / "base", moved)
    load_checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, "use_dora is True, which changes what an adapter"),
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'; 'LORA' can be read"),
        ({"r": 3}, "other shapes: base_model.model.bert.encoder.layer.0"),
        ({"r": None}, "lora_rank is None; it takes a whole number"),
        ({"r": 99}, "lora_rank is 99; it takes 0 to 8 (hidden_size is 8)"),
        ({"target_modules": ["dense"]}, 'target_modules is ["dense"]; ["query'),
        ({"target_modules": "x"}, 'target_modules is "x"; ["query", "value"]'),
        ({"task_type": None}, "unexpected: base_model.model.classifier.bias"),
        ({"base_model_name_or_path": 3}, "base_model_name_or_path is 3"),
    ],
)
def test_adapters_that_cannot_be_read(changes, message, base, tmp_path) -> None:
    trained(tmp_path / "adapter", "query_value", base)
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert message in error_of(load_checkpoint, tmp_path / "adapter")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_rank": -1}, "lora_rank is -1; it takes 0 or more"),
        ({"lora_rank": 25}, "it takes 0 to 24"),
        ({"lora_alpha": 0.0}, "lora_alpha is 0.0; it takes more than 0"),
        ({"lora_on": "key"}, "one of query_value, all_dense"),
    ],
)
def test_bad_settings(changes, message) -> None:
    assert message in error_of(small_config, **changes)


def test_a_configuration_with_one_comes_back() -> None:
    """Of those without, see `test_encoder_variants.py`."""
    config = BertConfig.from_size("tiny", 100)
    with_one = dataclasses.replace(config, lora_rank=4, lora_on="all_dense")
    assert BertConfig.from_dict(with_one.to_dict(), "") == with_one
    assert with_one.without_lora() == config


def test_a_restored_model_is_of_the_same_rank_and_scale(base, tmp_path) -> None:
    wanted = trained(tmp_path / "adapter", "all_dense", base)
    encoder = BertEncoder(wanted.config)
    model = bert_classifier(encoder, 3)
    assert restore(model, wanted) == ()
    for name, array in model_arrays(model).items():
        np.testing.assert_array_equal(array, wanted.arrays[name])
    plain = BertEncoder(base.config)
    assert "lora_rank is 2, and 0 in the" in error_of(restore, plain, wanted)
    config = dataclasses.replace(wanted.config, lora_alpha=1.0)
    other = BertEncoder(config)
    assert "lora_alpha is 5.0, and 1.0" in error_of(restore, other, wanted)


@pytest.mark.parametrize("to", ["bert_tf", "hugging_face"])
def test_a_conversion_is_proved(to, base, tmp_path) -> None:
    trained(tmp_path / "adapter", "all_dense", base)
    report = convert_checkpoint(tmp_path / "adapter", to, tmp_path / "whole")
    assert {c.output for c in report.comparisons} == {
        *("sequence_output", "pooled_output"),
        "classifier_logits",
    }
