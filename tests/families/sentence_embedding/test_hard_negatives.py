"""Hard negatives against `mine_hard_negatives` of sentence-transformers."""

import pathlib

import numpy as np
import pytest

from bert_tf.families.sentence_embedding.hard_negatives import mine
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe

GOLDEN = pathlib.Path("tests/golden/sentence_embedding/hard_negatives.npz")
SETTINGS = {
    "plain": {},
    "skipping": {"range_min": 2},
    "margin": {"relative_margin": 0.3},
    "all": {"range_min": 1, "relative_margin": 0.2, "max_score": 0.4},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_they_are_those_of_sentence_transformers(name):
    given = dict(np.load(GOLDEN))
    settings = {f"hard_negatives_{k}": v for k, v in SETTINGS[name].items()}
    recipe = EmbeddingRecipe(num_hard_negatives=3, **settings)
    texts = np.stack([given["anchors"], given["positives"]], axis=1)
    _, numbers = np.unique(texts, return_inverse=True)
    numbers = numbers.reshape(texts.shape)
    found = mine(given["vectors"], numbers, recipe)
    assert found.shape == (60, 3)
    rows = {
        (*texts[row], *given["positives"][negatives])
        for row, negatives in enumerate(found)
        if (negatives >= 0).all()
    }
    assert rows == set(map(tuple, given[name]))
    assert len(rows) > 50
