"""Hugging Face folders that are broken: one line each, naming the file."""

import json
import pathlib
import shutil

import pytest
import safetensors.numpy

from bert_tf.checkpoints import (
    load_checkpoint,
    read_arrays,
    write_arrays,
)
from bert_tf.conversion import convert_checkpoint
from bert_tf.errors import UserError
from bert_tf.text.tokenizer import BertTokenizer
from tests.hugging_face_models import TOKENS

SAVED = (
    pathlib.Path(__file__).parent.parent / "golden" / "hugging_face" / "saved"
)
INDEX = "model.safetensors.index.json"
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


def copied(tmp_path, name):
    return pathlib.Path(shutil.copytree(SAVED / name, tmp_path / name))


def refused(folder, *words):
    """Loading is one line that holds the words."""
    with pytest.raises(UserError) as caught:
        load_checkpoint(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    for word in words:
        assert word in message


def changed_json(path, **changes):
    """Changes keys of a JSON file; None takes a key out."""
    values = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in values.items() if value is not None}
    path.write_text(json.dumps(kept))


def changed_arrays(folder, change):
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(change(read_arrays(path)), path)


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "sub/model.safetensors",
        "..",
        ".",
        "",
        "..\\model.safetensors",
        "a\0b",
    ],
)
def test_an_index_that_names_files_elsewhere(name, tmp_path):
    folder = copied(tmp_path, "sharded")
    index = json.loads((folder / INDEX).read_text())
    # What it points at is there, and would be read.
    shutil.copy(folder / FIRST, tmp_path / "model.safetensors")
    (folder / "sub").mkdir()
    shutil.copy(folder / FIRST, folder / "sub" / "model.safetensors")
    index["weight_map"] = {
        array: name if file == FIRST else file
        for array, file in index["weight_map"].items()
    }
    (folder / INDEX).write_text(json.dumps(index))
    refused(folder, INDEX, repr(name), "plain names of files beside it")


def test_a_shard_that_is_a_link_out_of_the_folder(tmp_path):
    folder = copied(tmp_path, "sharded")
    shutil.move(folder / FIRST, tmp_path / FIRST)
    (folder / FIRST).symlink_to(tmp_path / FIRST)
    refused(folder, INDEX, FIRST, "a link out of the folder")
    # A link within the folder is none of that.
    (folder / FIRST).unlink()
    shutil.move(tmp_path / FIRST, folder / "kept")
    (folder / FIRST).symlink_to("kept")
    load_checkpoint(folder)


def test_shards_that_do_not_fit_their_index(tmp_path):
    folder = copied(tmp_path, "sharded")
    index = json.loads((folder / INDEX).read_text())
    files = index["weight_map"]
    array = next(name for name, file in files.items() if file == FIRST)

    def with_map(weight_map):
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))

    with_map(files | {array: SECOND})
    refused(folder, INDEX, f"does not list {array}, in {FIRST}")
    with_map(files | {"extra": SECOND})
    refused(folder, INDEX, f"lists extra, not in {SECOND}")
    with_map({name: file for name, file in files.items() if name != array})
    refused(folder, INDEX, f"does not list {array}, in {FIRST}")
    with_map(files | {array: "gone.safetensors"})
    refused(folder, INDEX, "gone.safetensors, which is missing")
    for wrong in ([], {}, {array: 3}, None, "a"):
        with_map(wrong)
        refused(folder, INDEX, "weight_map must be")
    (folder / INDEX).write_text("{")
    refused(folder, INDEX, "not valid JSON")
    with_map(files)
    (folder / SECOND).write_bytes((folder / SECOND).read_bytes()[:-4])
    refused(folder, SECOND, "damaged")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'"),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; 'absolute' can be",
        ),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}"),
        ({"quantization_config": {}}, "quantization_config is {}"),
        ({"hidden_act": "silu"}, "hidden_act='silu': takes one of gelu"),
        ({"hidden_act": ["gelu"]}, "hidden_act=['gelu']"),
        ({"is_decoder": "yes"}, "causal is 'yes'"),
        ({"hidden_size": "8"}, "hidden_size is '8'"),
        ({"num_attention_heads": 3}, "takes a multiple of num_attention_heads"),
        ({"layer_norm_eps": 0}, "layer_norm_eps is 0.0; it takes more than 0"),
        ({"num_hidden_layers": 3}, "missing: encoder.layer.2.attention"),
        ({"num_hidden_layers": 1}, "unexpected: encoder.layer.1.attention"),
        (
            {"intermediate_size": 16},
            "intermediate.dense.weight is [12, 8] where the configuration "
            "says [16, 8]",
        ),
        # Without the key, the default of transformers.
        ({"type_vocab_size": None, "vocab_size": None}, "says [30522, 8]"),
    ],
)
def test_configurations_that_cannot_be_read(changes, words, tmp_path):
    folder = copied(tmp_path, "BertModel")
    changed_json(folder / "config.json", **changes)
    refused(folder, words)


def test_no_configuration(tmp_path):
    folder = copied(tmp_path, "BertModel")
    (folder / "config.json").write_text("[1]")
    refused(folder, "config.json")
    (folder / "config.json").unlink()
    refused(folder, "config.json")


@pytest.mark.parametrize(
    "given",
    [None, [], ["BertModel"], ["BertForPreTraining"], 5, "Bert", [["a"]]],
)
def test_classifiers_that_could_be_anything(given, tmp_path):
    folder = copied(tmp_path, "BertForTokenClassification")
    changed_json(folder / "config.json", architectures=given)
    refused(
        folder,
        f"architectures is {json.dumps(given)}",
        "classifier.weight",
        "BertForSequenceClassification, BertForTokenClassification, "
        "BertForMultipleChoice",
    )


def test_the_architecture_decides_what_a_classifier_is(tmp_path):
    folder = copied(tmp_path, "BertForMultipleChoice")
    assert load_checkpoint(folder).heads == ("pooler", "multiple_choice")
    changed_json(
        folder / "config.json",
        architectures=["BertForSequenceClassification"],
        id2label={"0": "LABEL_0"},
    )
    assert load_checkpoint(folder).heads == ("pooler", "classifier")
    folder = copied(tmp_path, "BertForSequenceClassification")
    changed_json(
        folder / "config.json", architectures=["BertForMultipleChoice"]
    )
    refused(folder, "classifier.weight is [3, 8]", "says [1, 8]")


@pytest.mark.parametrize(
    ("id2label", "words"),
    [
        ({"0": "a", "1": "b"}, "names 2 labels (id2label), but the head in"),
        (None, "names 2 labels"),
        ({"0": "a", "1": "b", "3": "c"}, "has the ids 0, 1, 3; they must be"),
        ({"0": "a", "1": "b", "2": ["c"]}, "id2label must be an object"),
        (["a", "b", "c"], "id2label must be an object"),
    ],
)
def test_labels_that_do_not_fit(id2label, words, tmp_path):
    folder = copied(tmp_path, "BertForSequenceClassification")
    changed_json(folder / "config.json", id2label=id2label)
    refused(folder, "config.json", words)


@pytest.mark.parametrize(
    ("names", "labels", "words"),
    [
        ([0, 1, 2.5], ("0", "1", "2.5"), "label 0 (0) is '0', 1 (1) is '1'"),
        (["a", None, "b"], ("a", "LABEL_1", "b"), "1 (None) is 'LABEL_1'"),
        (["a", "b", "a"], ("a", "b", "a_2"), "label 2 ('a') is 'a_2'"),
        (["a", "a_2", "a"], ("a", "a_2", "a_3"), "label 2 ('a') is 'a_3'"),
        (["1", 1, 1], ("1", "1_2", "1_3"), "label 1 (1) is '1_2', 2 (1)"),
        ([None] * 3, None, "label 0 (None) is 'LABEL_0'"),
        (["a", "b", "c"], ("a", "b", "c"), ""),
    ],
)
def test_names_that_are_no_text_or_occur_twice(
    names, labels, words, tmp_path, capsys
):
    folder = copied(tmp_path, "BertForSequenceClassification")
    id2label = {str(i): name for i, name in enumerate(names)}
    changed_json(folder / "config.json", id2label=id2label)
    assert load_checkpoint(folder).labels == labels
    found = capsys.readouterr().err
    assert words in found
    assert found.count("\n") == bool(words)


@pytest.mark.parametrize(
    ("problem_type", "labels", "found"),
    [
        (None, 3, None),
        ("multi_label_classification", 3, "multi_label_classification"),
        (None, 1, None),
        ("single_label_classification", 1, "single_label_classification"),
    ],
)
def test_what_a_classifier_answers(problem_type, labels, found, tmp_path):
    folder = copied(tmp_path, "BertForSequenceClassification")

    def change(arrays):
        return arrays | {
            name: arrays[name][:labels]
            for name in ("classifier.weight", "classifier.bias")
        }

    changed_arrays(folder, change)
    path = folder / "config.json"
    changed_json(
        path, id2label=None, num_labels=labels, problem_type=problem_type
    )
    assert load_checkpoint(folder).problem_type == found
    changed_json(path, problem_type="classes")
    refused(folder, "problem_type='classes': takes one of single_label")


@pytest.mark.parametrize(
    ("values", "longest"),
    [
        ({}, None),
        ({"model_max_length": 10**30, "max_length": 7}, 7),
        ({"model_max_length": 1e30}, None),
        ({"model_max_length": 9, "max_length": 7}, 9),
        ({"model_max_length": 512}, "max_position_embeddings"),
        ({"model_max_length": "all", "max_length": 0}, None),
    ],
)
def test_the_longest_row(values, longest, tmp_path):
    folder = copied(tmp_path, "BertModel")
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    found = load_checkpoint(folder)
    if isinstance(longest, str):
        longest = getattr(found.config, longest)
    assert found.max_seq_length == longest


@pytest.mark.parametrize(
    ("copy", "original"),
    [
        (
            "cls.predictions.decoder.weight",
            "bert.embeddings.word_embeddings.weight",
        ),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
)
def test_copies_that_are_none(copy, original, tmp_path):
    folder = copied(tmp_path, "BertForMaskedLM")

    def change(arrays):
        other = arrays[original].copy()
        other.flat[-1] += 1e-6
        return arrays | {copy: other}

    changed_arrays(folder, change)
    refused(folder, f"{copy} differs from {original}")


def test_untied_weights_that_are_missing(tmp_path):
    folder = copied(tmp_path, "BertForMaskedLM")
    changed_json(folder / "config.json", tie_word_embeddings=False)
    refused(folder, "tie_word_embeddings is false", "decoder.weight")


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack"])
def test_weights_of_other_frameworks(name, tmp_path):
    folder = copied(tmp_path, "BertModel")
    (folder / name).write_bytes(b"anything")
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    # Beside safetensors they are not looked at.
    load_checkpoint(folder)
    (folder / "pytorch_model.bin").unlink()
    (folder / "model.safetensors").unlink()
    refused(folder, name, "damaged weights file")


def test_a_number_of_labels_without_names(tmp_path):
    folder = copied(tmp_path, "BertForSequenceClassification")
    path = folder / "config.json"
    changed_json(path, id2label=None, num_labels=3)
    assert load_checkpoint(folder).labels is None
    changed_json(path, num_labels=4)
    refused(folder, "config.json", "names 4 labels")


@pytest.mark.parametrize(
    ("name", "dropped", "head"),
    [
        ("BertForPreTraining", "cls.predictions.", "masked_lm"),
        ("BertForPreTraining", "cls.seq_relationship.", "next_sentence"),
        ("BertForQuestionAnswering", "qa_outputs.", "span"),
        ("BertForSequenceClassification", "classifier.", "classifier"),
    ],
)
def test_a_head_that_the_class_has_and_the_file_has_not(
    name, dropped, head, tmp_path
):
    folder = copied(tmp_path, name)
    kept = {
        key: array
        for key, array in read_arrays(folder / "model.safetensors").items()
        if not key.startswith(dropped)
    }
    write_arrays(folder / "model.safetensors", kept)
    refused(folder, "config.json: architectures", f"hold no {head}")


def test_files_of_other_programs_are_no_checkpoint(tmp_path):
    folder = copied(tmp_path, "BertModel")
    (folder / "faiss.index").write_bytes(b"IxFI" + bytes(100))
    (folder / "more.index").mkdir()
    assert load_checkpoint(folder).heads == ("pooler",)


def test_a_tokenizer_of_other_rules_leaves_the_weights_readable(tmp_path):
    folder = copied(tmp_path, "BertModel")
    (folder / "vocab.txt").write_text("\n".join(TOKENS[:24]) + "\n")
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertJapaneseTokenizer"}'
    )
    checkpoint = load_checkpoint(folder)
    assert checkpoint.lower_case is None
    assert len(checkpoint.vocabulary) == 24
    with pytest.raises(UserError, match="BertJapaneseTokenizer"):
        BertTokenizer.from_checkpoint(folder)
    with pytest.raises(UserError, match="BertJapaneseTokenizer"):
        convert_checkpoint(folder, "bert_tf", tmp_path / "new")
    assert not (tmp_path / "new").exists()
