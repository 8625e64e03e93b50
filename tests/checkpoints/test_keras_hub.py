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
from model_helpers import (
    assert_computes,
    encoder_inputs,
    fill,
    numpy,
)
from reference_bert import ReferenceBert

from bert_tf.checkpoints import load_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.text.tokenizer import BertTokenizer

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s", "fox")


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
    """Makes a copy of a preset that a test may damage."""

    def copy(name):
        return shutil.copytree(presets / name, tmp_path / name)

    return copy


def hub_inputs(inputs):
    return {
        "token_ids": inputs["input_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["segment_ids"],
    }


def rewrite_h5(path, rename):
    """Copies a weights file; `rename` gives each array's new name or None."""
    with h5py.File(path) as old:
        arrays = {}
        old.visititems(
            lambda name, found: (
                arrays.update({name: found[()]})
                if isinstance(found, h5py.Dataset)
                else None
            )
        )
    with h5py.File(path, "w") as new:
        for name, array in arrays.items():
            if rename(name) is not None:
                new[rename(name)] = array


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
    # What is computed at padding, nobody uses.
    inputs = encoder_inputs(config)
    inputs["input_mask"][:] = 1
    model, hub = models[name], hub_inputs(inputs)
    theirs = getattr(model, "backbone", model)(hub)
    wanted = {
        output: numpy(theirs[output])
        for output in ("sequence_output", "pooled_output")
    }
    if name == "masked_lm":
        places = np.tile(np.arange(10, dtype=np.int32), (3, 1))
        logits = model({**hub, "mask_positions": places})
        wanted["masked_lm_logits"] = numpy(logits)
    if name == "classifier":
        wanted["classifier_logits"] = numpy(model(hub))
    made = assert_computes(presets / name, inputs, wanted)
    assert made == set(wanted)


def test_the_head_of_keras_hub_has_forms_of_its_own(models, presets):
    """The encoder's own forms would be seen."""
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


def test_a_padded_row_of_keras_hub(models, presets):
    encoder = BertEncoder.from_checkpoint(presets / "backbone")
    inputs = encoder_inputs(encoder.config)
    real = inputs["input_mask"].astype(bool)
    assert not real.all()
    theirs = models["backbone"](hub_inputs(inputs))["sequence_output"]
    ours = encoder(inputs)["sequence_output"]
    np.testing.assert_allclose(
        numpy(ours)[real], numpy(theirs)[real], atol=1e-5
    )


def test_vocabulary_and_casing_come_along(presets):
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


def test_shards_are_read_as_one_file(models, presets, copied):
    folder = copied("backbone")
    (folder / "model.weights.h5").unlink()
    models["backbone"].save_weights(
        folder / "model.weights.json", max_shard_size=3e-6
    )
    assert len(list(folder.glob("model_*.weights.h5"))) > 1
    whole = load_checkpoint(presets / "backbone").arrays
    sharded = load_checkpoint(folder).arrays
    assert sharded.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(sharded[name], array)

    first = folder / "model_00000.weights.h5"
    shutil.copy(first, folder / "twice.weights.h5")
    path = folder / "model.weights.json"
    values = json.loads(path.read_text())
    values["weight_map"]["more"] = "twice.weights.h5"
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="is in two files of the preset"):
        load_checkpoint(folder)
    for name in ("../x.weights.h5", "/etc/x.weights.h5", "x.bin", 3):
        (folder / "model.weights.json").write_text(
            json.dumps({"weight_map": {"/layers/dense/vars": [name]}})
        )
        shown = re.escape(f"weight_map names {json.dumps(name)}; it takes")
        with pytest.raises(UserError, match=shown):
            load_checkpoint(folder)
    (folder / "model.weights.json").write_text("{}")
    with pytest.raises(UserError, match="holds no weight_map"):
        load_checkpoint(folder)


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
    # KerasHub compiles a task: the step and the rate are there already.
    assert {"task/optimizer/vars/0", "task/optimizer/vars/7"} <= set(left_out)
    assert all("/optimizer/" in name for name in left_out)


def test_older_names_are_read(presets, copied):
    folder = copied("backbone")

    def older(name):
        name = name.replace("layers/", "_layer_checkpoint_dependencies/", 1)
        return re.sub(r"/(query|key|value|output)_dense", r"/_\1_dense", name)

    rewrite_h5(folder / "model.weights.h5", older)
    arrays = load_checkpoint(folder).arrays
    for name, array in load_checkpoint(presets / "backbone").arrays.items():
        np.testing.assert_array_equal(arrays[name], array)

    with h5py.File(folder / "model.weights.h5", "a") as file:
        file["layers/dense/vars/1"] = np.ones(8, np.float32)
    with pytest.raises(UserError, match="are the same layer's"):
        load_checkpoint(folder)


def test_the_head_of_keras_hub_stays_with_us(presets, tmp_path):
    checkpoint = load_checkpoint(presets / "masked_lm")
    report = convert_checkpoint(
        presets / "masked_lm", "bert_tf", tmp_path / "ours"
    )
    assert report.family == "keras_hub"
    assert report.heads == ("pooler", "masked_lm")
    assert len(report.comparisons) == 3
    again = load_checkpoint(tmp_path / "ours")
    assert again.config == checkpoint.config
    assert again.config.masked_lm_act == "gelu_erf"
    for name, array in checkpoint.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)


@pytest.mark.parametrize("to", ["google_tf1", "hugging_face"])
def test_a_head_of_keras_hub_without_a_place(to, presets, tmp_path, capsys):
    target, preset = tmp_path / "out", presets / "masked_lm"
    with pytest.raises(UserError, match=f"{to} cannot hold a masked LM head"):
        convert_checkpoint(preset, to, target)
    assert not target.exists()
    report = convert_checkpoint(preset, to, target, drop_heads=["masked_lm"])
    assert report.heads == ("pooler",)
    assert report.not_compared["masked_lm_logits"] == "masked_lm was dropped"
    assert "heads kept: pooler; dropped: masked_lm" in capsys.readouterr().out
    config = load_checkpoint(target).config
    assert config.masked_lm_act == ""
    assert config.masked_lm_layer_norm_eps == 0.0


def test_missing_and_unexpected_arrays(copied):
    folder = copied("classifier")
    path = folder / "model.weights.h5"
    rewrite_h5(
        path, lambda n: n.replace("transformer_encoder_2", "transformer_x")
    )
    with pytest.raises(UserError) as caught:
        load_checkpoint(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert "missing: model/layers/transformer_encoder_2/" in line
    assert "unexpected: model/layers/transformer_x/" in line


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", "RobertaBackbone", "class_name='RobertaBackbone'"),
        ("config.json", None, "holds no class_name and config"),
        ("config.json", {"num_heads": "two"}, "json: num_heads is 'two'"),
        ("config.json", {"dropout": None}, "BertBackbone.*missing: dropout"),
        ("config.json", {"rope": 1}, "BertBackbone.*unknown: rope"),
        (
            "config.json",
            {"num_heads": 3},
            "hidden_size is 8; it takes a multiple",
        ),
        (
            "config.json",
            {"num_heads": 4},
            r"is \[8, 2, 4\] where the configuration says \[8, 4,",
        ),
        (
            "config.json",
            {"dtype": {"class_name": "QuantizedDTypePolicy"}},
            "QuantizedDTypePolicy; quantized presets cannot",
        ),
        (
            "task.json",
            {"num_classes": 2},
            r"\[8, 3\] where the configuration says \[8, 2\]",
        ),
        ("task.json", {"num_classes": "3"}, "task.json: num_classes is '3'"),
        (
            "task.json",
            {"activation": "softmax"},
            'activation is "softmax"; a head here gives logits',
        ),
    ],
)
def test_descriptions_that_cannot_be_read(copied, file, changes, message):
    folder = copied("classifier")
    values = json.loads((folder / file).read_text())
    if isinstance(changes, dict):
        values["config"] |= changes
        if changes == {"dropout": None}:
            del values["config"]["dropout"]
    else:
        values["class_name"] = changes
    (folder / file).write_text(json.dumps(values))
    with pytest.raises(UserError, match=message) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing(copied):
    folder = copied("classifier")
    (folder / "task.weights.h5").unlink()
    with pytest.raises(UserError, match="not its task.weights.h5"):
        load_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="keras_hub, but no config.json"):
        load_checkpoint(folder)


def test_damaged_weights(copied):
    folder = copied("backbone")
    path = folder / "model.weights.h5"
    whole = path.read_bytes()
    for torn in (b"", b"no HDF5" * 100, whole[:-100], whole[: len(whole) // 3]):
        path.write_bytes(torn)
        with pytest.raises(UserError, match="h5: damaged weights") as caught:
            load_checkpoint(folder)
        assert "\n" not in str(caught.value)


def test_links_out_of_the_file_are_not_followed(copied, tmp_path):
    folder = copied("backbone")
    path, name = folder / "model.weights.h5", "layers/dense/vars/1"
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.ones(8, np.float32)
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = h5py.ExternalLink(tmp_path / "other.h5", "x")
    with pytest.raises(UserError, match=f"missing: model/{name}"):
        load_checkpoint(folder)
    (tmp_path / "numbers").write_bytes(np.ones(8, np.float32).tobytes())
    with h5py.File(path, "a") as file:
        del file[name]
        file.create_dataset(
            name, (8,), "f4", external=[(tmp_path / "numbers", 0, 32)]
        )
    with pytest.raises(UserError, match="its numbers in another file"):
        load_checkpoint(folder)


def test_no_numbers(copied):
    folder = copied("backbone")
    path, name = folder / "model.weights.h5", "layers/dense/vars/1"
    for values, message in (
        (np.zeros(8, "V2"), "no numbers"),
        (np.arange(8), "holds int64, not floating-point"),
    ):
        with h5py.File(path, "a") as file:
            del file[name]
            file[name] = values
        arrays = load_checkpoint(folder).arrays
        with pytest.raises(UserError, match=message):
            arrays["bert/pooler/dense/bias"]


def test_reading_needs_neither_tensorflow_nor_keras(presets):
    code = (
        "import sys; from bert_tf.checkpoints import load_checkpoint; "
        f"c = load_checkpoint({str(presets / 'masked_lm')!r}); "
        "[c.arrays[name] for name in c.arrays]; "
        "assert not {'tensorflow', 'keras', 'keras_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
