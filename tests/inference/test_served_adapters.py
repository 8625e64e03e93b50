"""Several adapters of one base: they answer as alone, with one base."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.families.model_folder import save_model
from bert_tf.families.task_model import TaskModel
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.inference.adapters import served_adapters
from bert_tf.inference.saving import save
from bert_tf.inference.served_folder import describe_model, served_model
from bert_tf.models import bert_classifier, bert_token_classifier, restore
from bert_tf.server.loaded_model import LoadedModel
from tests.finetuning.sentence_runs import model_folder, texts, tokenizer
from tests.inference.serving_models import text_config
from tests.user_errors import error_of

MOOD = text_config(labels=("negative", "positive"), max_seq_length=16)
TAGS = TokenClassificationConfig("x", ("O", "B-X", "I-X"), 16, "sentence", 0)
SHARPER = {"lora_rank": 3, "lora_on": "all_dense"}


def adapter(folder, start, facts, head, **lora):
    """An adapter of random matrices and a random head."""
    base = load_checkpoint(start)
    encoder = BertEncoder(dataclasses.replace(base.config, **lora))
    restore(encoder, base, fresh=["lora"])
    model = TaskModel(head(encoder, len(facts.labels)))
    random = np.random.default_rng(len(folder.name))
    for weight in model.trainable_variables:
        weight.assign(random.normal(0, 0.4, weight.shape))
    save_model(folder, model, tokenizer(), facts, base)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    start = model_folder(root / "start", num_hidden_layers=1)
    return start, [
        adapter(root / "mood", start, MOOD, bert_classifier, lora_rank=2),
        adapter(root / "sharper", start, MOOD, bert_classifier, **SHARPER),
        adapter(root / "tags", start, TAGS, bert_token_classifier, lora_rank=1),
    ]


def test_each_answers_as_by_itself(folders, tmp_path) -> None:
    start, (first, *others) = folders
    served = served_adapters(first, others)
    assert set(describe_model(served)["beside"]) == {"sharper", "tags"}
    save(served, tmp_path / "version")
    session = tf.compat.v1.ConfigProto()
    loaded = LoadedModel(tmp_path / "version", session, ("serve",))
    assert set(loaded.signatures) == {
        *("serving_default", "tokens", "classify", "sharper", "sharper_tokens"),
        *("tags", "tags_tokens"),
    }
    given = np.array([e.text_a.encode() for e in texts(9, 4)], object)
    found = []
    for folder, name in zip(
        (first, *others), ("serving_default", "sharper", "tags"), strict=True
    ):
        alone = served_model(folder).signatures()["serving_default"]
        expected = alone(text=tf.constant(given))
        answers = loaded.signatures[name].run({"text": given})
        assert set(answers) == set(expected)
        for output, value in expected.items():
            value = value.numpy()
            if value.dtype.kind == "f":
                found.append(value)
                np.testing.assert_allclose(answers[output], value, atol=2e-5)
            else:
                np.testing.assert_array_equal(answers[output], value)
    assert np.abs(found[0] - found[2]).max() > 0.01
    loaded.close()
    # Written and loaded are the base once and what each adapter holds.
    variables = tmp_path / "version" / "variables" / "variables"
    stored = tf.train.load_checkpoint(str(variables))
    written = sum(
        np.prod(shape, dtype=int)
        for name, shape in stored.get_variable_to_shape_map().items()
        if "OBJECT_GRAPH" not in name
    )
    base = load_checkpoint(start)
    whole = sum(array.size for array in base.arrays.values())
    own = 0
    for folder in (first, *others):
        apart = load_checkpoint(folder, merge=False).arrays
        own += sum(a.size for n, a in apart.items() if n not in base.arrays)
        own += sum(a.size for n, a in apart.items() if "pooler" in n)
    pooler = sum(a.size for n, a in base.arrays.items() if "pooler" in n)
    assert written == whole - pooler + own


def test_what_cannot_be_put_beside(folders, tmp_path) -> None:
    start, (first, *_) = folders
    assert "is no adapter (LoRA); export" in error_of(
        served_adapters, first, [adapter_free(tmp_path / "plain", start)]
    )
    assert "so its weights cannot be shared" in error_of(
        served_adapters, tmp_path / "plain", [first]
    )
    other = model_folder(tmp_path / "start", intermediate_size=16)
    for name, base, message in (
        ("other", other, "is an adapter of another base model than"),
        ("a-b", start, "takes letters, digits and _; rename"),
        ("tokens", start, "there is a signature tokens already"),
    ):
        given = tmp_path / name, base, MOOD, bert_classifier
        named = adapter(*given, lora_rank=2)
        assert message in error_of(served_adapters, first, [named])


def adapter_free(folder, start):
    """A model that is trained whole."""
    encoder = BertEncoder.from_checkpoint(start)
    model = TaskModel(bert_classifier(encoder, 2))
    save_model(folder, model, tokenizer(), MOOD)
    return folder
