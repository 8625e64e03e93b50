"""Presets of KerasHub's relatives of BERT, against KerasHub's own outputs."""

import functools

import keras_hub
import numpy as np
import pytest
from model_helpers import assert_computes, encoder_inputs, numpy

import bert_tf
from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from tests.checkpoints.damage import assert_refused, changed_json
from tests.contracts.architecture_cases import CASES
from tests.relatives import CLOSE, assert_same, random_weights
from tests.subword_models import write_model
from tests.user_errors import error_of

SIZES = {
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 12,
    "dropout": 0.25,
}
# By the beginning of KerasHub's names: the architecture, and other arguments.
KINDS = {
    "DistilBert": ("distilbert", {}),
    "Electra": ("electra", {"embedding_dim": 6}),
    "Roberta": ("roberta", {}),
    "XLMRoberta": ("xlm-roberta", {}),
    "Albert": (
        "albert",
        {
            "embedding_dim": 6,
            "num_layers": 4,
            "num_groups": 2,
            "num_inner_repetitions": 2,
        },
    ),
}
TASKS = {"MaskedLM": "masked_lm", "TextClassifier": "classifier"}


def size_of(kind):
    vocabulary = "vocab_size" if kind == "Electra" else "vocabulary_size"
    architecture, more = KINDS[kind]
    tokens = len(CASES[architecture].tokenizer.vocabulary.tokens)
    return {vocabulary: tokens, **SIZES, **more}


@functools.cache
def made(kind, **changes):
    """A backbone with random weights, which a task may draw anew."""
    backbone = getattr(keras_hub.models, f"{kind}Backbone")
    backbone = backbone(**size_of(kind) | changes)
    random_weights(backbone)
    return backbone


def computed(model, inputs, **more):
    """What a model of KerasHub computes, by name."""
    given = {
        "token_ids": inputs["input_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["segment_ids"],
        **more,
    }
    found = model({name: given[name] for name in model.input})
    return found if isinstance(found, dict) else {"sequence_output": found}


@pytest.mark.parametrize("kind", KINDS)
def test_a_backbone(kind, tmp_path):
    architecture, _ = KINDS[kind]
    backbone = made(kind)
    preset, theirs = tmp_path / "preset", tmp_path / "theirs"
    backbone.save_to_preset(str(preset))
    encoder = bert_tf.load_encoder(preset)
    config = encoder.config
    assert config.model_type == architecture
    assert config.longest_input == SIZES["max_sequence_length"]
    inputs = encoder_inputs(config)
    real = inputs["input_mask"] == 1
    assert not real.all()
    np.testing.assert_allclose(
        numpy(encoder(inputs)["sequence_output"])[real],
        numpy(computed(backbone, inputs)["sequence_output"])[real],
        **CLOSE,
    )
    checkpoint = load_checkpoint(preset)
    save_checkpoint(theirs, checkpoint, "hugging_face")
    assert_same(checkpoint, load_checkpoint(theirs))


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        *(
            (k, task)
            for k in ("DistilBert", "Roberta", "Albert")
            for task in TASKS
        ),
        ("XLMRoberta", "TextClassifier"),
    ],
)
def test_a_task(kind, task, tmp_path):
    more = {"num_classes": 3} if task == "TextClassifier" else {}
    model = getattr(keras_hub.models, f"{kind}{task}")(
        made(kind), preprocessor=None, **more
    )
    random_weights(model)
    model.save_to_preset(str(tmp_path / "preset"))
    checkpoint = load_checkpoint(tmp_path / "preset")
    inputs = encoder_inputs(checkpoint.config)
    # Outputs at padding differ.
    inputs["input_mask"][:] = 1
    places = np.tile(np.arange(10, dtype=np.int32), (3, 1))
    expected = {
        name: numpy(value)
        for name, value in computed(model.backbone, inputs).items()
    }
    (logits,) = computed(model, inputs, mask_positions=places).values()
    expected[f"{TASKS[task]}_logits"] = numpy(logits)
    outputs = assert_computes(tmp_path / "preset", inputs, expected)
    assert f"{TASKS[task]}_logits" in outputs


def test_a_text_embedder(tmp_path):
    data = CASES["xlm-roberta"].tokenizer
    embedder = keras_hub.models.XLMRobertaTextEmbedder(
        made("XLMRoberta"), pooling_mode="cls", normalize=True
    )
    embedder.save_to_preset(str(tmp_path))
    data.save(tmp_path)
    ours = bert_tf.embed(tmp_path, ["the tea"], pooling="cls", normalize=True)
    ids = data.tokenizer().tokenize(["the tea"]).to_tensor()
    row = np.pad(ids, [(0, 0), (1, 1)], constant_values=((0, 0), (0, 2)))
    inputs = {"token_ids": row, "padding_mask": np.ones_like(row)}
    np.testing.assert_allclose(ours, embedder(inputs), **CLOSE)
    # It is converted with its tokenizer, and proved.
    file, theirs = tmp_path / data.FILES[0], tmp_path / "theirs"
    convert_checkpoint(tmp_path, "hugging_face", theirs, vocab_file=file)
    assert_same(load_checkpoint(tmp_path), load_checkpoint(theirs))


def test_the_pooler_of_an_electra_is_left_out(tmp_path):
    """It computes otherwise."""
    made("Electra", embedding_dim=8).save_to_preset(str(tmp_path))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.config.embedding_size == 8
    assert checkpoint.heads == ()
    assert all("model/layers/dense" in n for n in checkpoint.left_out)


def test_an_albert_with_wide_embeddings_is_refused(tmp_path):
    made("Albert", embedding_dim=8).save_to_preset(str(tmp_path))
    line = error_of(load_checkpoint, tmp_path)
    assert line.startswith(f"{tmp_path}: ")
    assert "hold model/layers/dense/vars/0, but" in line
    assert "as wide as the layers, 8," in line


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "Roberta",
            {"max_sequence_length": 14},
            r"position_embedding/vars/0 is \[14, 8\] .* says \[16, 8\]",
        ),
        ("XLMRoberta", {"num_segments": 2}, "unknown: num_segments"),
        ("Albert", {"num_groups": 1}, "unexpected: .*transformer_encoder_2"),
        ("Albert", {"num_groups": 5}, "num_hidden_groups is 5"),
    ],
)
def test_another_configuration(kind, changes, message, tmp_path):
    made(kind).save_to_preset(str(tmp_path / "preset"))

    def damage(folder):
        path = folder / "config.json"
        config = bert_tf.recipe.read_json_object(path)["config"]
        changed_json(path, config={**config, **changes})

    assert_refused(tmp_path / "preset", tmp_path / "damaged", damage, message)


def test_wide_embeddings_are_not_written_for_transformers(tmp_path):
    """Its AlbertModel would add a projection of random weights."""
    folder = write_model(tmp_path / "a", "albert", "classes", embedding_size=16)
    line = error_of(
        convert_checkpoint, folder, "hugging_face", tmp_path / "theirs"
    )
    assert "embedding_size is hidden_size, 16," in line
    assert not (tmp_path / "theirs").exists()
