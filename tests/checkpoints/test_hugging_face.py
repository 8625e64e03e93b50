"""Against transformers: its folders read, ours written, round trips."""

import dataclasses
import json
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints import (
    CLASSIFIER,
    MULTIPLE_CHOICE,
    NEXT_SENTENCE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
)
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.errors import UserError
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_files import AddedToken
from tests.hugging_face_models import (
    CLASSES,
    LABELS,
    TEXTS,
    digest,
    inputs,
    random_arrays,
    tiny_checkpoint,
    tiny_config,
)
from tests.model_helpers import numpy

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "hugging_face"
SAVED = GOLDEN / "saved"
OUTPUTS = dict(np.load(GOLDEN / "outputs.npz"))
WRITTEN = json.loads((GOLDEN / "written.json").read_text())
# Class of transformers -> the heads that its folder holds.
SAVED_HEADS = {name: heads for name, (heads, _) in CLASSES.items()} | {
    "BertLMHeadModel": CLASSES["BertForMaskedLM"][0]
}


def assert_same_arrays(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)
        assert left[name].dtype == right[name].dtype == np.float32


def head_logits(arrays, head, features):
    """A head as a plain matrix product."""
    weights, bias = head_shapes(tiny_config())[head]
    return features @ arrays[weights].T + arrays[bias]


def our_outputs(folder) -> dict[str, np.ndarray]:
    """What our model computes from a folder, by transformers' names."""
    checkpoint = load_checkpoint(folder)
    arrays, heads = checkpoint.arrays, checkpoint.heads
    model = BertPretrainer.from_checkpoint(folder)
    places = np.tile(np.arange(10, dtype=np.int32), (3, 1))
    outputs = model(
        inputs(checkpoint.config.type_vocab_size)
        | {"masked_lm_positions": places}
    )
    words, follows, sequence, pooled = (
        numpy(outputs[name])
        for name in (
            "masked_lm_logits",
            "next_sentence_logits",
            "sequence_output",
            "pooled_output",
        )
    )
    made = {"sequence_output": sequence}
    if POOLER in heads:
        made["pooled_output"] = pooled
    if {"masked_lm", "next_sentence"} <= set(heads):
        made |= {"prediction_logits": words, "seq_relationship_logits": follows}
    elif "masked_lm" in heads:
        made["logits"] = words
    elif NEXT_SENTENCE in heads:
        made["logits"] = follows
    if CLASSIFIER in heads:
        made["logits"] = head_logits(arrays, CLASSIFIER, pooled)
    if TOKEN_CLASSIFIER in heads:
        made["logits"] = head_logits(arrays, TOKEN_CLASSIFIER, sequence)
    if MULTIPLE_CHOICE in heads:
        made["logits"] = head_logits(arrays, MULTIPLE_CHOICE, pooled).T
    if SPAN in heads:
        logits = head_logits(arrays, SPAN, sequence)
        made |= {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    return made


def assert_recorded(folder, recorded: str) -> None:
    """Our outputs are those that were recorded, and all of those."""
    wanted = {
        key.removeprefix(f"{recorded}/"): value
        for key, value in OUTPUTS.items()
        if key.startswith(f"{recorded}/")
    }
    made = our_outputs(folder)
    assert made.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(
            made[key], value, rtol=0, atol=1e-5, err_msg=key
        )


@pytest.mark.parametrize("name", SAVED_HEADS)
def test_outputs_of_what_transformers_saved(name):
    assert load_checkpoint(SAVED / name).heads == SAVED_HEADS[name]
    assert_recorded(SAVED / name, f"saved/{name}")


@pytest.mark.parametrize("name", CLASSES)
def test_outputs_of_what_transformers_loads(name, tmp_path):
    save_checkpoint(tmp_path, tiny_checkpoint(name), "hugging_face")
    # So transformers computed the recorded outputs from these very files.
    assert digest(tmp_path) == WRITTEN["digests"][name]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [name]
    assert_recorded(tmp_path, f"written/{name}")


def test_ids_of_what_transformers_loads(tmp_path):
    for casing, ids in WRITTEN["ids"].items():
        folder = tmp_path / casing
        checkpoint = tiny_checkpoint("BertModel", casing == "uncased")
        save_checkpoint(folder, checkpoint, "hugging_face")
        tokenizer = BertTokenizer.from_checkpoint(folder)
        assert tokenizer.tokenize(TEXTS).to_list() == ids
    assert WRITTEN["ids"]["cased"] != WRITTEN["ids"]["uncased"]


@pytest.mark.parametrize("name", CLASSES)
def test_round_trip_is_exact(name, tmp_path):
    checkpoint = tiny_checkpoint(name, lower_case=False)
    save_checkpoint(tmp_path / "ours", checkpoint)
    save_checkpoint(
        tmp_path / "theirs",
        load_checkpoint(tmp_path / "ours"),
        "hugging_face",
    )
    back = load_checkpoint(tmp_path / "theirs")
    assert_same_arrays(back.arrays, checkpoint.arrays)
    assert back.config == checkpoint.config
    assert back.labels == checkpoint.labels
    assert back.vocabulary == checkpoint.vocabulary
    assert back.lower_case is False
    assert back.left_out == ()


@pytest.mark.parametrize("name", SAVED_HEADS)
def test_what_is_read_can_be_written(name, tmp_path):
    read = load_checkpoint(SAVED / name)
    save_checkpoint(tmp_path, read, "hugging_face")
    theirs = read_arrays(SAVED / name / "model.safetensors")
    assert_same_arrays(read_arrays(tmp_path / "model.safetensors"), theirs)
    assert load_checkpoint(tmp_path).config == read.config


def test_configurations():
    configs = {name: load_checkpoint(SAVED / name).config for name in CLASSES}
    assert configs["BertModel"].hidden_act == "gelu_erf"
    assert configs["BertForPreTraining"].hidden_act == "gelu"
    assert configs["BertForMaskedLM"].layer_norm_eps == 1e-7
    assert configs["BertForQuestionAnswering"].type_vocab_size == 3
    assert load_checkpoint(SAVED / "BertLMHeadModel").config.causal
    named = load_checkpoint(SAVED / "BertForSequenceClassification")
    assert named.labels == LABELS
    # LABEL_0 to LABEL_4 are no names.
    assert load_checkpoint(SAVED / "BertForTokenClassification").labels is None


def test_missing_keys_take_the_defaults_of_transformers(tmp_path):
    config = tiny_config(
        max_position_embeddings=512, hidden_act="gelu_erf", vocab_size=30522
    )
    save_checkpoint(
        tmp_path,
        Checkpoint(config, random_arrays(config, (POOLER,))),
        "hugging_face",
    )
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    kept = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    values = {key: values[key] for key in (*kept, "intermediate_size")}
    path.write_text(json.dumps(values | {"use_cache": True, "new_key": [1]}))
    assert load_checkpoint(tmp_path).config == config


def test_a_sharded_folder_is_the_whole_one():
    whole = load_checkpoint(SAVED / "BertForPreTraining")
    sharded = load_checkpoint(SAVED / "sharded")
    assert_same_arrays(sharded.arrays, whole.arrays)
    assert sharded.config == whole.config


def test_links_of_the_hubs_cache(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, path in enumerate((SAVED / "sharded").iterdir()):
        shutil.copy(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert_same_arrays(
        load_checkpoint(snapshot).arrays,
        load_checkpoint(SAVED / "sharded").arrays,
    )


def rewritten(tmp_path, change, name="BertForPreTraining"):
    """A folder of transformers with its arrays changed."""
    shutil.copytree(SAVED / name, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "model.safetensors"
    arrays = change(read_arrays(path))
    safetensors.numpy.save_file(arrays, path)
    return tmp_path


def old_names(arrays):
    """Names of 2019, tied copies and a table of positions."""
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in arrays.items()
    }
    words = arrays["bert.embeddings.word_embeddings.weight"]
    return renamed | {
        "cls.predictions.decoder.weight": words,
        "cls.predictions.decoder.bias": arrays["cls.predictions.bias"],
        "bert.embeddings.position_ids": np.arange(12)[None],
    }


def test_old_names_and_copies(tmp_path):
    checkpoint = load_checkpoint(rewritten(tmp_path, old_names))
    whole = load_checkpoint(SAVED / "BertForPreTraining")
    assert_same_arrays(checkpoint.arrays, whole.arrays)
    assert set(checkpoint.left_out) == {
        "bert.embeddings.position_ids",
        "cls.predictions.decoder.bias",
        "cls.predictions.decoder.weight",
    }


def test_the_bias_under_its_other_name_alone(tmp_path):
    def change(arrays):
        bias = arrays.pop("cls.predictions.bias")
        return arrays | {"cls.predictions.decoder.bias": bias}

    checkpoint = load_checkpoint(rewritten(tmp_path, change))
    whole = load_checkpoint(SAVED / "BertForPreTraining")
    assert_same_arrays(checkpoint.arrays, whole.arrays)
    assert checkpoint.left_out == ()


def test_a_prefix_without_a_head(tmp_path):
    def change(arrays):
        return {f"bert.{name}": array for name, array in arrays.items()}

    folder = rewritten(tmp_path, change, "BertModel")
    assert_same_arrays(
        load_checkpoint(folder).arrays,
        load_checkpoint(SAVED / "BertModel").arrays,
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions_become_float32(dtype, tmp_path):
    def change(arrays):
        return {name: array.astype(dtype) for name, array in arrays.items()}

    halves = load_checkpoint(rewritten(tmp_path, change)).arrays
    whole = load_checkpoint(SAVED / "BertForPreTraining").arrays
    rounded = {
        name: array.astype(dtype).astype(np.float32)
        for name, array in whole.items()
    }
    assert_same_arrays(halves, rounded)


def test_a_pooler_goes_along_into_classes_without_one(tmp_path):
    config = tiny_config()
    arrays = random_arrays(config, (POOLER, TOKEN_CLASSIFIER), labels=4)
    save_checkpoint(tmp_path, Checkpoint(config, arrays), "hugging_face")
    assert_same_arrays(load_checkpoint(tmp_path).arrays, arrays)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["id2label"]["3"] == "LABEL_3"


def test_an_encoder_without_a_pooler(tmp_path):
    config = tiny_config()
    arrays = random_arrays(config, ())
    save_checkpoint(tmp_path, Checkpoint(config, arrays), "hugging_face")
    assert "pooler.dense.weight" not in read_arrays(
        tmp_path / "model.safetensors"
    )
    assert_same_arrays(load_checkpoint(tmp_path).arrays, arrays)


def test_heads_that_no_class_holds(tmp_path):
    config = tiny_config()

    def refused(heads, match, **changes):
        checkpoint = Checkpoint(config, random_arrays(config, heads), **changes)
        with pytest.raises(UserError, match=match):
            save_checkpoint(tmp_path, checkpoint, "hugging_face")
        assert not any(tmp_path.iterdir())

    refused(
        (POOLER, SPAN, CLASSIFIER),
        "no class of transformers holds classifier, span together; drop heads",
    )
    refused((NEXT_SENTENCE,), "missing: bert/pooler/dense/bias")
    refused(
        (POOLER, CLASSIFIER),
        "names 2 labels, but its head has 3",
        labels=("a", "b"),
    )


@pytest.mark.parametrize("to", ["bert_tf", "hugging_face"])
def test_added_tokens_are_written_as_such(tmp_path, to):
    checkpoint = tiny_checkpoint("BertModel")
    tokens = checkpoint.vocabulary.tokens
    added = (
        AddedToken(tokens[-1], normalized=False, special=True),
        AddedToken(tokens[-2], single_word=True),
    )
    checkpoint = dataclasses.replace(checkpoint, added_tokens=added)
    save_checkpoint(tmp_path / "model", checkpoint, to)
    back = load_checkpoint(tmp_path / "model")
    assert back.vocabulary == checkpoint.vocabulary
    assert back.added_tokens == added
    # transformers numbers them behind the tokens of vocab.txt.
    lines = (tmp_path / "model" / "vocab.txt").read_text().splitlines()
    written = tokens[:-2] if to == "hugging_face" else tokens
    assert lines == list(written)
    path = tmp_path / "model" / "tokenizer_config.json"
    decoder = json.loads(path.read_text())["added_tokens_decoder"]
    assert decoder[str(len(tokens) - 2)]["single_word"] is True
    assert decoder[str(len(tokens) - 1)]["content"] == tokens[-1]


def test_the_casing_is_told_where_it_is_not_known(tmp_path):
    checkpoint = tiny_checkpoint("BertModel")
    checkpoint = dataclasses.replace(checkpoint, lower_case=None)
    save_checkpoint(tmp_path, checkpoint, "hugging_face")
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    # The vocabulary has capitals.
    assert values["do_lower_case"] is False
    assert values["model_max_length"] == 12


def test_arrays_written_by_hand_in_the_order_of_pytorch(tmp_path):
    """Kernels are [out, in], and the file says so itself."""
    checkpoint = tiny_checkpoint("BertModel")
    save_checkpoint(tmp_path, checkpoint, "hugging_face")
    theirs = read_arrays(tmp_path / "model.safetensors")
    ours = checkpoint.arrays["bert/encoder/layer_1/intermediate/dense/kernel"]
    assert ours.shape == (8, 12)
    np.testing.assert_array_equal(
        theirs["encoder.layer.1.intermediate.dense.weight"], ours.T
    )
