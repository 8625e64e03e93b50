"""The proof finds what can go wrong in a conversion."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints import (
    Checkpoint,
    hugging_face,
    load_checkpoint,
    save_checkpoint,
    write_arrays,
)
from bert_tf.checkpoints.resize import replace_vocabulary
from bert_tf.conversion import convert, convert_checkpoint, proof
from bert_tf.conversion.sources import open_variables
from bert_tf.errors import UserError
from bert_tf.text.vocabulary import Vocabulary
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config

HEADS = ("pooler", "masked_lm", "next_sentence")
BLOCK = "bert/encoder/layer_1"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A pre-trainer of Hugging Face's, in the exact form of gelu."""
    folder = tmp_path_factory.mktemp("source")
    config = tiny_config(hidden_act="gelu_erf")
    checkpoint = Checkpoint(
        config,
        random_arrays(config, HEADS),
        vocabulary=Vocabulary(TOKENS),
        lower_case=True,
    )
    save_checkpoint(folder, checkpoint, "hugging_face")
    return folder


def transposed(*names):
    return lambda arrays: {name: arrays[name].T for name in names}


def swapped(first, second):
    return lambda arrays: {first: arrays[second], second: arrays[first]}


def reordered(name, order, axis=0):
    return lambda arrays: {name: np.take(arrays[name], order, axis)}


def permuted_heads(arrays):
    """Query's heads change places, key's and value's do not."""
    order = [*range(4, 8), *range(4)]
    name = f"{BLOCK}/attention/self/query"
    return {
        f"{name}/kernel": arrays[f"{name}/kernel"][:, order],
        f"{name}/bias": arrays[f"{name}/bias"][order],
    }


def interleaved_heads(arrays):
    """[N, D] taken for [D, N], as a wrong reshape would."""
    order = np.arange(8).reshape(2, 4).T.ravel()
    name = f"{BLOCK}/attention/self/value/kernel"
    return {name: arrays[name][:, order]}


MUTATIONS = {
    "transposed query": transposed(f"{BLOCK}/attention/self/query/kernel"),
    "transposed attention output": transposed(
        f"{BLOCK}/attention/output/dense/kernel"
    ),
    "transposed pooler": transposed("bert/pooler/dense/kernel"),
    "transposed transform": transposed(
        "cls/predictions/transform/dense/kernel"
    ),
    "query and key swapped": swapped(
        f"{BLOCK}/attention/self/query/kernel",
        f"{BLOCK}/attention/self/key/kernel",
    ),
    "biases of query and value swapped": swapped(
        f"{BLOCK}/attention/self/query/bias",
        f"{BLOCK}/attention/self/value/bias",
    ),
    "norms swapped": swapped(
        f"{BLOCK}/output/LayerNorm/beta",
        f"{BLOCK}/attention/output/LayerNorm/beta",
    ),
    "gamma for beta": swapped(
        "bert/embeddings/LayerNorm/beta", "bert/embeddings/LayerNorm/gamma"
    ),
    "layers swapped": swapped(
        f"{BLOCK}/intermediate/dense/kernel",
        "bert/encoder/layer_0/intermediate/dense/kernel",
    ),
    "heads permuted": permuted_heads,
    "heads interleaved": interleaved_heads,
    "next sentence labels swapped": reordered(
        "cls/seq_relationship/output_weights", [1, 0]
    ),
    "next sentence bias swapped": reordered(
        "cls/seq_relationship/output_bias", [1, 0]
    ),
    "segments swapped": reordered(
        "bert/embeddings/token_type_embeddings", [1, 0]
    ),
    "positions shifted": reordered(
        "bert/embeddings/position_embeddings", np.roll(np.arange(12), 1)
    ),
    "words shifted": reordered(
        "bert/embeddings/word_embeddings", np.roll(np.arange(len(TOKENS)), 1)
    ),
    "word bias shifted": reordered(
        "cls/predictions/output_bias", np.roll(np.arange(len(TOKENS)), 1)
    ),
}
OUTPUT = {
    "transposed pooler": "pooled_output",
    "transposed transform": "masked_lm_logits",
    "next sentence labels swapped": "next_sentence_logits",
    "next sentence bias swapped": "next_sentence_logits",
    "word bias shifted": "masked_lm_logits",
}


def refused(source, target, output, to="bert_tf", **arguments):
    with pytest.raises(UserError) as caught:
        convert_checkpoint(source, to, target, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert "differs from the source" in message
    assert f" {output} by " in message
    assert "Nothing was written." in message
    assert list(target.parent.iterdir()) == []
    return message


@pytest.fixture(scope="module")
def expected(source):
    """What the source's own variables compute."""
    loaded = load_checkpoint(source)
    variables = open_variables(source, "hugging_face")
    return proof.expect(loaded, loaded, variables)


def refused_written(expected, written, folder):
    """The line about a folder that was not written as it should be."""
    save_checkpoint(folder, written)
    with pytest.raises(UserError, match="differs from the source") as caught:
        proof.prove(expected, folder)
    return str(caught.value)


@pytest.mark.parametrize("name", MUTATIONS)
def test_other_weights_are_found(name, source, expected, tmp_path):
    checkpoint = load_checkpoint(source)
    arrays = dict(checkpoint.arrays)
    changed = MUTATIONS[name](arrays)
    assert all(arrays[n].shape == a.shape for n, a in changed.items())
    changed = dataclasses.replace(checkpoint, arrays=arrays | changed)
    message = refused_written(expected, changed, tmp_path / "out")
    assert f" {OUTPUT.get(name, 'sequence_output')} by " in message
    if name in OUTPUT:
        assert message.count(" by ") == 1 + (name == "transposed pooler")


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"hidden_act": "relu"},
        {"masked_lm_act": "gelu"},
        {"layer_norm_eps": 1e-3},
        {"masked_lm_layer_norm_eps": 1e-3},
        {"num_attention_heads": 4},
        {"causal": True},
    ],
    ids=lambda changes: "=".join(map(str, *changes.items())),
)
def test_another_computation_is_found(changes, source, expected, tmp_path):
    checkpoint = load_checkpoint(source)
    config = dataclasses.replace(checkpoint.config, **changes)
    changed = dataclasses.replace(checkpoint, config=config)
    message = refused_written(expected, changed, tmp_path / "out")
    of_head = next(iter(changes)).startswith("masked_lm")
    output = "masked_lm_logits" if of_head else "sequence_output"
    assert f" {output} by " in message


def test_an_activation_misread_from_the_source_is_found(
    source, tmp_path, monkeypatch
):
    monkeypatch.setitem(hugging_face._ACTIVATIONS, "gelu", "gelu")
    assert load_checkpoint(source).config.hidden_act == "gelu"
    refused(source, tmp_path / "out", "sequence_output", to="hugging_face")


@pytest.mark.parametrize("to", ["google_tf1", "hugging_face"])
def test_a_slip_in_reading_is_found(to, source, tmp_path, monkeypatch):
    """Also one that writing takes back, so that the file is right again."""
    table = hugging_face.stored_as_theirs

    def wrong(*arguments, **more):
        made = table(*arguments, **more)
        name = f"{BLOCK}/attention/self/key/kernel"
        made[name] = dataclasses.replace(made[name], transposed=False)
        return made

    monkeypatch.setattr(hugging_face, "stored_as_theirs", wrong)
    refused(source, tmp_path / "out", "sequence_output", to=to)


def test_rows_given_to_other_tokens_are_found(source, tmp_path, monkeypatch):
    words = [*TOKENS[:5], "new", *reversed(TOKENS[5:-4])]
    vocab_file = tmp_path / "vocab" / "vocab.txt"
    vocab_file.parent.mkdir()
    vocab_file.write_text("\n".join(words) + "\n")
    target = tmp_path / "here" / "out"
    target.parent.mkdir()

    def wrong(checkpoint, vocabulary, seed):
        ordered = Vocabulary([*TOKENS[:5], *sorted(words[5:])])
        changed, line = replace_vocabulary(checkpoint, ordered, seed)
        return dataclasses.replace(changed, vocabulary=vocabulary), line

    monkeypatch.setattr(convert, "replace_vocabulary", wrong)
    refused(source, target, "sequence_output", vocab_file=vocab_file)
    monkeypatch.undo()
    report = convert_checkpoint(
        source, "bert_tf", target, vocab_file=vocab_file
    )
    assert all(c.difference < 1e-5 for c in report.comparisons)


def test_a_head_that_the_source_lacks_is_found(source, tmp_path):
    loaded = load_checkpoint(source)
    config = loaded.config
    more = random_arrays(config, ("span",), seed=3)
    span = {k: v for k, v in more.items() if k.startswith("cls/squad")}
    converted = dataclasses.replace(
        loaded, arrays={**dict(loaded.arrays), **span}
    )
    variables = open_variables(source, "hugging_face")
    with pytest.raises(UserError, match="span would be written, but"):
        proof.expect(loaded, converted, variables)


def test_the_batch_covers_what_it_should(source):
    checkpoint = load_checkpoint(source)
    shared = proof.shared_part(checkpoint, checkpoint)
    given, same = proof.random_batches(shared, 2, seed=3)
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
    other, _ = proof.random_batches(shared, 2, seed=4)
    assert (other["input_ids"] != given["input_ids"]).any()
    # A long table is used to its end, by rows of no more than 48.
    many = dataclasses.replace(shared, positions=512)
    given, _ = proof.random_batches(many, 2, seed=0)
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
    arrays["bert/embeddings/word_embeddings"][3, 2] = np.inf
    write_arrays(folder / "bert_model.safetensors", arrays)
    target = tmp_path / "here" / "out"
    target.parent.mkdir()
    with pytest.raises(
        UserError, match="word_embeddings.*not finite"
    ) as caught:
        convert_checkpoint(folder, "google_tf1", target)
    assert str(folder) in str(caught.value)
    assert list(target.parent.iterdir()) == []


def test_a_difference_that_is_no_number_fails(expected):
    wrong = {"pooled_output": expected.outputs["pooled_output"] * np.nan}
    (found,) = proof.compare(expected, wrong)
    assert not found.difference <= proof.LIMIT


def test_no_output_comes_from_weights_that_were_not_read(source):
    """Variables are made without values, which may be anything."""
    checkpoint = load_checkpoint(source)
    shared = proof.shared_part(checkpoint, checkpoint)
    _, batch = proof.random_batches(shared, 2, seed=0)
    first = proof.model_outputs(checkpoint, batch)
    second = proof.model_outputs(checkpoint, batch)
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
        for name, array in checkpoint.arrays.items()
        if not name.startswith("bert/pooler")
    }
    without = dataclasses.replace(checkpoint, arrays=bare)
    outputs = proof.model_outputs(without, batch)
    assert list(outputs) == ["sequence_output", "masked_lm_logits"]
    np.testing.assert_array_equal(
        outputs["masked_lm_logits"], first["masked_lm_logits"]
    )
