import json

import pytest

from bert_tf.config import SIZES, BertConfig
from bert_tf.errors import UserError

# bert_config.json of the released uncased base model.
RELEASED_BASE = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def test_base_is_the_released_base(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(RELEASED_BASE))
    assert BertConfig.from_json(path) == BertConfig.from_size("base", 30522)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size):
    config = BertConfig.from_size(size, 100)
    assert config.hidden_size == 64 * config.num_attention_heads
    assert config.intermediate_size == 4 * config.hidden_size
    assert (config.num_hidden_layers, config.hidden_size) == SIZES[size]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("hidden_size=100", "not a multiple of num_attention_heads 12"),
        ("vocab_size=0", "vocab_size is 0; it must be at least 1"),
        ("num_hidden_layers=1000000000", "must be at most 10000"),
        ("layer_norm_eps=inf", "layer_norm_eps is inf; it must be a number"),
        ("initializer_range=nan", "must be a number"),
        ("hidden_dropout_prob=1", "must lie in \\[0, 1\\)"),
        ("layer_norm_eps=0", "must be above 0"),
        ("hidden_act=swish", "one of gelu, gelu_erf, relu, tanh, linear"),
        ("masked_lm_act=swish", "masked_lm_act is 'swish'; it takes one of"),
        ("masked_lm_layer_norm_eps=-1", "must be above 0, or 0 to take"),
    ],
)
def test_impossible_values(change, message):
    with pytest.raises(UserError, match=message):
        BertConfig.from_size("base", 30522).override([change])


def test_the_masked_lm_head_may_have_its_own_forms():
    config = BertConfig.from_size("tiny", 100)
    assert config.of_masked_lm_head() == config
    own = config.override(
        ["masked_lm_act=gelu_erf", "masked_lm_layer_norm_eps=1e-5"]
    )
    head = own.of_masked_lm_head()
    assert (head.hidden_act, head.layer_norm_eps) == ("gelu_erf", 1e-5)
    assert (own.hidden_act, own.layer_norm_eps) == ("gelu", 1e-12)


def test_unknown_names():
    with pytest.raises(UserError, match="`size`=huge: unknown size"):
        BertConfig.from_size("huge", 100)
    with pytest.raises(UserError, match="Did you mean hidden_size"):
        BertConfig.from_dict({**RELEASED_BASE, "hiden_size": 1}, "x")


def test_an_error_names_the_file(tmp_path):
    path = tmp_path / "bert_config.json"
    for text, message in (
        ('{"vocab_size": 9, "hidden_act": "swish"}', "hidden_act is 'swish'"),
        ('{"vocab_size": 9, "layer_norm_eps": Infinity}', "must be a number"),
        (
            '{"vocab_size": 9, "hidden_dropout_prob": 1' + "0" * 400 + "}",
            "hidden_dropout_prob is too large a number",
        ),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            BertConfig.from_json(path)
        assert str(caught.value).startswith(str(path))
