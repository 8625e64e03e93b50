"""The plain forward against outputs that the libraries themselves computed."""

import pathlib

import keras_hub
import numpy as np
import pytest

from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.checkpoints.folder import FAMILIES
from bert_tf.conversion import views, views_keras
from bert_tf.conversion.numpy_forward import forward
from bert_tf.conversion.sources import open_variables
from bert_tf.errors import UserError
from tests.hugging_face_models import inputs, random_arrays, tiny_config
from tests.model_helpers import fill, numpy
from tests.reference_bert import ReferenceBert
from tests.test_architecture import imports

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def computed(folder, family, batch):
    rows, length = batch["input_ids"].shape
    batch = {
        "position_ids": np.tile(np.arange(length), (rows, 1)),
        "masked_lm_positions": np.tile(np.arange(length), (rows, 1)),
        **batch,
    }
    return forward(open_variables(folder, family), batch)


def close(made, wanted):
    assert made.shape == wanted.shape
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(made, wanted, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("name", "output", "theirs"),
    [
        ("BertModel", "pooled_output", "pooled_output"),
        ("BertForPreTraining", "masked_lm_logits", "prediction_logits"),
        (
            "BertForPreTraining",
            "next_sentence_logits",
            "seq_relationship_logits",
        ),
        ("BertForMaskedLM", "masked_lm_logits", "logits"),
        ("BertLMHeadModel", "masked_lm_logits", "logits"),
        ("BertForNextSentencePrediction", "next_sentence_logits", "logits"),
        ("BertForSequenceClassification", "classifier_logits", "logits"),
        ("BertForTokenClassification", "token_classifier_logits", "logits"),
        ("BertForMultipleChoice", "multiple_choice_logits", "logits"),
        ("BertForQuestionAnswering", "span_logits", None),
    ],
)
def test_hugging_face(name, output, theirs):
    recorded = np.load(GOLDEN / "hugging_face" / "outputs.npz")
    types = 3 if name == "BertForQuestionAnswering" else 2
    made = computed(
        GOLDEN / "hugging_face" / "saved" / name, "hugging_face", inputs(types)
    )

    def wanted(key):
        return recorded[f"saved/{name}/{key}"]

    close(made["sequence_output"], wanted("sequence_output"))
    if theirs is None:
        both = [wanted("start_logits"), wanted("end_logits")]
        close(made[output], np.stack(both, -1))
    elif name == "BertForMultipleChoice":
        close(made[output].T, wanted(theirs))
    else:
        close(made[output], wanted(theirs))


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        (
            "encoder_v1",
            {
                "sequence_output": "sequence_output",
                "pooled_output": "pooled_output",
            },
        ),
        (
            "encoder_v2",
            {
                "sequence_output": "sequence_output",
                "pooled_output": "pooled_output",
            },
        ),
        (
            "pretrainer_v1",
            {
                "sequence_output": "sequence_output",
                "masked_lm_logits": "mlm_logits",
                "next_sentence_logits": "next_sentence",
            },
        ),
        ("pretrainer_items_v2", {"masked_lm_logits": "mlm_logits"}),
        (
            "trainer_v2",
            {
                "masked_lm_logits": "mlm_logits",
                "next_sentence_logits": "next_sentence",
            },
        ),
        ("classifier_v1", {"classifier_logits": "logits"}),
        ("classifier_v2_own_pooler", {"classifier_logits": "logits"}),
        ("token_classifier_v2", {"token_classifier_logits": "logits"}),
        ("span_labeler_v1", {"span_logits": "start_logits"}),
    ],
)
def test_model_garden(name, outputs):
    folder = GOLDEN / "model_garden"
    given = np.load(folder / "inputs.npz")
    made = computed(
        folder / name,
        "model_garden",
        {
            "input_ids": given["input_word_ids"],
            "input_mask": given["input_mask"],
            "segment_ids": given["input_type_ids"],
            "masked_lm_positions": given["masked_lm_positions"],
        },
    )
    recorded = np.load(folder / name / "outputs.npz")
    for ours, theirs in outputs.items():
        values = made[ours]
        if ours == "span_logits":
            close(values[..., 1], recorded["end_logits"])
            values = values[..., 0]
        close(values, recorded[theirs])


def test_keras_hub(tmp_path):
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=24,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=16,
    )
    model = fill(keras_hub.models.BertMaskedLM(backbone))
    model.save_to_preset(str(tmp_path))
    batch = inputs()
    made = computed(tmp_path, "keras_hub", batch)
    theirs = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }
    outputs = backbone(theirs)
    close(made["sequence_output"], numpy(outputs["sequence_output"]))
    close(made["pooled_output"], numpy(outputs["pooled_output"]))
    logits = model.masked_lm_head(
        outputs["sequence_output"], np.tile(np.arange(10), (3, 1))
    )
    close(made["masked_lm_logits"], numpy(logits))


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1"])
@pytest.mark.parametrize("act", ["gelu", "gelu_erf", "relu", "tanh", "linear"])
def test_own_and_google(act, to, tmp_path):
    heads = ("pooler", "masked_lm", "next_sentence")
    config = tiny_config(hidden_act=act, layer_norm_eps=0.01)
    arrays = random_arrays(config, heads)
    save_checkpoint(tmp_path, Checkpoint(config, arrays), to)
    batch = {**inputs(), "masked_lm_positions": np.tile([0, 3, 3, 9], (3, 1))}
    made = computed(tmp_path, to, batch)
    wanted = ReferenceBert(config, arrays)(batch)
    for name, values in made.items():
        np.testing.assert_allclose(values, wanted[name], rtol=0, atol=1e-10)


def test_positions_segments_and_order_of_a_causal_model(tmp_path):
    config = tiny_config(causal=True)
    arrays = random_arrays(config, ("masked_lm",))
    save_checkpoint(tmp_path, Checkpoint(config, arrays))
    batch = inputs()
    made = computed(tmp_path, "bert_tf", batch)["sequence_output"]
    later = {**batch, "input_ids": batch["input_ids"].copy()}
    later["input_ids"][:, 5] += 1
    other = computed(tmp_path, "bert_tf", later)["sequence_output"]
    np.testing.assert_array_equal(made[:, :5], other[:, :5])
    assert np.abs(made[0, 5:] - other[0, 5:]).min() > 0
    moved = {**batch, "position_ids": np.tile(np.arange(2, 12), (3, 1))}
    other = computed(tmp_path, "bert_tf", moved)["sequence_output"]
    assert np.abs(made - other).min() > 0
    swapped = {**batch, "segment_ids": 1 - batch["segment_ids"]}
    other = computed(tmp_path, "bert_tf", swapped)["sequence_output"]
    assert np.abs(made - other).min() > 0


def test_it_shares_no_table_with_what_it_checks():
    room = pathlib.Path(views.__file__).parent
    tables = {
        f"bert_tf.checkpoints.{name}"
        for name in ("layout", "stored", "own", *FAMILIES)
    }
    for name in ("numpy_forward", "views", "views_keras", "sources"):
        for imported in imports(room / f"{name}.py"):
            module, _, thing = imported.rpartition(".")
            assert not {module, imported} & tables
            assert "shapes" not in thing


def test_names_that_are_not_model_gardens_own(tmp_path):
    arrays = {"mine/kernel": np.zeros((2, 2)), "yours/mine/kernel": 0}
    made = views_keras.ModelGardenVariables({}, arrays, "there/ckpt")
    assert made.parts == ()
    with pytest.raises(UserError, match="there/ckpt: has 0 variables called"):
        made.table("word")
