import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.errors import UserError
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.inference.fill_mask import fill_mask
from bert_tf.text.token_table import SPECIAL_TOKENS
from tests.model_helpers import small_config

TOKENS = [*SPECIAL_TOKENS, "a", "b", "c", "##c"]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(5)
    sizes = {"vocab_size": len(TOKENS), "max_position_embeddings": 8}
    config = small_config(num_hidden_layers=1, initializer_range=0.5, **sizes)
    tokenizer = bert_tf.BertTokenizer(TOKENS)
    return PretrainedModel(bert_tf.BertPretrainer(config), tokenizer)


def test_probabilities_are_those_of_the_logits(model):
    found = fill_mask(model, "a [MASK] b [MASK].", top_k=len(TOKENS))
    assert len(found) == 2
    # [CLS] a [MASK] b [MASK] [UNK] [SEP]
    ids = np.array([[2, 5, 4, 6, 4, 1, 3]], np.int32)
    logits = model.model(
        {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "masked_lm_positions": np.array([[2, 4]], np.int32),
        }
    )["masked_lm_logits"]
    expected = keras.ops.softmax(logits).numpy()[0]
    for candidates, row in zip(found, expected, strict=True):
        probabilities = [c.probability for c in candidates]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1)
        for candidate in candidates:
            place = TOKENS.index(candidate.token)
            assert candidate.probability == pytest.approx(row[place], abs=1e-6)


def test_the_rest_of_the_text_matters(model):
    first = fill_mask(model, "a [MASK]", 1)[0][0]
    second = fill_mask(model, "b [MASK]", 1)[0][0]
    assert first.probability != second.probability


def test_a_mask_touching_a_word_is_still_a_mask(model):
    assert len(fill_mask(model, "a[MASK]b[MASK]", 2)) == 2


@pytest.mark.parametrize(
    ("text", "top_k", "message"),
    [
        ("no gap", 5, "`text` holds no \\[MASK\\]"),
        ("[MASK]" + " a" * 9, 5, "10 tokens .* takes 6"),
        (["[MASK]"], 5, r"`text` is \['\[MASK\]'\]; give a string"),
        ("[MASK]\ud800", 5, "`text` is .*half of a surrogate pair"),
        ("[MASK]", 0, "`top_k`=0: give a whole number from 1 to 9"),
        ("[MASK]", 10, "`top_k`=10: give a whole number from 1 to 9"),
    ],
)
def test_bad_input(model, text, top_k, message):
    with pytest.raises(UserError, match=message):
        fill_mask(model, text, top_k)


def save(folder, model, tokens=TOKENS, without=()) -> None:
    """Writes a model folder, some of whose arrays stay out."""
    arrays = model.model.to_arrays().items()
    arrays = {n: a for n, a in arrays if not n.startswith(tuple(without))}
    words = bert_tf.Vocabulary(tokens)
    save_checkpoint(folder, Checkpoint(model.config, arrays, words, True))


def test_a_model_with_the_masked_lm_head_alone(model, tmp_path, capfd):
    heads = ("bert/pooler", "cls/seq_relationship")
    save(tmp_path, model, without=heads)
    assert fill_mask(tmp_path, "a [MASK]") == fill_mask(model, "a [MASK]")
    assert capfd.readouterr().err == ""


def test_a_model_without_the_head(model, tmp_path):
    save(tmp_path, model, without=("cls/",))
    with pytest.raises(UserError, match="has no masked-LM head"):
        bert_tf.fill_mask(tmp_path, "a [MASK]")


def test_rows_to_spare_are_no_tokens(model, tmp_path):
    save(tmp_path, model, TOKENS[:7])
    ((*candidates,),) = bert_tf.fill_mask(tmp_path, "a [MASK]", top_k=7)
    assert sorted(c.token for c in candidates) == sorted(TOKENS[:7])
    assert sum(c.probability for c in candidates) == pytest.approx(1)


def test_a_vocabulary_larger_than_the_model(model):
    tokenizer = bert_tf.BertTokenizer([*TOKENS, "d"])
    with pytest.raises(UserError, match="has 10 tokens, but vocab_size is 9"):
        PretrainedModel(model.model, tokenizer)
