"""Presets that KerasHub itself wrote, against KerasHub's own outputs."""

import json
import re
import shutil
import subprocess
import sys

import h5py
import keras_hub
import numpy as np
import pytest
from model_helpers import assert_computes, encoder_inputs, fill, numpy
from reference_bert import ReferenceBert

from bert_tf.checkpoints import load_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.text.tokenizer import BertTokenizer
from tests.checkpoints.arrays import assert_same_arrays
from tests.checkpoints.damage import (
    assert_refused,
    changed_json,
    with_bytes,
    without,
)
from tests.user_errors import error_of

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s", "fox")
WEIGHTS, BIAS = "model.weights.h5", "layers/dense/vars/1"


def backbone(**changes):
    sizes = {
        "vocabulary_size": 12,
        "num_layers": 3,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 20,
        "dropout": 0.25,
        "max_sequence_length": 16,
        "num_segments": 3,
    }
    return keras_hub.models.BertBackbone(**{**sizes, **changes})


def tokenizer(lowercase=True):
    return keras_hub.models.BertTokenizer(
        vocabulary=list(WORDS), lowercase=lowercase
    )


@pytest.fixture(scope="module")
def models():
    """A backbone, a masked LM and a classifier with distinct weights."""
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(tokenizer())
    filled = {
        "backbone": backbone(),
        "masked_lm": keras_hub.models.BertMaskedLM(backbone(), preprocessor),
        "classifier": keras_hub.models.BertTextClassifier(backbone(), 3),
    }
    for seed, model in enumerate(filled.values()):
        fill(model, seed)
    return filled


@pytest.fixture(scope="module")
def presets(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("presets")
    for name, model in models.items():
        model.save_to_preset(str(root / name))
    tokenizer(lowercase=False).save_to_preset(str(root / "backbone"))
    return root


@pytest.fixture
def copied(presets, tmp_path):
    """Copies a preset."""
    return lambda name: shutil.copytree(presets / name, tmp_path / name)


def hub_inputs(inputs):
    return {
        "token_ids": inputs["input_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["segment_ids"],
    }


def rename_arrays(path, rename):
    with h5py.File(path, "r+") as file:
        names = []
        file.visititems(
            lambda name, found: (
                names.append(name) if isinstance(found, h5py.Dataset) else None
            )
        )
        for name in names:
            if rename(name) != name:
                file.move(name, rename(name))


def set_bias(path, values):
    """Replaces the bias of the pooler in a weights file."""
    with h5py.File(path, "a") as file:
        del file[BIAS]
        file[BIAS] = values


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("backbone", ("pooler",)),
        ("masked_lm", ("pooler", "masked_lm")),
        ("classifier", ("pooler", "classifier")),
    ],
)
def test_outputs_are_those_of_keras_hub(models, presets, name, heads):
    checkpoint = load_checkpoint(presets / name)
    assert checkpoint.heads == heads
    config = checkpoint.config
    assert (config.hidden_dropout_prob, config.type_vocab_size) == (0.25, 3)
    inputs = encoder_inputs(config)
    if name == "backbone":
        real = inputs["input_mask"].astype(bool)
        assert not real.all()
        ours = BertEncoder.from_checkpoint(presets / name)(inputs)
        theirs = models[name](hub_inputs(inputs))
        np.testing.assert_allclose(
            *(numpy(m["sequence_output"])[real] for m in (ours, theirs)),
            atol=1e-5,
        )
    # Outputs at padding differ.
    inputs["input_mask"][:] = 1
    model, hub = models[name], hub_inputs(inputs)
    theirs = getattr(model, "backbone", model)(hub)
    expected = {
        output: numpy(theirs[output])
        for output in ("sequence_output", "pooled_output")
    }
    if name == "masked_lm":
        positions = np.tile(np.arange(10, dtype=np.int32), (3, 1))
        logits = model({**hub, "mask_positions": positions})
        expected["masked_lm_logits"] = numpy(logits)
    if name == "classifier":
        expected["classifier_logits"] = numpy(model(hub))
    assert assert_computes(presets / name, inputs, expected) == set(expected)


def test_the_head_of_keras_hub_has_its_own_gelu_and_epsilon(models, presets):
    """With the encoder's, its logits differ."""
    checkpoint = load_checkpoint(presets / "masked_lm")
    inputs = encoder_inputs(checkpoint.config)
    outputs = models["masked_lm"].backbone(hub_inputs(inputs))
    hidden = numpy(outputs["sequence_output"])
    config = checkpoint.config.override(
        ["masked_lm_act=", "masked_lm_layer_norm_eps=0"]
    )
    ours, other = (
        ReferenceBert(c, dict(checkpoint.arrays)).predict_words(hidden[0], [1])
        for c in (checkpoint.config, config)
    )
    assert np.abs(ours - other).max() > 1e-5


def test_vocabulary_and_casing(presets):
    for name, lower_case in (("backbone", False), ("masked_lm", True)):
        checkpoint = load_checkpoint(presets / name)
        assert checkpoint.vocabulary.tokens == WORDS
        assert checkpoint.lower_case is lower_case
        ours = BertTokenizer.from_checkpoint(presets / name)
        theirs = keras_hub.models.BertTokenizer.from_preset(str(presets / name))
        ids = numpy(ours.tokenize("The foxs the"))
        assert ids.tolist() == ([5, 7, 6, 5] if lower_case else [1, 7, 6, 5])
        np.testing.assert_array_equal(ids, theirs("The foxs the"))
    assert load_checkpoint(presets / "classifier").vocabulary is None


@pytest.mark.parametrize("kind", ["DistilBertTokenizer", "ElectraTokenizer"])
def test_tokenizers_of_relatives(kind, tmp_path):
    theirs = getattr(keras_hub.models, kind)(list(WORDS), lowercase=True)
    theirs.save_to_preset(str(tmp_path))
    ours = BertTokenizer.from_checkpoint(tmp_path)
    for text in ("The foxs the", "the, THE?"):
        np.testing.assert_array_equal(ours.tokenize(text), theirs(text))


def assert_same(folder, preset):
    assert_same_arrays(*(load_checkpoint(f).arrays for f in (folder, preset)))


def test_shards_are_read_as_one_file(models, presets, copied):
    folder = copied("backbone")
    (folder / WEIGHTS).unlink()
    path = folder / "model.weights.json"
    models["backbone"].save_weights(path, max_shard_size=3e-6)
    assert len(list(folder.glob("model_*.weights.h5"))) > 1
    assert_same(folder, presets / "backbone")

    shutil.copy(folder / "model_00000.weights.h5", folder / "twice.weights.h5")
    files = json.loads(path.read_text())["weight_map"]
    changed_json(path, weight_map=files | {"more": "twice.weights.h5"})
    assert "is in two files of the preset" in error_of(load_checkpoint, folder)
    for name in ("../x.weights.h5", "/etc/x.weights.h5", "x.bin", 3):
        changed_json(path, weight_map={"/layers/dense/vars": [name]})
        assert str(name) in error_of(load_checkpoint, folder)
    path.write_text("{}")
    assert "weight_map" in error_of(load_checkpoint, folder)


def test_bfloat16_is_read(tmp_path):
    model = fill(backbone(dtype="bfloat16"))
    model.save_to_preset(str(tmp_path / "half"))
    arrays = load_checkpoint(tmp_path / "half").arrays
    array = arrays["bert/embeddings/word_embeddings"]
    assert array.dtype == np.float32
    np.testing.assert_array_equal(
        array, numpy(model.token_embedding.embeddings)
    )


def test_an_optimizer_is_left_out(copied):
    folder = copied("classifier")
    with h5py.File(folder / "task.weights.h5", "a") as file:
        file["optimizer/vars/7"] = np.ones(8, np.float32)
    left_out = load_checkpoint(folder).left_out
    # KerasHub compiles a task, which saves the step and the rate.
    assert {"task/optimizer/vars/0", "task/optimizer/vars/7"} <= set(left_out)
    assert all("/optimizer/" in name for name in left_out)


def test_older_names_are_read(presets, copied):
    folder = copied("backbone")

    def older(name):
        name = name.replace("layers/", "_layer_checkpoint_dependencies/", 1)
        return re.sub(r"/(query|key|value|output)_dense", r"/_\1_dense", name)

    rename_arrays(folder / WEIGHTS, older)
    assert_same(folder, presets / "backbone")
    with h5py.File(folder / WEIGHTS, "a") as file:
        file[BIAS] = np.ones(8, np.float32)
    assert "are the same layer's" in error_of(load_checkpoint, folder)


def test_a_head_of_keras_hub_is_written_by_us_alone(presets, tmp_path, capsys):
    preset = presets / "masked_lm"
    report = convert_checkpoint(preset, "bert_tf", tmp_path / "ours")
    assert report.family == "keras_hub"
    assert report.heads == ("pooler", "masked_lm")
    assert len(report.comparisons) == 3
    config = load_checkpoint(tmp_path / "ours").config
    assert config == load_checkpoint(preset).config
    assert config.masked_lm_act == "gelu_erf"
    assert_same(tmp_path / "ours", preset)
    for to in ("google_tf1", "hugging_face"):
        target = tmp_path / to
        line = error_of(convert_checkpoint, preset, to, target)
        assert f"{to} cannot hold a masked LM head" in line
        assert not target.exists()
    report = convert_checkpoint(preset, to, target, drop_heads=["masked_lm"])
    assert report.heads == ("pooler",)
    assert report.not_compared["masked_lm_logits"] == "masked_lm was dropped"
    assert "heads kept: pooler; dropped: masked_lm" in capsys.readouterr().out
    config = load_checkpoint(target).config
    assert config.masked_lm_act == ""
    assert config.masked_lm_layer_norm_eps == 0.0


def changed(file, name=None, **arguments):
    """Changes the class or its arguments, where None removes one."""

    def damage(folder):
        values = json.loads((folder / file).read_text())
        values["class_name"] = name or values["class_name"]
        values["config"] |= arguments
        for key in [k for k in arguments if arguments[k] is None]:
            del values["config"][key]
        (folder / file).write_text(json.dumps(values))

    return damage


def other_layers(folder):
    rename_arrays(
        folder / WEIGHTS,
        lambda name: name.replace("transformer_encoder_2", "transformer_x"),
    )


def linked(folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones(8, np.float32)
    set_bias(folder / WEIGHTS, h5py.ExternalLink(folder / "other.h5", "x"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed("config.json", "FNetBackbone"), "class_name='FNetBackbone'"),
        (
            lambda folder: changed_json(folder / "config.json", config=None),
            "holds no class_name and config",
        ),
        (changed("config.json", num_heads="two"), "json: num_heads is 'two'"),
        (changed("config.json", dropout=None), "BertBackb.*missing: dropout"),
        (changed("config.json", rope=1), "BertBackbone.*unknown: rope"),
        (changed("config.json", num_heads=3), "is 8; it takes a multiple"),
        (changed("config.json", num_heads=4), r"is \[8, 2, 4\] .* \[8, 4,"),
        (
            changed(
                "config.json", dtype={"class_name": "QuantizedDTypePolicy"}
            ),
            "QuantizedDTypePolicy; quantized presets cannot",
        ),
        (changed("task.json", num_classes=2), r"\[8, 3\] .* says \[8, 2\]"),
        (changed("task.json", num_classes="3"), "task.json: num_classes is '3"),
        (changed("task.json", activation="softmax"), 'activation is "softmax"'),
        (without("task.weights.h5"), "not its task.weights.h5"),
        (without("config.json"), "keras_hub, but no config.json"),
        (
            other_layers,
            "missing: model/layers/transformer_encoder_2/"
            ".*unexpected: model/layers/transformer_x/",
        ),
        *(
            (with_bytes(WEIGHTS, change), "h5: damaged weights")
            for change in (
                lambda _: b"",
                lambda _: b"no HDF5" * 100,
                lambda data: data[:-100],
                lambda data: data[: len(data) // 3],
            )
        ),
        (linked, f"missing: model/{BIAS}"),
    ],
)
def test_a_damaged_folder(presets, tmp_path, damage, message):
    assert_refused(presets / "classifier", tmp_path, damage, message)


def test_elements_that_are_no_floating_point_numbers(copied):
    folder = copied("backbone")
    for values, message in (
        (np.zeros(8, "V2"), "no numbers"),
        (np.arange(8), "holds int64, not floating-point"),
    ):
        set_bias(folder / WEIGHTS, values)
        arrays = load_checkpoint(folder).arrays
        assert message in error_of(lambda a=arrays: a["bert/pooler/dense/bias"])


def test_reading_needs_neither_tensorflow_nor_keras(presets):
    code = (
        "import sys; from bert_tf.checkpoints import load_checkpoint; "
        f"c = load_checkpoint({str(presets / 'masked_lm')!r}); "
        "[c.arrays[name] for name in c.arrays]; "
        "assert not {'tensorflow', 'keras', 'keras_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
