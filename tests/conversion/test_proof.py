"""The comparison finds errors in conversion and writing.

Errors in reading: test_parity.py.
"""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_arrays,
)
from bert_tf.checkpoints.resize import replace_vocabulary
from bert_tf.conversion import convert, convert_checkpoint, proof
from bert_tf.text.vocabulary import Vocabulary
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config
from tests.user_errors import error_of

HEADS = ("pooler", "masked_lm", "next_sentence")
BLOCK = "bert/encoder/layer_1"
QUERY = f"{BLOCK}/attention/self/query/kernel"
KEY = f"{BLOCK}/attention/self/key/kernel"
PAIR = ((QUERY, KEY), (KEY, QUERY))
POOLER = "bert/pooler/dense/kernel"
WORDS = "bert/embeddings/word_embeddings"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A pre-trainer of Hugging Face's, in the exact form of gelu."""
    folder = tmp_path_factory.mktemp("source")
    config = tiny_config(hidden_act="gelu_erf")
    checkpoint = Checkpoint(
        config, random_arrays(config, HEADS), Vocabulary(TOKENS), True
    )
    save_checkpoint(folder, checkpoint, "hugging_face")
    return folder


@pytest.fixture(scope="module")
def loaded(source):
    """That folder, with its arrays in memory."""
    checkpoint = load_checkpoint(source)
    return dataclasses.replace(checkpoint, arrays=dict(checkpoint.arrays))


def changed_arrays(checkpoint, changes):
    """The checkpoint with other arrays, without those that are None."""
    arrays = {**checkpoint.arrays, **changes}
    return dataclasses.replace(
        checkpoint, arrays={k: v for k, v in arrays.items() if v is not None}
    )


def line_of(function, *arguments, **more):
    line = error_of(function, *arguments, **more)
    assert line.endswith("Nothing was written.")
    return line


def interleaved(array):
    """Heads [N, D] taken for [D, N], as a wrong reshape would."""
    return array[:, np.arange(8).reshape(2, 4).T.ravel()]


def shifted(array):
    return np.roll(array, 1, 0)


# A change of an array, and the output that differs.
CHANGES = {
    "transposed": (QUERY, np.transpose, "sequence_output"),
    "transposed pooler": (POOLER, np.transpose, "pooled_output"),
    "interleaved": (QUERY, interleaved, "sequence_output"),
    "norm": (f"{BLOCK}/output/LayerNorm/beta", shifted, "sequence_output"),
    "positions": (
        "bert/embeddings/position_embeddings",
        shifted,
        "sequence_output",
    ),
    "words": (WORDS, shifted, "sequence_output"),
    "word bias": ("cls/predictions/output_bias", shifted, "masked_lm_logits"),
    "labels": (
        "cls/seq_relationship/output_weights",
        shifted,
        "next_sentence_logits",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_array_is_found(name, loaded):
    """By the answers where it was converted so, and by reading it back."""
    array, change, output = CHANGES[name]
    other = changed_arrays(loaded, {array: change(loaded.arrays[array])})
    line = line_of(proof.prove, loaded, other, other, ())
    assert f"differs from the source in {output} by " in line
    if output != "sequence_output":
        assert line.count(" by ") == 1 + (output == "pooled_output")
    line = line_of(proof.prove, loaded, loaded, other, ())
    assert f": {array} of the written folder would differ" in line


def test_the_last_bit_is_read_back(loaded):
    bits = loaded.arrays[WORDS].view(np.int32) ^ 1
    other = changed_arrays(loaded, {WORDS: bits.view(np.float32)})
    line = line_of(proof.prove, loaded, loaded, other, ())
    assert f": {WORDS} of the written folder would differ" in line


def test_arrays_are_accounted_for_on_both_sides(loaded):
    """Whether they were dropped in converting or in writing."""
    fewer = changed_arrays(loaded, {POOLER: None})
    more = changed_arrays(loaded, {"cls/squad/output_bias": 0})
    for source, converted, name in (
        (loaded, fewer, POOLER),
        (fewer, loaded, POOLER),
        (loaded, more, "cls/squad/output_bias"),
    ):
        line = line_of(proof.prove, source, converted, converted, ())
        assert f"{name} would be in the source or in the written" in line
    line = line_of(proof.prove, loaded, loaded, loaded, ["pooler"])
    assert f"bert/pooler/dense/bias, {POOLER} would" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"masked_lm_act": "gelu"},
        {"layer_norm_eps": 1e-3},
        {"masked_lm_layer_norm_eps": 1e-3},
        {"num_attention_heads": 4},
        {"causal": True},
    ],
    ids=lambda changes: "=".join(map(str, *changes.items())),
)
def test_another_computation_is_found(changes, loaded):
    config = dataclasses.replace(loaded.config, **changes)
    converted = dataclasses.replace(loaded, config=config)
    line = line_of(proof.prove, loaded, loaded, converted, ())
    assert "config of the written folder would differ" in line
    line = line_of(proof.prove, loaded, converted, converted, ())
    of_head = next(iter(changes)).startswith("masked_lm")
    output = "masked_lm_logits" if of_head else "sequence_output"
    assert f" in {output} by " in line


@pytest.mark.parametrize(
    "changes",
    [
        {"vocabulary": Vocabulary([*TOKENS[:-1], "?"])},
        {"lower_case": False},
        {"strip_accents": False},
        {"labels": ("no", "yes")},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_a_folder_states_is_read_back(changes, loaded):
    written = dataclasses.replace(loaded, **changes)
    line = line_of(proof.prove, loaded, loaded, written, ())
    assert f"{next(iter(changes))} of the written folder would differ" in line


def test_an_error_in_writing_is_found(source, tmp_path, monkeypatch):
    def wrong(folder, checkpoint, to):
        swapped = {a: checkpoint.arrays[b] for a, b in PAIR}
        save_checkpoint(folder, changed_arrays(checkpoint, swapped), to)

    monkeypatch.setattr(convert, "save_checkpoint", wrong)
    target = tmp_path / "here" / "out"
    line = line_of(convert_checkpoint, source, "bert_tf", target)
    assert f"{QUERY}, {KEY} of the written folder would differ" in line
    assert not target.parent.exists()


def test_rows_given_to_other_tokens_are_found(source, tmp_path, monkeypatch):
    words = [*TOKENS[:5], "new", *reversed(TOKENS[5:-4])]
    vocab_file = tmp_path / "vocab" / "vocab.txt"
    vocab_file.parent.mkdir()
    vocab_file.write_text("\n".join(words) + "\n")
    arguments = source, "bert_tf", tmp_path / "here" / "out", vocab_file

    def wrong(checkpoint, vocabulary, seed):
        ordered = Vocabulary([*TOKENS[:5], *sorted(words[5:])])
        changed, line = replace_vocabulary(checkpoint, ordered, seed)
        return dataclasses.replace(changed, vocabulary=vocabulary), line

    monkeypatch.setattr(convert, "replace_vocabulary", wrong)
    line = line_of(convert_checkpoint, *arguments)
    assert " in sequence_output by " in line
    monkeypatch.undo()
    report = convert_checkpoint(*arguments)
    assert all(c.difference < 1e-6 for c in report.comparisons)


def test_the_batch_covers_what_it_should(loaded):
    shared = proof.SharedInputs.of(loaded, loaded)
    given, same = shared.random_batches(seed=3)
    for name in given:
        np.testing.assert_array_equal(given[name], same[name])
    mask = given["input_mask"]
    assert mask[0].all()
    assert not mask.all()
    assert (mask[:, 0] == 1).all()
    assert set(np.unique(given["segment_ids"])) == {0, 1}
    assert given["position_ids"].max() == 11
    masked = np.take_along_axis(mask, given["masked_lm_positions"], 1)
    assert masked.all()
    other, _ = shared.random_batches(seed=4)
    assert (other["input_ids"] != given["input_ids"]).any()
    # A long table is used to its end, by rows of no more than 48.
    many = dataclasses.replace(shared, positions=512)
    given, _ = many.random_batches(seed=0)
    assert given["input_ids"].shape == (4, 48)
    assert given["position_ids"].max() > 400
    assert (np.diff(given["position_ids"]) > 0).all()


def test_what_is_not_finite_in_the_source_is_no_success(tmp_path):
    """One number is enough, in a row that no random id may meet."""
    config = tiny_config()
    arrays = random_arrays(config, HEADS)
    folder = tmp_path / "source"
    save_checkpoint(
        folder, Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    )
    arrays[WORDS][3, 2] = np.inf
    write_arrays(folder / "bert_model.safetensors", arrays)
    target = tmp_path / "here" / "out"
    line = error_of(convert_checkpoint, folder, "google_tf1", target)
    assert line.startswith(str(folder))
    assert "not finite" in line
    assert not target.parent.exists()


def test_a_difference_that_is_no_number_fails(loaded):
    values = {"pooled_output": np.ones((4, 8))}
    wrong = {"pooled_output": np.full((4, 8), np.nan)}
    shared = proof.SharedInputs.of(loaded, loaded)
    for pair in ((values, wrong), (wrong, values)):
        found = proof.compare(*pair, np.ones((4, 12)), shared)
        line_of(proof.refuse_differences, found, "a", "b")


def test_no_output_comes_from_weights_that_were_not_read(loaded):
    """Variables are made without values, which may be anything."""
    _, batch = proof.SharedInputs.of(loaded, loaded).random_batches(seed=0)
    first, second = (proof.model_outputs(loaded, batch) for _ in range(2))
    assert list(first) == [
        "sequence_output",
        "pooled_output",
        "masked_lm_logits",
        "next_sentence_logits",
    ]
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    bare = {
        name: array
        for name, array in loaded.arrays.items()
        if not name.startswith("bert/pooler")
    }
    without = dataclasses.replace(loaded, arrays=bare)
    outputs = proof.model_outputs(without, batch)
    assert list(outputs) == ["sequence_output", "masked_lm_logits"]
    np.testing.assert_array_equal(
        outputs["masked_lm_logits"], first["masked_lm_logits"]
    )
