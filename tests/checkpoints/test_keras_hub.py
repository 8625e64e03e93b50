"""Presets that KerasHub itself wrote, against KerasHub's own outputs."""

import json
import re
import shutil
import subprocess
import sys

import h5py
import keras
import keras_hub
import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy
from reference_bert import ReferenceBert

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.layers import MaskedLMHead
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


def hub_inputs(config, rows=3, length=11):
    inputs = encoder_inputs(config, rows, length)
    return inputs, {
        "token_ids": inputs["input_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["segment_ids"],
    }


def edit_json(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


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


@pytest.mark.parametrize("name", ["backbone", "masked_lm", "classifier"])
def test_encoder_outputs_are_those_of_keras_hub(models, presets, name):
    encoder = BertEncoder.from_checkpoint(presets / name)
    inputs, hub = hub_inputs(encoder.config)
    model = models[name]
    theirs = getattr(model, "backbone", model)(hub)
    ours = encoder(inputs)
    real = inputs["input_mask"].astype(bool)
    for output in ("sequence_output", "pooled_output"):
        left, right = numpy(ours[output]), numpy(theirs[output])
        if output == "sequence_output":
            left, right = left[real], right[real]
        assert np.abs(right).max() > 0.5
        np.testing.assert_allclose(left, right, atol=1e-5, err_msg=output)
    config = encoder.config
    assert (config.hidden_dropout_prob, config.type_vocab_size) == (0.25, 3)


def test_masked_lm_logits_are_those_of_keras_hub(models, presets):
    checkpoint = load_checkpoint(presets / "masked_lm")
    assert checkpoint.heads == ("pooler", "masked_lm")
    config, arrays = checkpoint.config, checkpoint.arrays
    inputs, hub = hub_inputs(config)
    positions = np.array([[0, 4], [1, 2], [3, 0]], np.int32)
    model = models["masked_lm"]
    theirs = numpy(model({**hub, "mask_positions": positions}))

    head = MaskedLMHead(config)
    head.build()
    at = "cls/predictions"
    for weight, name in (
        (head.transform.kernel, "transform/dense/kernel"),
        (head.transform.bias, "transform/dense/bias"),
        (head.layer_norm.gamma, "transform/LayerNorm/gamma"),
        (head.layer_norm.beta, "transform/LayerNorm/beta"),
        (head.output_bias, "output_bias"),
    ):
        weight.assign(arrays[f"{at}/{name}"])
    encoder = BertEncoder.from_checkpoint(presets / "masked_lm")
    words = arrays["bert/embeddings/word_embeddings"]
    hidden = encoder(inputs)["sequence_output"]
    ours = numpy(head(hidden, positions, words))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)

    reference = ReferenceBert(config, dict(arrays))
    plain = np.stack(
        [
            reference.predict_words(row, places)
            for row, places in zip(numpy(hidden), positions, strict=True)
        ]
    )
    np.testing.assert_allclose(plain, theirs, atol=1e-5)
    # The encoder's own forms would be seen.
    stock = config.override(["masked_lm_act=", "masked_lm_layer_norm_eps=0"])
    reference = ReferenceBert(stock, dict(arrays))
    off = reference.predict_words(numpy(hidden)[0], positions[0]) - theirs[0]
    assert np.abs(off).max() > 1e-5


def test_classifier_logits_are_those_of_keras_hub(models, presets):
    checkpoint = load_checkpoint(presets / "classifier")
    assert checkpoint.heads == ("pooler", "classifier")
    assert checkpoint.arrays["output_weights"].shape == (3, 8)
    inputs, hub = hub_inputs(checkpoint.config)
    encoder = BertEncoder.from_checkpoint(presets / "classifier")
    pooled = numpy(encoder(inputs)["pooled_output"])
    ours = (
        pooled @ checkpoint.arrays["output_weights"].T
        + checkpoint.arrays["output_bias"]
    )
    theirs = numpy(models["classifier"](hub))
    assert np.abs(theirs).max() > 0.3
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


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


@pytest.mark.slow
def test_what_was_fitted_leaves_its_optimizer_out(models, tmp_path):
    model = keras_hub.models.BertTextClassifier(backbone(num_layers=1), 2)
    _, hub = hub_inputs(load_config(model))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    model.train_on_batch(hub, np.array([0, 1, 1]))
    model.save_to_preset(str(tmp_path / "fitted"))
    checkpoint = load_checkpoint(tmp_path / "fitted")
    assert "task/optimizer/vars/5" in checkpoint.left_out
    assert all("/optimizer/" in name for name in checkpoint.left_out)
    np.testing.assert_array_equal(
        checkpoint.arrays["output_weights"], numpy(model.output_dense.kernel).T
    )


def load_config(model):
    from bert_tf.config import BertConfig

    hub = model.backbone
    return BertConfig(
        vocab_size=hub.vocabulary_size,
        hidden_size=hub.hidden_dim,
        num_attention_heads=hub.num_heads,
        type_vocab_size=hub.num_segments,
    )


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
    edit_json(
        folder / "model.weights.json",
        lambda v: v["weight_map"].update(more="twice.weights.h5"),
    )
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
    save_checkpoint(tmp_path / "ours", checkpoint)
    again = load_checkpoint(tmp_path / "ours")
    assert again.config == checkpoint.config
    assert again.config.masked_lm_act == "gelu_erf"
    for name, array in checkpoint.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    for layout in ("google_tf1", "hugging_face"):
        with pytest.raises(UserError, match=f"{layout} cannot hold a masked"):
            save_checkpoint(tmp_path / layout, checkpoint, to=layout)
        assert not (tmp_path / layout).exists()


def test_missing_unexpected_and_misshapen_arrays(copied):
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

    folder = copied("backbone")
    edit_json(folder / "config.json", lambda v: v["config"].update(num_heads=4))
    with pytest.raises(
        UserError, match=r"is \[8, 2, 4\] where the configuration says \[8, 4,"
    ):
        load_checkpoint(folder)

    folder = copied("masked_lm")
    rewrite_h5(
        folder / "task.weights.h5",
        lambda n: None if n.endswith("masked_lm_head/vars/0") else n,
    )
    with pytest.raises(UserError, match=r"missing: .*head/vars/0 \[12\]"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        (
            "backbone",
            "config.json",
            lambda v: v.update(class_name="RobertaBackbone"),
            "the preset is a RobertaBackbone; only BertBackbone",
        ),
        (
            "backbone",
            "config.json",
            lambda v: v.pop("class_name"),
            "holds no class_name and config",
        ),
        (
            "backbone",
            "config.json",
            lambda v: v["config"].update(num_heads="two"),
            "config.json: num_heads is 'two'",
        ),
        (
            "backbone",
            "config.json",
            lambda v: v["config"].pop("dropout"),
            "arguments of BertBackbone, missing dropout",
        ),
        (
            "backbone",
            "config.json",
            lambda v: v["config"].update(rope=1),
            "arguments of BertBackbone, unknown rope",
        ),
        (
            "backbone",
            "config.json",
            lambda v: v["config"].update(num_heads=3),
            "config.json: hidden_size 8 is not a multiple",
        ),
        (
            "backbone",
            "config.json",
            lambda v: v["config"].update(
                dtype={"class_name": "QuantizedDTypePolicy"}
            ),
            "QuantizedDTypePolicy; quantized presets cannot",
        ),
        (
            "classifier",
            "task.json",
            lambda v: v["config"].update(num_classes=2),
            r"\[8, 3\] where the configuration says \[8, 2\]",
        ),
        (
            "classifier",
            "task.json",
            lambda v: v["config"].update(num_classes="3"),
            "task.json: num_classes is '3'",
        ),
        (
            "classifier",
            "task.json",
            lambda v: v["config"].update(activation="softmax"),
            'activation is "softmax"; a head here gives logits',
        ),
    ],
)
def test_descriptions_that_do_not_do(copied, name, file, change, message):
    folder = copied(name)
    edit_json(folder / file, change)
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
