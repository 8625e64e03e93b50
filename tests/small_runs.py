"""Models and settings that keep programs of pages and examples short."""

import pathlib

import pytest

import bert_tf
from bert_tf.finetuning import training
from bert_tf.text.token_table import SPECIAL_TOKENS
from tests.model_helpers import fill

_CHARACTERS = [chr(code) for code in range(ord("!"), ord("~") + 1)]
TOKENS = [
    *SPECIAL_TOKENS,
    *(each for each in _CHARACTERS if not each.isupper()),
    *(f"##{each}" for each in _CHARACTERS if each.islower()),
]


def save_small_model(folder: pathlib.Path, layers: int = 2) -> pathlib.Path:
    """Saves a pre-trained model with a token for each character."""
    config = bert_tf.BertConfig.from_size(f"{layers}/16/2", len(TOKENS))
    arrays = fill(bert_tf.BertPretrainer(config)).to_arrays()
    vocabulary = bert_tf.Vocabulary(TOKENS)
    bert_tf.save_checkpoint(
        folder, bert_tf.Checkpoint(config, arrays, vocabulary, lower_case=True)
    )
    return folder


def shorten_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tunes for two steps, whatever data and settings say."""
    monkeypatch.setattr(training, "num_steps", lambda *_: 2)
