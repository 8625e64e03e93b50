import json

import pytest

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from tests.user_errors import error_of

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


@pytest.mark.parametrize(
    ("size", "message"),
    [
        *(
            (size, "give three whole numbers, layers/hidden/heads")
            for size in ("3/768", "3/768/12/1", "3/768/x", "-3/768/12", "/")
        ),
        ("3/768/1.5", "give three whole numbers"),
        (f"3/768/{'9' * 5000}", "give three whole numbers"),
        ("3/768/\u0661", "give three whole numbers"),
        ("0/768/12", "num_hidden_layers is 0; it takes 1 to 10000"),
        ("3/0/12", "hidden_size is 0;"),
        ("3/768/0", "num_attention_heads is 0;"),
        ("3/100/12", "hidden_size is 100; it takes a multiple of num_att"),
        ("99999/768/12", "num_hidden_layers is 99999; it takes 1 to 10000"),
        ("huge", "unknown size; it takes one of tiny, mini,"),
        ("", "unknown size"),
    ],
)
def test_impossible_sizes(size, message):
    line = error_of(BertConfig.from_size, size, 100)
    assert line.startswith(f"`size`={size}: {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("hidden_size=100", "a multiple of num_attention_heads 12"),
        ("vocab_size=0", "vocab_size is 0; it takes 1 or more"),
        ("num_hidden_layers=1000000000", "it takes 1 to 10000"),
        ("layer_norm_eps=inf", "layer_norm_eps is inf; it takes more than 0"),
        ("initializer_range=nan", "is nan; it takes more than 0"),
        ("hidden_dropout_prob=1", "takes 0 or more, below 1"),
        ("layer_norm_eps=0", "it takes more than 0"),
        ("hidden_act=swish", "one of gelu, gelu_erf, relu, tanh, linear"),
        ("masked_lm_act=swish", "masked_lm_act is 'swish'; it takes one of"),
        ("masked_lm_layer_norm_eps=-1", "it takes 0 or more"),
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
    with pytest.raises(UserError, match="Did you mean hidden_size"):
        BertConfig.from_dict({**RELEASED_BASE, "hiden_size": 1}, "x")


def test_an_error_names_the_file(tmp_path):
    path = tmp_path / "bert_config.json"
    for text, message in (
        ('{"vocab_size": 9, "hidden_act": "swish"}', "hidden_act is 'swish'"),
        ('{"vocab_size": 9, "layer_norm_eps": Infinity}', "takes more than 0"),
        (
            '{"vocab_size": 9, "hidden_dropout_prob": 1' + "0" * 400 + "}",
            "hidden_dropout_prob is too large a number",
        ),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            BertConfig.from_json(path)
        assert str(caught.value).startswith(str(path))
