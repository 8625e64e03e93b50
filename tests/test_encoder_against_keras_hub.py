"""The encoder against KerasHub's, with the same weights."""

import keras
import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy

from benchmarks.encoder import copy_to_hub, hub_backbone
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder


@pytest.mark.parametrize("size", [(3, 64, 4, 96), (2, 48, 2, 192)])
def test_outputs_are_those_of_keras_hub(size) -> None:
    layers, hidden, heads, intermediate = size
    config = BertConfig(
        vocab_size=97,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=32,
    )
    encoder = fill(BertEncoder(config), scale=0.1)
    hub = hub_backbone(config, "float32")
    copy_to_hub(encoder, hub)
    assert hub.count_params() == encoder.count_params()
    inputs = encoder_inputs(config, rows=4, length=25)
    ours = encoder(inputs)
    theirs = hub(
        {
            "token_ids": inputs["input_ids"],
            "padding_mask": inputs["input_mask"],
            "segment_ids": inputs["segment_ids"],
        }
    )
    real = inputs["input_mask"].astype(bool)
    for name in ("sequence_output", "pooled_output"):
        left, right = numpy(ours[name]), numpy(theirs[name])
        if name == "sequence_output":
            left, right = left[real], right[real]
        assert np.abs(right).max() > 0.5
        np.testing.assert_allclose(left, right, atol=1e-5, err_msg=name)
    assert keras.config.floatx() == "float32"
