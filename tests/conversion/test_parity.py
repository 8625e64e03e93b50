"""Recorded outputs of other libraries, from our Keras models and from the
plain NumPy forward that conversions are held against."""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.checkpoints.recognition import FOUND_IN
from bert_tf.conversion import sources
from bert_tf.conversion.model_garden_variables import ModelGardenVariables
from bert_tf.conversion.numpy_forward import forward
from bert_tf.errors import UserError
from tests.hugging_face_models import (
    CLASSES,
    digest,
    inputs,
    random_arrays,
    tiny_checkpoint,
    tiny_config,
)
from tests.model_helpers import assert_both_compute
from tests.reference_bert import ReferenceBert
from tests.test_architecture import imports

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
RECORDED = dict(np.load(GOLDEN / "hugging_face" / "outputs.npz"))
WRITTEN = json.loads((GOLDEN / "hugging_face" / "written.json").read_text())
# Class of transformers -> the heads that its folder holds.
SAVED_HEADS = {name: heads for name, (heads, _) in CLASSES.items()} | {
    "BertLMHeadModel": CLASSES["BertForMaskedLM"][0]
}
OURS = {
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
    "mlm_logits": "masked_lm_logits",
    "next_sentence": "next_sentence_logits",
}
MODEL_GARDEN_HEADS = {
    "encoder_v1": ("pooler",),
    "encoder_v2": ("pooler",),
    "pretrainer_v1": ("pooler", "masked_lm", "next_sentence"),
    "pretrainer_items_v2": ("pooler", "masked_lm"),
    "trainer_v2": ("pooler", "masked_lm", "next_sentence"),
    "classifier_v1": ("pooler", "classifier"),
    "classifier_v2_own_pooler": ("pooler", "classifier"),
    "token_classifier_v2": ("pooler", "token_classifier"),
    "span_labeler_v1": ("pooler", "span"),
}


def by_our_names(recorded, heads):
    """Another library's outputs under the names that we give them."""
    ours = {}
    for name, value in recorded.items():
        if name == "start_logits":
            ends = recorded["end_logits"]
            ours["span_logits"] = np.stack([value, ends], -1)
        elif name == "logits":
            turned = heads[-1] == "multiple_choice"
            ours[f"{heads[-1]}_logits"] = value.T if turned else value
        elif name != "end_logits":
            ours[OURS.get(name, name)] = value
    return ours


def recorded_by_transformers(place, heads):
    """Every output that transformers computed from a folder."""
    return by_our_names(
        {
            key.removeprefix(f"{place}/"): value
            for key, value in RECORDED.items()
            if key.startswith(f"{place}/")
        },
        heads,
    )


@pytest.mark.parametrize("name", SAVED_HEADS)
def test_what_transformers_saved(name):
    folder = GOLDEN / "hugging_face" / "saved" / name
    checkpoint = load_checkpoint(folder)
    assert checkpoint.heads == SAVED_HEADS[name]
    wanted = recorded_by_transformers(f"saved/{name}", SAVED_HEADS[name])
    made = assert_both_compute(
        folder, inputs(checkpoint.config.type_vocab_size), wanted
    )
    assert made == set(wanted)


@pytest.mark.parametrize("name", CLASSES)
def test_what_transformers_loads(name, tmp_path):
    checkpoint = tiny_checkpoint(name)
    save_checkpoint(tmp_path, checkpoint, "hugging_face")
    # So transformers computed the recorded outputs from these very files.
    assert digest(tmp_path) == WRITTEN["digests"][name]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [name]
    wanted = recorded_by_transformers(f"written/{name}", CLASSES[name][0])
    made = assert_both_compute(
        tmp_path, inputs(checkpoint.config.type_vocab_size), wanted
    )
    assert made == set(wanted)


@pytest.mark.parametrize("name", MODEL_GARDEN_HEADS)
def test_what_model_garden_saved(name):
    folder = GOLDEN / "model_garden" / name
    heads = MODEL_GARDEN_HEADS[name]
    checkpoint = load_checkpoint(folder)
    assert checkpoint.heads == heads
    assert checkpoint.config == tiny_config(vocab_size=19)
    given = np.load(GOLDEN / "model_garden" / "inputs.npz")
    batch = {
        "input_ids": given["input_word_ids"],
        "input_mask": given["input_mask"],
        "segment_ids": given["input_type_ids"],
        "masked_lm_positions": given["masked_lm_positions"],
    }
    wanted = by_our_names(dict(np.load(folder / "outputs.npz")), heads)
    if name == "pretrainer_items_v2":
        # checkpoint_items leave its output layer out.
        del wanted["next_sentence_logits"]
    assert_both_compute(folder, batch, wanted)


@pytest.mark.parametrize(
    ("act", "to", "causal"),
    [
        ("gelu", "bert_tf", False),
        ("gelu_erf", "bert_tf", True),
        ("relu", "bert_tf", False),
        ("tanh", "bert_tf", False),
        ("linear", "bert_tf", False),
        ("gelu_erf", "google_tf1", False),
    ],
)
def test_ours_and_googles(act, to, causal, tmp_path):
    heads = ("pooler", "masked_lm", "next_sentence")
    config = tiny_config(hidden_act=act, layer_norm_eps=0.01, causal=causal)
    arrays = random_arrays(config, heads)
    save_checkpoint(tmp_path, Checkpoint(config, arrays), to)
    batch = {
        **inputs(),
        "masked_lm_positions": np.tile([0, 3, 3, 9], (3, 1)),
        "position_ids": np.tile(np.arange(10), (3, 1)),
    }
    made = forward(sources.open_variables(tmp_path, to), batch)
    wanted = ReferenceBert(config, arrays)(batch)
    assert len(made) == 4
    for name, values in made.items():
        np.testing.assert_allclose(values, wanted[name], rtol=0, atol=1e-10)


def test_positions_segments_and_order_of_a_causal_model(tmp_path):
    config = tiny_config(causal=True)
    arrays = random_arrays(config, ("masked_lm",))
    save_checkpoint(tmp_path, Checkpoint(config, arrays))
    variables = sources.open_variables(tmp_path, "bert_tf")
    places = np.tile(np.arange(10), (3, 1))
    batch = {**inputs(), "position_ids": places, "masked_lm_positions": places}

    def changes(**changed):
        made, other = (
            forward(variables, given)["sequence_output"]
            for given in (batch, batch | changed)
        )
        return np.abs(made - other)

    ids = batch["input_ids"].copy()
    ids[:, 5] += 1
    later = changes(input_ids=ids)
    assert later[:, :5].max() == 0 < later[0, 5:].min()
    assert changes(position_ids=places + 2).min() > 0
    assert changes(segment_ids=1 - batch["segment_ids"]).min() > 0


def test_the_forward_shares_no_table_with_what_it_checks():
    room = pathlib.Path(sources.__file__).parent
    tables = {
        f"bert_tf.checkpoints.{name}"
        for name in ("layout", "stored", "own", *FOUND_IN)
    }
    for name in (
        "numpy_forward",
        "sources",
        "hugging_face_variables",
        "model_garden_variables",
    ):
        for imported in imports(room / f"{name}.py"):
            module, _, thing = imported.rpartition(".")
            assert not {module, imported} & tables
            assert "shapes" not in thing


def test_names_that_are_not_model_gardens_own():
    arrays = {"mine/kernel": np.zeros((2, 2)), "yours/mine/kernel": 0}
    made = ModelGardenVariables({}, arrays, "there/ckpt")
    assert made.heads == {}
    with pytest.raises(UserError, match="there/ckpt: has 0 variables called"):
        made.table("word")
