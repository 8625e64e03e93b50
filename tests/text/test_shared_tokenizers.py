"""Equal data share a tokenizer of TensorFlow operations."""

import pytest

from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPiece
from tests.relatives import BYTES, UNIGRAM

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "é"]
FIRST = WordPiece(Vocabulary(TOKENS), TokenizerConfig.of(True))


@pytest.mark.parametrize("data", [FIRST, UNIGRAM, BYTES])
def test_equal_data_share_one(data):
    again = type(data).from_dict(data.to_dict())
    assert again is not data
    assert again.tokenizer() is data.tokenizer()
    assert again.tokenizer(False) is not data.tokenizer()


@pytest.mark.parametrize(
    "other",
    [
        WordPiece(Vocabulary(TOKENS), TokenizerConfig.of(True, False)),
        WordPiece(Vocabulary(TOKENS), TokenizerConfig.of(False)),
        WordPiece(Vocabulary([*TOKENS[:-1], "e"]), TokenizerConfig.of(True)),
        # The same tokens, which another vocab.txt stores.
        WordPiece(Vocabulary([*TOKENS[:-1], "é "]), TokenizerConfig.of(True)),
    ],
)
def test_other_data_have_another(other):
    assert other.tokenizer() is not FIRST.tokenizer()
    assert other.tokenizer().data.to_dict() == other.to_dict()
