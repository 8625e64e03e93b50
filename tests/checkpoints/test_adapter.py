"""Adapters of peft: how their matrices began, and where their base lies."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from bert_tf import BertEncoder, bert_classifier, restore
from bert_tf.checkpoints import load_checkpoint, read_arrays, save_adapter
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import encoder_class
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tests.user_errors import error_of

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "peft"
OUTPUTS = np.load(GOLDEN / "outputs.npz")
KERNEL = "bert/encoder/layer_0/attention/self/{}/kernel"


@pytest.fixture
def change(tmp_path):
    """Copies an adapter and its base, changes its configuration, gives it."""

    def changed(name: str = "mica", **values) -> pathlib.Path:
        for part in ("base", name):
            shutil.copytree(GOLDEN / part, tmp_path / part, dirs_exist_ok=True)
        path = tmp_path / name / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
        return tmp_path / name

    return changed


def rows_of(ids):
    mask = np.ones_like(ids)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * mask}


@pytest.mark.parametrize("name", ["pissa", "olora", "mica", "rslora"])
def test_an_adapter_computes_what_peft_does(name, tmp_path) -> None:
    found = load_checkpoint(GOLDEN / name)
    for part in ("query", "value"):
        kernel = found.arrays[KERNEL.format(part)]
        expected = OUTPUTS[f"{name}/{part}"].T
        np.testing.assert_allclose(kernel, expected, atol=1e-5)
    model = bert_classifier(BertEncoder(found.config), 3)
    restore(model, found)
    rows = rows_of(OUTPUTS["input_ids"])
    logits = OUTPUTS[f"{name}/logits"]
    np.testing.assert_allclose(model(rows), logits, atol=1e-5)
    # Proved against the files themselves.
    tokens = [*SPECIAL_TOKENS, *map(chr, range(ord("a"), ord("t")))]
    Vocabulary(tokens).save(tmp_path / "vocab.txt")
    convert_checkpoint(
        GOLDEN / name,
        "bert_tf",
        tmp_path / "whole",
        vocab_file=tmp_path / "vocab.txt",
    )
    # What is written again is an ordinary adapter of the same base.
    base = load_checkpoint(GOLDEN / "base")
    apart = load_checkpoint(GOLDEN / name, merge=False)
    save_adapter(tmp_path / "again", apart, base)
    again = load_checkpoint(tmp_path / "again")
    for array, values in found.arrays.items():
        np.testing.assert_allclose(again.arrays[array], values, atol=1e-6)
    written = (tmp_path / "again" / "adapter_config.json").read_text()
    assert json.loads(written)["lora_dropout"] == 0.125


@pytest.mark.parametrize("name", ["roberta", "albert", "modernbert"])
def test_an_adapter_of_a_relative_computes_what_peft_does(name, tmp_path):
    """Merged and apart; and it is written with the names that peft gave it."""
    rows = rows_of(5 + OUTPUTS["input_ids"] % 15)
    apart = load_checkpoint(GOLDEN / name, merge=False)
    for found in (apart, load_checkpoint(GOLDEN / name)):
        model = bert_classifier(encoder_class(found.config)(found.config), 3)
        restore(model, found)
        logits = OUTPUTS[f"{name}/logits"]
        np.testing.assert_allclose(model(rows), logits, atol=1e-5)
    saved = GOLDEN.parent / name / "saved"
    (base,) = saved.glob("*Model")
    save_adapter(tmp_path, apart, load_checkpoint(base))
    given, written = (
        read_arrays(folder / "adapter_model.safetensors")
        for folder in (GOLDEN / name, tmp_path)
    )
    assert given.keys() == written.keys()
    for array, values in given.items():
        np.testing.assert_allclose(written[array], values, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"init_lora_weights": "loftq"}, "init_lora_weights is 'loftq', with"),
        ({"init_lora_weights": "corda"}, "init_lora_weights is 'corda', with"),
        ({"init_lora_weights": "lora_ga"}, "weights is 'lora_ga', with which"),
        ({"init_lora_weights": "pissa_niter_4"}, "is 'pissa_niter_4', with wh"),
        ({"use_dora": True}, "use_dora is True, which changes what an adapter"),
        ({"rank_pattern": {"query": 4}}, "rank_pattern is {'query': 4}, which"),
        ({"alpha_pattern": {"query": 1}}, "alpha_pattern is {'query': 1}, whi"),
        ({"layers_to_transform": 0}, "layers_to_transform is 0, which changes"),
        ({"bias": "all"}, "bias is 'all'; 'none' can be read"),
        ({"lora_dropout": "no"}, "lora_dropout is 'no'; it takes a number"),
        ({"a_new_one": [1]}, "a_new_one is [1], which changes what an adapter"),
    ],
)
def test_adapters_that_compute_otherwise(values, message, change) -> None:
    line = error_of(load_checkpoint, change(**values))
    assert message in line
    assert "adapter_config.json: " in line


def test_where_the_path_of_a_base_leads(change, tmp_path, monkeypatch) -> None:
    expected = load_checkpoint(GOLDEN / "mica").arrays[KERNEL.format("value")]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = change(base_model_name_or_path="base")
    for name, working in (
        ("base", tmp_path),
        ("../base", elsewhere),
        ("models/base", elsewhere),
    ):
        monkeypatch.chdir(working)
        folder = change(base_model_name_or_path=name)
        if name == "models/base":
            (folder / "models").mkdir()
            shutil.copytree(tmp_path / "base", folder / "models" / "base")
        found = load_checkpoint(folder).arrays[KERNEL.format("value")]
        np.testing.assert_array_equal(found, expected)
    line = error_of(load_checkpoint, change(base_model_name_or_path="a/b/c"))
    assert f"no such folder in {elsewhere} or in {folder}" in line


def test_a_base_that_leads_back(change, tmp_path) -> None:
    mica = change(base_model_name_or_path="../pissa")
    change("pissa", base_model_name_or_path="../mica")
    assert error_of(load_checkpoint, mica).count("leads back") == 1
    line = error_of(load_checkpoint, change(base_model_name_or_path="."))
    assert line.count("leads back") == 1
