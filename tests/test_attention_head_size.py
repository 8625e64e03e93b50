"""Heads whose widths do not add up to the model's, as pruning leaves them."""

import numpy as np
import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.models import bert_classifier, restore
from tests.model_helpers import (
    assert_computes,
    encoder_inputs,
    fill,
    gradients_in_every_form,
    numpy,
    small_config,
)
from tests.reference_bert import ReferenceBert
from tests.test_encoder import assert_same_outputs
from tests.user_errors import error_of

# 24 is no multiple of 5, and 2 * 8 and 5 * 7 lie below and above it.
SHAPES = [(2, 8), (5, 7)]


def config_of(heads: int, size: int, **changes) -> BertConfig:
    return small_config(
        num_attention_heads=heads, attention_head_size=size, **changes
    )


@pytest.mark.parametrize(("heads", "size"), SHAPES)
def test_every_output_is_the_reference(heads, size) -> None:
    config = config_of(heads, size)
    encoder = fill(BertEncoder(config), scale=0.15)
    arrays = encoder.to_arrays()
    name = "bert/encoder/layer_1/attention"
    width = heads * size
    assert config.attention_size == width
    assert arrays[f"{name}/self/query/kernel"].shape == (24, width)
    assert arrays[f"{name}/output/dense/kernel"].shape == (width, 24)
    inputs = encoder_inputs(config)
    outputs = encoder(
        inputs, return_all_layers=True, return_attention_probs=True
    )
    reference = ReferenceBert(config, arrays)(inputs)
    assert_same_outputs(outputs, reference)
    pooled = encoder(inputs, pooled_only=True)["pooled_output"]
    np.testing.assert_allclose(
        numpy(pooled), reference["pooled_output"], atol=1e-5
    )


def test_gradients_are_the_same_in_every_form() -> None:
    config = config_of(2, 8, lora_rank=3, lora_on="all_dense")
    shapes = {gradient.shape for gradient in gradients_in_every_form(config)}
    assert {(24, 3), (3, 16), (16, 3)} <= shapes


def test_the_usual_width_is_the_same_model() -> None:
    usual, named = small_config(), config_of(3, 8)
    encoder = fill(BertEncoder(usual))
    again = BertEncoder(named)
    again.set_weights(encoder.get_weights())
    inputs = encoder_inputs(usual)
    for name, value in encoder(inputs).items():
        np.testing.assert_array_equal(numpy(again(inputs)[name]), numpy(value))
    # Files of the models before stay what they were.
    assert "attention_head_size" not in usual.to_dict()
    assert named.to_dict() == usual.to_dict() | {"attention_head_size": 8}


def test_folders(tmp_path) -> None:
    config = config_of(5, 7)
    encoder = fill(BertEncoder(config), scale=0.15)
    checkpoint = Checkpoint(config, encoder.to_arrays(), source="a model")
    save_checkpoint(tmp_path / "ours", checkpoint)
    assert load_checkpoint(tmp_path / "ours").config == config
    inputs = encoder_inputs(config)
    wanted = ReferenceBert(config, encoder.to_arrays())(inputs)
    names = ("sequence_output", "pooled_output")
    wanted = {name: wanted[name] for name in names}
    assert_computes(tmp_path / "ours", inputs, wanted)
    for layout in ("hugging_face", "google_tf1"):
        line = error_of(save_checkpoint, tmp_path / layout, checkpoint, layout)
        assert line == (
            f"a model: {layout} has no place for 5 attention heads of 7 in a "
            "model of 24 (attention_head_size); write bert_tf."
        )
        assert not (tmp_path / layout).exists()
    # As wide as the model, they can be told.
    usual = Checkpoint(config_of(3, 8), BertEncoder(small_config()).to_arrays())
    save_checkpoint(tmp_path / "theirs", usual, "hugging_face")
    assert load_checkpoint(tmp_path / "theirs").config == small_config(
        layer_norm_eps=1e-12
    )


def test_another_width_is_another_model(tmp_path) -> None:
    encoder = BertEncoder(config_of(2, 8))
    checkpoint = Checkpoint(encoder.config, encoder.to_arrays())
    usual = bert_classifier(BertEncoder(config_of(4, 4)), 2)
    line = error_of(restore, usual, checkpoint)
    assert "num_attention_heads is 2, and 4 in the model" in line
    narrow = bert_classifier(BertEncoder(config_of(2, 7)), 2)
    line = error_of(restore, narrow, checkpoint)
    assert "query/kernel is (24, 16) where the model has (24, 14)" in line


def test_impossible_widths() -> None:
    line = error_of(config_of, 2, -1)
    assert line == "attention_head_size is -1; it takes 0 or more."
    line = error_of(small_config, num_attention_heads=5)
    assert (
        line
        == "hidden_size is 24; it takes a multiple of num_attention_heads 5."
    )
