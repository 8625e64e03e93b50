"""Broken Hugging Face folders: one line each, which names the file."""

import json
import pathlib
import shutil

import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.inference.fill_mask import fill_mask
from bert_tf.text.tokenizer import BertTokenizer
from tests.checkpoints.arrays import assert_same_arrays
from tests.checkpoints.damage import (
    assert_refused,
    changed_json,
    truncated,
    with_arrays,
    with_bytes,
    with_keys,
    without,
)
from tests.hugging_face_models import TOKENS
from tests.user_errors import error_of

SAVED = (
    pathlib.Path(__file__).parent.parent / "golden" / "hugging_face" / "saved"
)
INDEX = "model.safetensors.index.json"
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"
FILES = json.loads((SAVED / "sharded" / INDEX).read_text())["weight_map"]
# An array of the first shard.
ARRAY = next(name for name, file in FILES.items() if file == FIRST)
SENTENCES, TAGS = "BertForSequenceClassification", "BertForTokenClassification"
WORDS = "bert.embeddings.word_embeddings.weight"


def weight_map(value):
    return with_keys(INDEX, weight_map=value)


def without_arrays(prefix):
    return with_arrays(
        lambda arrays: {
            name: array
            for name, array in arrays.items()
            if not name.startswith(prefix)
        }
    )


def with_other_copy(copy, original):
    def change(arrays):
        other = arrays[original].copy()
        other.flat[-1] += 1e-6
        return arrays | {copy: other}

    return with_arrays(change)


CONFIGURATIONS = [
    ({"model_type": "xlnet"}, "model_type is 'xlnet'"),
    (
        {"position_embedding_type": "relative_key"},
        "position_embedding_type is 'relative_key'; 'absolute' can be",
    ),
    ({"add_cross_attention": True}, "add_cross_attention is True"),
    ({"pruned_heads": {"0": [1]}}, r"pruned_heads is {'0': \[1\]}"),
    ({"quantization_config": {}}, "quantization_config is {}"),
    ({"hidden_act": "silu"}, "hidden_act='silu': takes one of gelu"),
    ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\]"),
    ({"is_decoder": "yes"}, "causal is 'yes'"),
    ({"hidden_size": "8"}, "hidden_size is '8'"),
    ({"num_attention_heads": 3}, "takes a multiple of num_attention_heads"),
    ({"layer_norm_eps": 0}, "layer_norm_eps is 0.0; it takes more than 0"),
    ({"num_hidden_layers": 3}, "missing: encoder.layer.2.attention"),
    ({"num_hidden_layers": 1}, "unexpected: encoder.layer.1.attention"),
    ({"intermediate_size": 16}, r"dense.weight is \[12, 8\] .* \[16, 8\]"),
    # Without the key, the default of transformers.
    ({"type_vocab_size": None, "vocab_size": None}, r"says \[30522, 8\]"),
]
LABELS = [
    ({"0": "a", "1": "b"}, "names 2 labels .id2label., but the head in"),
    (None, "names 2 labels"),
    ({"0": "a", "1": "b", "3": "c"}, "has the ids 0, 1, 3; they must be"),
    ({"0": "a", "1": "b", "2": ["c"]}, "id2label must be an object"),
    (["a", "b", "c"], "id2label must be an object"),
]
# The folder, what happens to it, and what the error matches.
CASES = [
    *(
        ("BertModel", with_keys(**changes), message)
        for changes, message in CONFIGURATIONS
    ),
    ("BertModel", with_bytes("config.json", lambda _: b"[1]"), "config.json"),
    ("BertModel", without("config.json"), "config.json"),
    *(
        (SENTENCES, with_keys(id2label=names), f"config.json: .*{message}")
        for names, message in LABELS
    ),
    (SENTENCES, with_keys(id2label=None, num_labels=4), "json: names 4 labels"),
    (
        SENTENCES,
        with_keys(architectures=["BertForMultipleChoice"]),
        r"classifier.weight is \[3, 8\] .* says \[1, 8\]",
    ),
    (SENTENCES, with_keys(problem_type="classes"), "'classes': .* single_"),
    *(
        (name, without_arrays(prefix), f"json: architectures .* no {head}")
        for name, prefix, head in (
            ("BertForPreTraining", "cls.predictions.", "masked_lm"),
            ("BertForPreTraining", "cls.seq_relationship.", "next_sentence"),
            ("BertForQuestionAnswering", "qa_outputs.", "span"),
            (SENTENCES, "classifier.", "classifier"),
        )
    ),
    # Shards that do not fit their index.
    *(
        ("sharded", weight_map(files), f"index.json: .*{message}")
        for files, message in (
            (FILES | {ARRAY: SECOND}, f"does not list {ARRAY}, in {FIRST}"),
            (FILES | {"extra": SECOND}, f"lists extra, not in {SECOND}"),
            (
                {n: file for n, file in FILES.items() if n != ARRAY},
                f"does not list {ARRAY}, in {FIRST}",
            ),
            (FILES | {ARRAY: "gone.safetensors"}, "gone.*, which is missing"),
            *((wrong, "weight_map must be") for wrong in ([], {}, None, "a")),
            ({ARRAY: 3}, "weight_map must be"),
        )
    ),
    ("sharded", with_bytes(INDEX, lambda _: b"{"), "not valid JSON"),
    ("sharded", truncated(SECOND, 4), f"{SECOND}.*damaged"),
]


@pytest.mark.parametrize(("name", "damage", "message"), CASES)
def test_a_damaged_folder(name, damage, message, tmp_path):
    assert_refused(SAVED / name, tmp_path, damage, message)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        *(
            (with_other_copy(copy, original), f"{copy} differs from {original}")
            for copy, original in (
                ("cls.predictions.decoder.weight", WORDS),
                ("cls.predictions.decoder.bias", "cls.predictions.bias"),
            )
        ),
        (
            with_keys(tie_word_embeddings=False),
            "tie_word_embeddings is false in config.json, but the weights hold "
            "no cls.predictions.decoder.weight",
        ),
    ],
)
@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining"])
def test_a_masked_lm_head_of_other_weights_is_left_out(
    name, damage, reason, tmp_path, capsys
):
    folder = pathlib.Path(shutil.copytree(SAVED / name, tmp_path / "untied"))
    damage(folder)
    found = load_checkpoint(folder)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}: its masked LM head is left out: {reason}" in line
    whole = load_checkpoint(SAVED / name)
    assert set(whole.heads) - set(found.heads) == {"masked_lm"}
    assert_same_arrays(found.arrays, {n: whole.arrays[n] for n in found.arrays})
    assert "no masked-LM head" in error_of(fill_mask, folder, "[MASK]")


def test_tied_weights_of_a_class_without_the_head(tmp_path, capsys):
    folder = pathlib.Path(shutil.copytree(SAVED / SENTENCES, tmp_path / "a"))
    changed_json(folder / "config.json", tie_word_embeddings=False)
    assert "classifier" in load_checkpoint(folder).heads
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "name",
    [
        *("../model.safetensors", "/etc/passwd", "sub/model.safetensors"),
        *("..", ".", "", "..\\model.safetensors", "a\0b"),
    ],
)
def test_an_index_that_names_files_elsewhere(name, tmp_path):
    files = {a: name if f == FIRST else f for a, f in FILES.items()}
    # The file is there, and could be read.
    shutil.copy(SAVED / "sharded" / FIRST, tmp_path / "model.safetensors")

    def damage(folder):
        weight_map(files)(folder)
        (folder / "sub").mkdir()
        shutil.copy(folder / FIRST, folder / "sub" / "model.safetensors")

    assert_refused(
        SAVED / "sharded", tmp_path, damage, "plain names of files beside it"
    )


def test_a_shard_that_is_a_link(tmp_path):
    def out_of_the_folder(folder):
        shutil.move(folder / FIRST, tmp_path / FIRST)
        (folder / FIRST).symlink_to(tmp_path / FIRST)

    message = f"{FIRST}, a link out of the folder"
    assert_refused(SAVED / "sharded", tmp_path, out_of_the_folder, message)
    folder = tmp_path / "damaged"
    (folder / FIRST).unlink()
    shutil.move(tmp_path / FIRST, folder / "inner")
    (folder / FIRST).symlink_to("inner")
    load_checkpoint(folder)


@pytest.mark.parametrize(
    "given",
    [None, [], ["BertModel"], ["BertForPreTraining"], 5, "Bert", [["a"]]],
)
def test_a_classifier_of_an_unknown_class(given, tmp_path):
    folder = shutil.copytree(SAVED / TAGS, tmp_path / "m")
    changed_json(folder / "config.json", architectures=given)
    line = error_of(load_checkpoint, folder)
    assert f"architectures is {json.dumps(given)}" in line
    assert f"{SENTENCES}, {TAGS}, BertForMultipleChoice" in line


def test_the_class_decides_what_a_classifier_is(tmp_path):
    folder = shutil.copytree(SAVED / "BertForMultipleChoice", tmp_path / "m")
    assert load_checkpoint(folder).heads == ("pooler", "multiple_choice")
    path = folder / "config.json"
    changed_json(path, architectures=[SENTENCES], id2label={"0": "LABEL_0"})
    assert load_checkpoint(folder).heads == ("pooler", "classifier")


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        ([0, 1, 2.5], ("0", "1", "2.5"), "label 0 (0) is '0', 1 (1) is '1'"),
        (["a", None, "b"], ("a", "LABEL_1", "b"), "1 (None) is 'LABEL_1'"),
        (["a", "b", "a"], ("a", "b", "a_2"), "label 2 ('a') is 'a_2'"),
        (["a", "a_2", "a"], ("a", "a_2", "a_3"), "label 2 ('a') is 'a_3'"),
        (["1", 1, 1], ("1", "1_2", "1_3"), "label 1 (1) is '1_2', 2 (1)"),
        ([None] * 3, None, "label 0 (None) is 'LABEL_0'"),
        (["a", "b", "c"], ("a", "b", "c"), ""),
        # Only a number of labels.
        (None, None, ""),
    ],
)
def test_names_of_labels(names, labels, message, tmp_path, capsys):
    folder = shutil.copytree(SAVED / SENTENCES, tmp_path / "m")
    id2label = names and {str(i): name for i, name in enumerate(names)}
    changed_json(folder / "config.json", id2label=id2label, num_labels=3)
    assert load_checkpoint(folder).labels == labels
    logged = capsys.readouterr().err
    assert message in logged
    assert logged.count("\n") == bool(message)


@pytest.mark.parametrize(
    ("problem_type", "labels"),
    [
        (None, 3),
        ("multi_label_classification", 3),
        (None, 1),
        ("single_label_classification", 1),
    ],
)
def test_the_problem_type(problem_type, labels, tmp_path):
    folder = shutil.copytree(SAVED / SENTENCES, tmp_path / "m")
    head = ("classifier.weight", "classifier.bias")
    with_arrays(lambda a: a | {name: a[name][:labels] for name in head})(folder)
    changed_json(
        folder / "config.json",
        id2label=None,
        num_labels=labels,
        problem_type=problem_type,
    )
    assert load_checkpoint(folder).problem_type == problem_type


@pytest.mark.parametrize(
    ("values", "longest"),
    [
        ({}, None),
        ({"model_max_length": 10**30, "max_length": 7}, 7),
        ({"model_max_length": 1e30}, None),
        ({"model_max_length": 9, "max_length": 7}, 9),
        # The number of positions.
        ({"model_max_length": 512}, 12),
        ({"model_max_length": "all", "max_length": 0}, None),
    ],
)
def test_the_longest_row(values, longest, tmp_path):
    folder = shutil.copytree(SAVED / "BertModel", tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    assert load_checkpoint(folder).max_seq_length == longest


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack"])
def test_weights_of_several_frameworks(name, tmp_path):
    folder = shutil.copytree(SAVED / "BertModel", tmp_path / "m")
    (folder / name).write_bytes(b"anything")
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    # Files of other programs.
    (folder / "faiss.index").write_bytes(b"IxFI" + bytes(100))
    (folder / "more.index").mkdir()
    assert load_checkpoint(folder).heads == ("pooler",)
    (folder / "pytorch_model.bin").unlink()
    (folder / "model.safetensors").unlink()
    assert f"{name}: damaged weights file" in error_of(load_checkpoint, folder)


def test_weights_are_readable_without_their_tokenizer(tmp_path):
    folder = shutil.copytree(SAVED / "BertModel", tmp_path / "m")
    (folder / "vocab.txt").write_text("\n".join(TOKENS[:24]) + "\n")
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertJapaneseTokenizer"}'
    )
    checkpoint = load_checkpoint(folder)
    assert checkpoint.lower_case is None
    assert len(checkpoint.vocabulary) == 24
    line = error_of(BertTokenizer.from_checkpoint, folder)
    assert "BertJapaneseTokenizer" in line
    line = error_of(convert_checkpoint, folder, "bert_tf", tmp_path / "new")
    assert "BertJapaneseTokenizer" in line
    assert not (tmp_path / "new").exists()
