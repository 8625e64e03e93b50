"""Folders of transformers: read and written.

Round trips of every class: tests/contracts/test_architectures.py.
"""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tokenizers

from bert_tf.architectures.modernbert import ModernBertConfig
from bert_tf.checkpoints import (
    CLASSIFIER,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
)
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_files import AddedToken
from tests.checkpoints.arrays import assert_same_arrays
from tests.hugging_face_models import (
    CLASSES,
    LABELS,
    TEXTS,
    random_arrays,
    tiny_checkpoint,
    tiny_config,
)
from tests.user_errors import error_of

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "hugging_face"
SAVED = GOLDEN / "saved"
WRITTEN = json.loads((GOLDEN / "written.json").read_text())


def test_ids_of_what_transformers_loads(tmp_path):
    for casing, ids in WRITTEN["ids"].items():
        folder = tmp_path / casing
        checkpoint = tiny_checkpoint("BertModel", casing == "uncased")
        save_checkpoint(folder, checkpoint, "hugging_face")
        tokenizer = BertTokenizer.from_checkpoint(folder)
        assert tokenizer.tokenize(TEXTS).to_list() == ids
        # Some servers read no other file.
        path = str(folder / "tokenizer.json")
        library = tokenizers.Tokenizer.from_file(path)
        found = [row.ids[1:-1] for row in library.encode_batch(list(TEXTS))]
        assert found == ids
        assert library.encode("a[MASK]").tokens[2] == "[MASK]"
        assert len(library.encode("a " * 600).ids) == 602
    assert WRITTEN["ids"]["cased"] != WRITTEN["ids"]["uncased"]


def test_configurations(tmp_path):
    configs = {name: load_checkpoint(SAVED / name).config for name in CLASSES}
    assert configs["BertModel"].hidden_act == "gelu_erf"
    assert configs["BertForPreTraining"].hidden_act == "gelu"
    assert configs["BertForMaskedLM"].layer_norm_eps == 1e-7
    assert configs["BertForQuestionAnswering"].type_vocab_size == 3
    causal = load_checkpoint(SAVED / "BertLMHeadModel")
    assert causal.config.causal
    save_checkpoint(tmp_path, causal, "hugging_face")
    assert load_checkpoint(tmp_path).config == causal.config
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


def test_shards_and_links_of_the_hubs_cache(tmp_path):
    whole = load_checkpoint(SAVED / "BertForPreTraining")
    sharded = load_checkpoint(SAVED / "sharded")
    assert_same_arrays(sharded.arrays, whole.arrays)
    assert sharded.config == whole.config
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, path in enumerate((SAVED / "sharded").iterdir()):
        shutil.copy(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert_same_arrays(load_checkpoint(snapshot).arrays, whole.arrays)


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


def only_the_tied_bias(arrays):
    bias = arrays.pop("cls.predictions.bias")
    return arrays | {"cls.predictions.decoder.bias": bias}


def prefixed(arrays):
    return {f"bert.{name}": array for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("change", "name", "left_out"),
    [
        (
            old_names,
            "BertForPreTraining",
            {
                "bert.embeddings.position_ids",
                "cls.predictions.decoder.bias",
                "cls.predictions.decoder.weight",
            },
        ),
        (only_the_tied_bias, "BertForPreTraining", set()),
        (prefixed, "BertModel", set()),
    ],
)
def test_other_names_of_the_same_arrays(change, name, left_out, tmp_path):
    shutil.copytree(SAVED / name, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(change(read_arrays(path)), path)
    checkpoint = load_checkpoint(tmp_path)
    assert_same_arrays(checkpoint.arrays, load_checkpoint(SAVED / name).arrays)
    assert set(checkpoint.left_out) == left_out


@pytest.mark.parametrize("heads", [(), (POOLER, TOKEN_CLASSIFIER)])
def test_a_pooler_or_none_in_a_class_that_has_another(heads, tmp_path):
    config = tiny_config()
    arrays = random_arrays(config, heads, labels=4)
    save_checkpoint(tmp_path, Checkpoint(config, arrays), "hugging_face")
    assert_same_arrays(load_checkpoint(tmp_path).arrays, arrays)
    values = json.loads((tmp_path / "config.json").read_text())
    if heads:
        assert values["id2label"]["3"] == "LABEL_3"


def test_a_pooler_under_the_name_of_another_heads_layer(tmp_path, capfd):
    config = ModernBertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    arrays = random_arrays(config, (POOLER,))
    save_checkpoint(tmp_path, Checkpoint(config, arrays), "hugging_face")
    assert "its pooler is left out: ModernBertModel" in capfd.readouterr().err
    assert_same_arrays(
        load_checkpoint(tmp_path).arrays, random_arrays(config, ())
    )


def test_heads_that_no_class_holds(tmp_path):
    config = tiny_config()
    arrays = random_arrays(config, (POOLER, SPAN, CLASSIFIER))
    given = Checkpoint(config, arrays)
    line = error_of(save_checkpoint, tmp_path, given, "hugging_face")
    assert "holds classifier, span together" in line
    assert not any(tmp_path.iterdir())


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


def test_an_unknown_casing_is_written(tmp_path):
    checkpoint = tiny_checkpoint("BertModel")
    checkpoint = dataclasses.replace(checkpoint, lower_case=None)
    save_checkpoint(tmp_path, checkpoint, "hugging_face")
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    # The vocabulary has capitals.
    assert values["do_lower_case"] is False
    assert values["model_max_length"] == 12
