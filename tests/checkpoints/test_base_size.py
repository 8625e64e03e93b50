"""Conversions of a base-size pre-trainer."""

import numpy as np
import pytest

from bert_tf.checkpoints import (
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from tests.hugging_face_models import random_arrays

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("to", ["hugging_face", "google_tf1"])
def test_round_trip_is_exact(to, tmp_path):
    config = BertConfig.from_size("base", 30522)
    heads = (POOLER, MASKED_LM, NEXT_SENTENCE)
    arrays = random_arrays(config, heads)
    save_checkpoint(tmp_path / "ours", Checkpoint(config, arrays))
    save_checkpoint(tmp_path / to, load_checkpoint(tmp_path / "ours"), to)
    save_checkpoint(tmp_path / "back", load_checkpoint(tmp_path / to))
    back = load_checkpoint(tmp_path / "back")
    assert back.config == config
    assert back.heads == heads
    assert back.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(back.arrays[name], array), name
