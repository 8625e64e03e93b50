import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert, convert_checkpoint
from bert_tf.text.vocabulary import Vocabulary
from tests.checkpoints.arrays import assert_same_arrays
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config
from tests.user_errors import error_of

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
TARGETS = ("bert_tf", "google_tf1", "hugging_face")
HEADS = ("pooler", "masked_lm", "next_sentence")


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    config = tiny_config()
    arrays = random_arrays(config, HEADS)
    checkpoint = Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    save_checkpoint(folder, checkpoint)
    return folder


@pytest.fixture
def target(tmp_path):
    """A new folder in one that must stay empty when conversion fails."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "out"


def refused(target, message, source, to="bert_tf", **arguments):
    line = error_of(convert_checkpoint, source, to, target, **arguments)
    assert message in line
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("to", TARGETS)
def test_round_trip_with_heads_is_exact(to, source, target, tmp_path):
    report = convert_checkpoint(source, to, target)
    assert report.output_dir == target
    assert report.family == "bert_tf"
    assert report.to == to
    assert report.heads == HEADS
    assert report.not_compared == {}
    assert [c.output for c in report.comparisons] == [
        "sequence_output",
        "pooled_output",
        "masked_lm_logits",
        "next_sentence_logits",
    ]
    for comparison in report.comparisons:
        assert comparison.difference < 1e-6
        assert 0.1 < comparison.magnitude < 100
        assert str(comparison) in report.table()
    assert report.in_transformers == ()
    assert report.seconds > 0
    assert report.peak_bytes > 1e8
    back = convert_checkpoint(target, "bert_tf", tmp_path / "back")
    assert back.family == to
    before, after = load_checkpoint(source), load_checkpoint(tmp_path / "back")
    assert_same_arrays(after.arrays, before.arrays)
    assert before.config == after.config
    assert before.vocabulary == after.vocabulary
    assert after.lower_case is True


def test_what_google_computes_otherwise_is_printed(tmp_path, target, capsys):
    config = tiny_config(hidden_act="gelu_erf", layer_norm_eps=1e-7)
    arrays = random_arrays(config, ("pooler",))
    save_checkpoint(
        tmp_path / "a", Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    )
    report = convert_checkpoint(tmp_path / "a", "google_tf1", target)
    assert report.not_compared == {
        "masked_lm_logits": "the source has no masked_lm",
        "next_sentence_logits": "the source has no next_sentence",
    }
    printed = capsys.readouterr().out
    assert "hidden_act is gelu_erf" in printed
    assert "layer_norm_eps is 1e-07" in printed
    assert "not compared: the source has no masked_lm" in printed
    assert load_checkpoint(target).config == config


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("trainer_v2", "google_tf1"),
        ("classifier_v2_own_pooler", "hugging_face"),
    ],
)
def test_model_garden(name, to, target, tmp_path, capsys):
    folder = GOLDEN / "model_garden" / name
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS[:17]) + "\n")
    report = convert_checkpoint(
        folder, to, target, vocab_file=tmp_path / "vocab.txt"
    )
    assert report.family == "model_garden"
    assert len(report.comparisons) == 1 + len(report.heads)
    printed = capsys.readouterr().out
    assert "17 tokens; the last 2 of 19 rows" in printed
    assert "left out, no part of the model: " in printed
    given = load_checkpoint(folder)
    assert_same_arrays(load_checkpoint(target).arrays, given.arrays)


def test_heads_to_drop(source, target):
    for heads, message in (
        (["masked_lm", "span"], "=span: the source has no such head; it has "),
        (["pooler"], "`drop_heads`=pooler: next_sentence need it"),
    ):
        refused(target, message, source, drop_heads=heads)
    refused(target, "takes a list of names", source, drop_heads="masked_lm")
    # A duplicate has no effect.
    report = convert_checkpoint(
        source,
        "bert_tf",
        target,
        drop_heads=["pooler", "next_sentence", "pooler"],
    )
    assert report.heads == ("masked_lm",)


def test_a_source_without_vocabulary(tmp_path, target, capsys):
    config = tiny_config()
    folder = tmp_path / "source"
    save_checkpoint(folder, Checkpoint(config, random_arrays(config, HEADS)))
    refused(target, "pass the one it was trained with as `vocab_file`", folder)
    given = tmp_path / "vocab.txt"
    given.write_text("\n".join([*TOKENS, "one_more"]) + "\n")
    refused(
        target,
        f"`vocab_file`={given}: the vocabulary has {len(TOKENS) + 1} tok",
        folder,
        vocab_file=given,
    )
    refused(
        target,
        "no such vocabulary file",
        folder,
        vocab_file=tmp_path / "absent",
    )
    given.write_text("\n".join(TOKENS) + "\n")
    convert_checkpoint(folder, "bert_tf", target, vocab_file=given)
    assert "have no token" not in capsys.readouterr().out
    made = load_checkpoint(target)
    assert made.vocabulary.tokens == TOKENS
    # The tokens have capitals, and nothing says that text is lower-cased.
    assert made.lower_case is False


def test_another_length(source, target, capsys):
    report = convert_checkpoint(
        source, "bert_tf", target, max_position_embeddings=20
    )
    assert all(c.difference < 1e-6 for c in report.comparisons)
    name = "bert/embeddings/position_embeddings"
    new = load_checkpoint(target)
    assert new.config.max_position_embeddings == 20
    assert new.arrays[name].shape == (20, 8)
    np.testing.assert_array_equal(
        new.arrays[name][:12], load_checkpoint(source).arrays[name]
    )
    assert "positions: " in capsys.readouterr().out


def test_casing_can_be_overridden(source, target, capsys):
    convert_checkpoint(
        source, "bert_tf", target, lower_case=False, max_position_embeddings=12
    )
    assert load_checkpoint(target).lower_case is False
    printed = capsys.readouterr().out
    assert "upper-case" not in printed
    # The source has that length.
    assert "positions: " not in printed


def test_arguments_that_cannot_be_used(source, target, tmp_path):
    for arguments, message in (
        ({"to": "onnx"}, "`to`='onnx': takes one of"),
        ({"seed": -1}, "`seed`=-1: give a whole number"),
        ({"max_position_embeddings": -4}, "_embeddings`=-4: give a whole"),
    ):
        refused(target, message, source, **arguments)
    refused(target, "no such model folder", tmp_path / "absent")
    line = error_of(convert_checkpoint, source, "hugging_face", source)
    assert "is not empty" in line
    assert load_checkpoint(source).heads == HEADS


def test_a_write_that_fails_leaves_nothing(source, target, monkeypatch):
    def full(folder, checkpoint, to):
        (folder / "bert_config.json").write_text("{")
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(convert, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        convert_checkpoint(source, "bert_tf", target)
    assert list(target.parent.iterdir()) == []


def test_a_vocabulary_that_is_the_same_trims_spare_rows(target):
    config = tiny_config(vocab_size=len(TOKENS) + 3)
    folder = target.with_name("padded")
    save_checkpoint(
        folder,
        Checkpoint(config, random_arrays(config, ()), Vocabulary(TOKENS), True),
    )
    convert_checkpoint(
        folder, "bert_tf", target, vocab_file=folder / "vocab.txt"
    )
    written = load_checkpoint(target)
    assert written.config.vocab_size == len(TOKENS)
