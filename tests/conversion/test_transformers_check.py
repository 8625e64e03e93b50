"""`check`=transformers, as far as transformers is installed."""

import dataclasses
import importlib.util
import json

import pytest

from bert_tf.architectures.distilbert import DistilBertConfig
from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.conversion.transformers_check import compare_in_transformers
from bert_tf.text.vocabulary import Vocabulary
from tests.hugging_face_models import LABELS, TOKENS, random_arrays
from tests.user_errors import error_of

CASES = {
    "pre-trainer": (BertConfig, ("pooler", "masked_lm", "next_sentence")),
    "choices": (BertConfig, ("pooler", "multiple_choice")),
    "student": (DistilBertConfig, ("pooler", "classifier")),
    "student's span": (DistilBertConfig, ("span",)),
    "generator": (ElectraConfig, ("masked_lm",)),
    "discriminator": (ElectraConfig, ("replaced_tokens",)),
}


def write(folder, name, to):
    config_class, heads = CASES[name]
    config = config_class(
        vocab_size=len(TOKENS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=12,
        **({"embedding_size": 4} if config_class is ElectraConfig else {}),
    )
    arrays = random_arrays(config, heads)
    labels = LABELS if "classifier" in heads else None
    checkpoint = Checkpoint(config, arrays, Vocabulary(TOKENS), True, labels)
    save_checkpoint(folder, checkpoint, to)
    return folder


def test_without_transformers(tmp_path, monkeypatch):
    source = write(tmp_path / "source", "pre-trainer", "bert_tf")
    arguments = source, "hugging_face", tmp_path / "out"
    line = error_of(convert_checkpoint, *arguments, check="onnx")
    assert line == "`check`='onnx': takes one of transformers."
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = error_of(convert_checkpoint, *arguments, check="transformers")
    assert line.startswith("`check`=transformers needs torch, transformers,")
    assert line.endswith('pip install "bert_tf[transformers]"')
    assert not (tmp_path / "out").exists()


@pytest.fixture
def transformers():
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("to", ["bert_tf", "hugging_face"])
@pytest.mark.parametrize("name", CASES)
def test_both_folders_compute_the_same(name, to, tmp_path, transformers):
    source = write(tmp_path / "source", name, "hugging_face")
    report = convert_checkpoint(
        source, to, tmp_path / "out", check="transformers"
    )
    (head,) = CASES[name][1][-1:]
    found = {c.output: c for c in report.in_transformers}
    assert {"hidden_states", f"{head}_logits"} <= found.keys()
    for comparison in found.values():
        assert 0 < comparison.difference < 1e-5 < comparison.magnitude
    assert "in transformers, from its model" in report.table()


def test_another_computation_is_found(tmp_path, transformers):
    source = write(tmp_path / "source", "pre-trainer", "hugging_face")
    loaded = load_checkpoint(source)
    config = json.loads((source / "config.json").read_text())
    config["hidden_act"] = "relu"
    (source / "config.json").write_text(json.dumps(config))
    line = error_of(compare_in_transformers, loaded, source, loaded, source, 0)
    assert "of the conversion differs from the source" in line
    config = dataclasses.replace(loaded.config, bilstm=True)
    arrays = random_arrays(config, ("pooler", "bilstm"))
    changed = dataclasses.replace(loaded, config=config, arrays=arrays)
    save_checkpoint(tmp_path / "bilstm", changed)
    line = error_of(
        convert_checkpoint,
        tmp_path / "bilstm",
        "bert_tf",
        tmp_path / "out",
        check="transformers",
    )
    assert "transformers cannot hold this model (" in line
    assert not (tmp_path / "out").exists()
