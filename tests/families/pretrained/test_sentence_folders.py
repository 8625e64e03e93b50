"""Folders of sentence-transformers: vectors equal those of encode()."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import POOLER, load_checkpoint, open_arrays
from bert_tf.checkpoints.hugging_face_files import _OPENERS
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError
from bert_tf.families.model_folder import text_tokenizer
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.sentence_vectors import SentenceVectors
from bert_tf.inference.embed import embed
from bert_tf.inference.features import extract_features
from bert_tf.inference.load import LoadedModel
from bert_tf.models import restore
from bert_tf.text.tokenizer import BertTokenizer
from tests.families.pretrained.sentence_folders import (
    CASES,
    PAIRS,
    TEXTS,
    vectors_of,
    write_folder,
)
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")
ENCODERS: dict[str, BertEncoder] = {}
TOKENIZERS: dict[object, BertTokenizer] = {}


def loaded(folder) -> LoadedModel:
    """A folder, whose encoder and tokenizer are shared with other folders."""
    checkpoint = load_checkpoint(folder)
    config, rules = checkpoint.config, checkpoint.tokenizer_config
    kind = config.model_type
    if kind not in ENCODERS:
        ENCODERS[kind] = encoder_class(config)(config)
        restore(ENCODERS[kind], checkpoint, [POOLER])
    if rules not in TOKENIZERS:
        TOKENIZERS[rules] = text_tokenizer(checkpoint)
    modules = read_sentence_modules(checkpoint)
    pair = ENCODERS[kind], TOKENIZERS[rules]
    return LoadedModel(PretrainedModel(*pair, modules=modules), folder)


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_encode(name, tmp_path):
    model = loaded(write_folder(name, tmp_path / "model"))
    for prompt, expected in vectors_of(name).items():
        texts, prompt_name = TEXTS, prompt
        if prompt == "pairs":
            texts, prompt_name = PAIRS, None
        found = embed(model, texts, prompt_name=prompt_name)
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_explicit_settings_read_the_transformer_alone(tmp_path):
    model = loaded(write_folder("dense", tmp_path / "model"))
    plain = model.encoder, model.tokenizer
    found = embed(model, TEXTS, "cls")
    np.testing.assert_array_equal(found, embed(plain, TEXTS, "cls"))
    expected = embed(plain, TEXTS, "mean", layer=1)
    found = embed(model, TEXTS, layer=1)
    np.testing.assert_array_equal(found, expected)
    for settings in ({"pooling": "cls"}, {"layer": 1}):
        with pytest.raises(UserError, match="`prompt_name`=query: belongs to"):
            embed(model, TEXTS, prompt_name="query", **settings)


def test_files_of_features_have_them(tmp_path):
    folder = write_folder("default_prompt", tmp_path / "model")
    lines, written = tmp_path / "lines.txt", tmp_path / "vectors.npz"
    lines.write_text("".join(f"{t}\n" for t in TEXTS), encoding="utf-8")
    settings = Settings(pooling="auto", prompt_name="passage")
    line = extract_features(folder, [lines], written, settings)
    assert "(Pooling (mean)), layers -1, 16 wide" in line
    with np.load(written) as arrays:
        found = arrays["vectors"][:, 0]
    expected = vectors_of("default_prompt")["passage"]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_half_precision_sums_in_float32(tmp_path):
    folder = write_folder("weightedmean", tmp_path / "model")
    checkpoint = load_checkpoint(folder)
    modules = read_sentence_modules(checkpoint)
    hidden = np.zeros((1, 4096, 16), np.float32)
    hidden[:, :, 0] = 1.0
    mask = np.ones((1, 4096), np.int32)
    vectors = SentenceVectors(modules)(
        tf.cast(hidden, tf.bfloat16), mask, prompt_length=0
    )
    np.testing.assert_allclose(vectors[0, 0], 1.0, atol=1e-6)


def entry(kind, path, number=1):
    return {"idx": number, "path": path, "type": kind}


MODEL_FILE = "config_sentence_transformers.json"
TRANSFORMER = entry("sentence_transformers.models.Transformer", "", 0)


def with_module(kind, path="1_Pooling"):
    kind = kind if "." in kind else f"sentence_transformers.models.{kind}"
    return {"modules.json": [TRANSFORMER, entry(kind, path)]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (with_module("WeightedLayerPooling"), "module 1 is a WeightedLayerP"),
        (with_module("custom.Pooling"), "the type 'custom.Pooling'; it takes"),
        (with_module("Pooling", "../other"), "the path '../other'; it takes"),
        (with_module("Pooling", "/etc"), "the path '/etc'; it takes"),
        (with_module("Pooling", "link"), "the path 'link'; it takes"),
        (with_module("Pooling", "circle"), "the path 'circle'; it takes"),
        (with_module("Pooling", "a" * 5000), "the path 'aaaaaa"),
        (with_module("Pooling", "gone"), "gone/config.json: no such file"),
        ({"modules.json": []}, "modules.json: names no module"),
        ({"modules.json": {}}, "modules.json: holds dict, not a list"),
        ({"modules.json": "x"}, "modules.json: holds str, not a list"),
        ({"modules.json": ["x"]}, "module 0 is 'x'; it takes an object"),
        ({"modules.json": [TRANSFORMER]}, "has no Pooling behind"),
        ({"modules.json": [TRANSFORMER] * 2}, "module 1 has the idx 0; modu"),
        (
            {"1_Pooling/config.json": {"pooling_mode": "median"}},
            "='median': takes one of cls,",
        ),
        (
            {"1_Pooling/config.json": {"pooling_mode_cls_token": "yes"}},
            "pooling_mode_cls_token is 'yes'; it takes true or false",
        ),
        ({"2_Dense/config.json": {"in_features": 16}}, "out_features is None"),
        (
            {"2_Dense/config.json": {"in_features": 7, "out_features": 8}},
            "in_features is 7, but the previous module outputs vectors of 16",
        ),
        (
            {"2_Dense/config.json": {"in_features": 16, "out_features": 9}},
            r"linear.weight \[8, 16\]; config.json requires linear.weight",
        ),
        (
            {
                "2_Dense/config.json": {
                    "in_features": 16,
                    "out_features": 8,
                    "activation_function": "torch.nn.functional.hardtanh",
                }
            },
            "activation_function is 'torch.nn.functional.hardtanh', which",
        ),
        (
            {"sentence_bert_config.json": {"max_seq_length": "long"}},
            "max_seq_length is 'long'; it",
        ),
        (
            {MODEL_FILE: {"prompts": {"a": 1}}},
            "prompts: a is 1; it takes a text",
        ),
        (
            {MODEL_FILE: {"default_prompt_name": "nope"}},
            "default_prompt_name is 'nope'; the prompts are query, document",
        ),
        (
            {MODEL_FILE: {"model_type": "Other"}},
            "model_type='Other': takes one of SentenceTransformer, Sp",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(changes, words, tmp_path):
    folder = write_folder("dense", tmp_path / "model")
    (folder / "link").symlink_to(tmp_path)
    (folder / "circle").symlink_to("circle")
    for path, values in changes.items():
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    line = error_of(lambda: read_sentence_modules(load_checkpoint(folder)))
    assert re.search(words, line), line


def test_pickled_weights_are_left_to_torch(tmp_path, monkeypatch):
    """As those of a Hugging Face folder; see test_torch_file.py."""
    folder = write_folder("dense", tmp_path / "model")
    path = folder / "2_Dense" / "pytorch_model.bin"
    (folder / "2_Dense" / "model.safetensors").rename(path)
    expected = open_arrays(path)
    opened = []

    def open_torch(given):
        opened.append(given)
        return expected

    monkeypatch.setitem(_OPENERS, "pytorch_model.bin", open_torch)
    (dense, _) = read_sentence_modules(load_checkpoint(folder)).steps
    np.testing.assert_array_equal(dense.kernel.T, expected["linear.weight"])
    assert opened == [path]
