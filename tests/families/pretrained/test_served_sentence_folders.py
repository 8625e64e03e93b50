"""Folders of sentence-transformers loaded, exported and converted."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import bert_tf
from bert_tf.checkpoints import load_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.errors import UserError
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.inference.export_file import export_file
from bert_tf.runtimes.runtime import file_module
from tests.families.pretrained.sentence_folders import (
    CROSS_ENCODERS,
    PAIRS,
    TEXTS,
    scores_of,
    vectors_of,
    write_cross_encoder,
    write_folder,
)
from tests.inference import serving_models as models


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    """A folder with several poolings, which exclude the prompt."""
    root = tmp_path_factory.mktemp("prompted")
    return bert_tf.load(write_folder("prompt_left_out_joined", root / "model"))


def test_a_loaded_model_answers_with_the_vectors_of_encode(prompted, eagerly):
    expected = vectors_of("prompt_left_out_joined")
    for prompt in (None, "query"):
        answers = prompted(TEXTS, prompt_name=prompt)
        close([each["embedding"] for each in answers], expected[prompt])
    close(bert_tf.embed(prompted, TEXTS[0]), expected[None][0])
    facts = prompted.facts
    assert facts["task"] == "embeddings"
    assert facts["default_prompt_name"] == "passage"
    assert facts["prompts"]["query"] == "query : "
    with pytest.raises(UserError, match="`prompt_name`=other: the model has"):
        prompted(TEXTS, prompt_name="other")


def test_signatures_take_a_prompt_for_each_row(prompted):
    signatures = prompted.served.signatures()
    assert set(signatures) == {
        *("embed", "embed_with_prompt", "serving_default", "tokens"),
        "count_tokens",
    }
    expected = vectors_of("prompt_left_out_joined")
    names = ["query", "passage"]
    found = models.ask(
        signatures["embed_with_prompt"], text=TEXTS[:2], prompt_name=names
    )
    rows = [expected[name][row] for row, name in enumerate(names)]
    close(found["embedding"], rows)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="prompt_name: row 1 names none"
    ):
        models.ask(
            signatures["embed_with_prompt"],
            text=TEXTS[:2],
            prompt_name=["query", "{}"],
        )


def test_tokens_are_counted_as_they_are_read(prompted):
    count = prompted.served.signatures()["count_tokens"]
    found = models.ask(count, text=TEXTS)["num_tokens"]
    assert prompted.served.prompt == "passage: the "
    tokenizer, longest = prompted.tokenizer, prompted.served.max_seq_length
    ids = tokenizer.tokenize(["passage: the " + text for text in TEXTS])
    expected = [min(len(row) + 2, longest) for row in ids.to_list()]
    assert found.tolist() == expected
    assert len(set(expected)) > 2
    assert longest in expected


@pytest.mark.parametrize(
    ("name", "file_format"),
    [
        ("default_prompt", "onnx"),
        ("dense_residual", "onnx"),
        ("max", "onnx"),
        # Normalised, then the first of its numbers.
        ("truncated", "onnx"),
        ("truncated", "openvino"),
        ("truncated", "litert"),
        # Pooled, dense and normalised.
        ("dense", "openvino"),
        ("dense", "litert"),
    ],
)
def test_a_file_gives_them(name, file_format, eagerly, tmp_path):
    folder = write_folder(name, tmp_path / "model")
    path = export_file(folder, tmp_path / "file", file_format)
    description = json.loads((path.parent / "model.json").read_text("utf-8"))
    prompt = description.get("prompts", {}).get(
        description.get("default_prompt_name"), ""
    )
    tokenizer = tokenizers.Tokenizer.from_file(
        str(path.parent / "tokenizer.json")
    )
    run = file_module(file_format, "").Runner(path)
    for text, expected in zip(TEXTS, vectors_of(name)[None], strict=True):
        row = tokenizer.encode(prompt + text)
        inputs = {
            "input_ids": row.ids,
            "input_mask": row.attention_mask,
            "segment_ids": row.type_ids,
        }
        inputs = {k: np.array([v], np.int32) for k, v in inputs.items()}
        close(run(inputs)["embedding"][0], expected)


def test_an_onnx_file_cannot_leave_prompts_out(tmp_path):
    folder = write_folder("prompt_left_out", tmp_path / "model")
    with pytest.raises(UserError, match="include_prompt is false"):
        export_file(folder, tmp_path / "onnx", "onnx")


@pytest.mark.parametrize(
    ("name", "to"), [("two_dense", "hugging_face"), ("lower_case", "bert_tf")]
)
def test_a_converted_folder_gives_them(name, to, eagerly, tmp_path):
    folder = write_folder(name, tmp_path / "model")
    convert_checkpoint(folder, to, tmp_path / "written")
    found = bert_tf.embed(tmp_path / "written", TEXTS)
    close(found, vectors_of(name)[None])


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_cross_encoders_score_pairs(name, eagerly, tmp_path):
    model = bert_tf.load(write_cross_encoder(name, tmp_path / "model"))
    answers = model(*map(list, zip(*PAIRS, strict=True)))
    expected = scores_of(name)
    if name == "several":
        # predict() returns logits; compare with apply_softmax=True.
        expected = tf.nn.softmax(expected).numpy()
    if expected.ndim == 1:
        close([each["score"] for each in answers], expected)
    else:
        found = [list(each["probabilities"].values()) for each in answers]
        close(found, expected)


def test_the_longest_row_of_a_cross_encoder(eagerly, tmp_path):
    folder = write_cross_encoder("old", tmp_path / "model")
    settings = json.dumps({"max_seq_length": 9})
    (folder / "sentence_bert_config.json").write_text(settings)
    model = bert_tf.load(folder)
    assert model.served.max_seq_length == 9
    assert load_checkpoint(folder).max_seq_length == 9


def test_a_converted_cross_encoder_keeps_its_activation(eagerly, tmp_path):
    folder = write_cross_encoder("old", tmp_path / "model")
    for to in ("bert_tf", "hugging_face"):
        convert_checkpoint(folder, to, tmp_path / to)
        model = bert_tf.load(tmp_path / to)
        score = model(*PAIRS[0])["score"]
        close(score, scores_of("old")[0])


@pytest.mark.parametrize(
    ("name", "activation"), [("plain", "sigmoid"), ("identity", "linear")]
)
def test_a_converted_ranking_is_a_cross_encoder(
    name, activation, eagerly, tmp_path
):
    folder = write_cross_encoder(name, tmp_path / "model")
    values = json.loads((folder / "config.json").read_text("utf-8"))
    del values["sentence_transformers"]
    (folder / "config.json").write_text(json.dumps(values), "utf-8")
    config = TextClassificationConfig(
        *("ranking", (), 24, "regression", 1, 2), activation=activation
    )
    (folder / "task.json").write_text(json.dumps(config.to_dict()))
    written = tmp_path / "written"
    convert_checkpoint(folder, "hugging_face", written)
    for is_described in (True, False):
        found = bert_tf.load(written)(*map(list, zip(*PAIRS, strict=True)))
        close([each["score"] for each in found], scores_of(name))
        if is_described:
            # As other programs read it.
            (written / "task.json").unlink()
    stated = json.loads(
        (written / "config_sentence_transformers.json").read_text()
    )
    (written / "config.json").write_text(json.dumps(values), "utf-8")
    assert stated["model_type"] == "CrossEncoder"
    found = bert_tf.load(written)(*PAIRS[0])["score"]
    close(found, scores_of(name)[0])
