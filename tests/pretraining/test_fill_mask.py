import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.pretraining.fill_mask import MaskFiller

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##c"]


@pytest.fixture(scope="module")
def filler():
    keras.utils.set_random_seed(5)
    config = bert_tf.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        initializer_range=0.5,
    )
    model = bert_tf.BertPretrainer(config)
    return MaskFiller(model, bert_tf.BertTokenizer(TOKENS))


def test_probabilities_are_those_of_the_logits(filler):
    found = bert_tf.fill_mask(filler, "a [MASK] b [MASK].", top_k=len(TOKENS))
    assert len(found) == 2
    # [CLS] a [MASK] b [MASK] [UNK] [SEP]
    ids = np.array([[2, 5, 4, 6, 4, 1, 3]], np.int32)
    logits = filler.model(
        {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "masked_lm_positions": np.array([[2, 4]], np.int32),
        }
    )["masked_lm_logits"]
    wanted = keras.ops.softmax(logits).numpy()[0]
    for candidates, row in zip(found, wanted, strict=True):
        probabilities = [c.probability for c in candidates]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1)
        for candidate in candidates:
            place = TOKENS.index(candidate.token)
            assert candidate.probability == pytest.approx(row[place], abs=1e-6)


def test_the_rest_of_the_text_matters(filler):
    first = filler("a [MASK]", 1)[0][0]
    second = filler("b [MASK]", 1)[0][0]
    assert first.probability != second.probability


def test_a_mask_touching_a_word_is_still_a_mask(filler):
    assert len(filler("a[MASK]b[MASK]", 2)) == 2


@pytest.mark.parametrize(
    ("text", "top_k", "message"),
    [
        ("no gap", 5, "'no gap': holds no \\[MASK\\]"),
        ("[MASK]" + " a" * 9, 5, "12 tokens .* takes 8"),
        ("[MASK]", 0, "top_k=0: give 1 to 9"),
        ("[MASK]", 10, "top_k=10: give 1 to 9"),
    ],
)
def test_bad_input(filler, text, top_k, message):
    with pytest.raises(UserError, match=message):
        filler(text, top_k)
