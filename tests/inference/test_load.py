"""A loaded model in Python: order, lists, refusals, folders, vectors."""

import re

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.pretrained.settings import DEFAULTS
from bert_tf.inference.load import LoadedModel, load
from bert_tf.inference.saving import save
from bert_tf.inference.vectors import open_model
from tests.families.pretrained.extraction_models import save_model, some_texts
from tests.inference import serving_models as models
from tests.inference.model_folders import make
from tests.user_errors import error_of

# Of each kind, columns of rows for texts.
COLUMNS = {
    "classes": lambda texts: {"text": texts, "text_b": texts[::-1]},
    "regression": lambda texts: {"text": texts},
    "several_labels": lambda texts: {"text": texts},
    "span": lambda t: {"question": ["is the ferry"] * len(t), "context": t},
    "tags": lambda texts: {"text": texts},
    "choice": lambda texts: {
        "text": texts,
        "choices": [["the", t + "a", "is b"] for t in texts],
        "start": ["is"] * len(texts),
    },
    "pretrained": lambda texts: {"text": [f"a [MASK] {t}" for t in texts]},
    "encoder": lambda texts: {"text": texts},
}
TEXTS = models.texts(11, 12, 4)


def loaded(kind, batch_size=32):
    """A loaded model, another one for other batches."""
    model = models.loaded(kind)
    if batch_size == model.batch_size:
        return model
    other = LoadedModel(model.served, models.HERE, batch_size)
    other._function = model._function
    return other


def floats(answer):
    """The numbers in an answer, and the answer without them."""
    if isinstance(answer, float):
        return [answer], None
    if not isinstance(answer, dict | list):
        return [], answer
    values = answer.values() if isinstance(answer, dict) else answer
    parts = [floats(value) for value in values]
    rest = [rest for _, rest in parts]
    if isinstance(answer, dict):
        rest = dict(zip(answer, rest, strict=True))
    return [number for numbers, _ in parts for number in numbers], rest


def assert_near(one, other):
    (numbers, rest), (others, rest_of_other) = floats(one), floats(other)
    assert rest == rest_of_other
    np.testing.assert_allclose(numbers, others, atol=1e-5)


def test_a_saved_model_is_the_graph_of_a_loaded_one(tmp_path):
    model = LoadedModel(models.KINDS["regression"](), models.HERE)
    outputs = models.ask(model._function, text=TEXTS)
    save(model.served, tmp_path)
    signature = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    exported = models.ask(signature, text=TEXTS)
    for name, value in outputs.items():
        np.testing.assert_array_equal(exported[name], value)
    # Without a graph the last digits differ.
    assert_near(model(TEXTS), loaded("regression")(TEXTS))


@pytest.mark.parametrize("kind", ["regression", "span", "choice"])
def test_order_and_answers_do_not_depend_on_the_batch(kind):
    columns = COLUMNS[kind](TEXTS)
    in_fours = loaded(kind, 4)(**columns)
    for number, answer in enumerate(in_fours):
        row = {name: column[number] for name, column in columns.items()}
        assert_near(answer, loaded(kind)(**row))


def test_one_text_goes_with_each_of_a_list():
    ask = loaded("span")
    first, second = ask(question=["is", "a b"], context="the ferry is good")
    alone = ask(question=["is"], context=["the ferry is good"])[0]
    assert_near(first, alone)
    assert second["answer"] in "the ferry is good"
    choose = loaded("choice")
    two = choose(["a", "b"], choices=["the", "", "is"], start="a")
    assert two[1]["probabilities"][1] == 0
    assert_near(two[1], choose("b", choices=["the", "", "is"], start="a"))
    # Lists of different lengths are filled up for the graph alone.
    uneven = choose(["a", "b"], choices=[("the",), ("the", "is")], start="a")
    assert [len(a["probabilities"]) for a in uneven] == [1, 2]


def test_any_list_will_do():
    model = loaded("regression")
    texts = ["the ferry", "is good"]
    answers = model(texts)
    assert model(tuple(texts)) == model(np.array(texts)) == answers
    assert model(text for text in texts) == answers


LONG = "the ferry " * 9000
CHOICE = {"text": "a", "start": "a"}
BAD = [
    ("classes", {"text": "a"}, "`text_b` is missing; this model, of text pair"),
    ("regression", {}, "`text` is missing; this model, of text regression, t"),
    ("regression", {"text": None}, "`text` is missing"),
    ("regression", {"text": []}, "`text` is an empty list"),
    ("regression", {"text": 5}, "`text` is 5; give a list of strings"),
    ("regression", {"text": b"a"}, "`text` is one string, b'a'; give"),
    ("regression", {"text": {"a": "b"}}, "`text` is a mapping with the key"),
    ("regression", {"text": ["a", None]}, r"`text`[1] is None; give a string"),
    ("regression", {"text": ["a", b"a"]}, r"`text`[1] is b'a'; give a string"),
    ("regression", {"text": [float("nan")]}, "`text`[0] is nan; give a st"),
    ("regression", {"text": ["a", 3]}, "`text`[1] is 3; give a string"),
    ("regression", {"text": ["\ud800"]}, "half of a surrogate pair"),
    ("regression", {"question": "a"}, "`question`: this model, of text regr"),
    ("classes", {"text": ["a"], "text_b": ["b", "c"]}, "`text` 1, `text_b` 2:"),
    ("regression", {"text": ["a", LONG]}, "`text`[1] takes "),
    ("pretrained", {"text": ["[MASK]", "a"]}, "`text`[1] holds no [MASK]."),
    ("pretrained", {"text": "a"}, "`text` holds no [MASK]."),
    ("span", {"question": "a", "context": LONG}, "`context` takes "),
    ("choice", CHOICE | {"choices": []}, "`choices` is an em"),
    ("choice", CHOICE | {"choices": "b"}, "`choices` is one string, 'b'"),
    ("choice", CHOICE | {"choices": [["b", 2]], "text": ["a"]}, "[0][1] is 2;"),
    ("choice", CHOICE | {"choices": [["b"], "c"]}, "`choices`[0] is ['b']; g"),
    ("choice", CHOICE | {"choices": [["c"], [""]]}, "`choices`[1] has none; "),
]


@pytest.mark.parametrize(("kind", "arguments", "start"), BAD)
def test_what_cannot_be_asked_is_refused(kind, arguments, start):
    assert start in error_of(loaded(kind), **arguments)


def test_a_table_is_no_list_of_its_columns():
    class Table(list):
        columns = ("text", "label")

    line = error_of(loaded("regression"), Table(["text"]))
    assert line.startswith("`text` is a table ")
    assert "text, label" in line


def test_what_is_not_finite_is_refused():
    model = loaded("encoder")
    outputs = {"mean": tf.constant([[np.nan]]), "cls": tf.constant([[0.0]])}
    broken = LoadedModel(model.served, models.HERE)
    broken._function = lambda text: outputs
    assert "mean of a text is not finite" in error_of(broken, "a")


def test_a_folder_is_loaded_whole(tmp_path):
    model = load(save_model(tmp_path / "m"), batch_size=3, device="cpu")
    assert isinstance(model.encoder, bert_tf.BertEncoder)
    assert model.tokenizer.lower_case
    assert model.labels == ()
    assert model.facts["task"] == "embeddings"
    assert model.facts["num_hidden_layers"] == 3
    assert "embeddings, takes text; 3 layers of 24" in repr(model)
    words = "<LoadedModel .*: text pair classification, takes text, text_b, "
    assert re.match(words + r"labels=\['bad', 'fair", repr(loaded("classes")))
    # Half precision is the encoder's dtype.
    half = load(tmp_path / "m", precision="mixed_bfloat16")
    assert half.encoder.compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ({"batch_size": 0}, "`batch_size`=0: give a whole"),
        ({"batch_size": 1.5}, "`batch_size`=1.5: give a whole"),
        ({"precision": "half"}, "`precision`='half': takes one of"),
        ({"device": "gpu:7"}, "`device`=gpu:7: there is no such device here"),
    ],
)
def test_bad_arguments_of_load(arguments, start, tmp_path):
    folder = save_model(tmp_path / "m")
    assert error_of(load, folder, **arguments).startswith(start)
    assert "no such model folder" in error_of(load, tmp_path / "nowhere")


def test_embed_takes_a_loaded_model_and_loads_nothing_again(tmp_path, eagerly):
    folder = save_model(tmp_path / "m", with_pooler=False)
    model, texts = load(folder), some_texts(9)
    for settings in ({}, {"pooling": "cls", "layer": 1, "normalize": True}):
        given = bert_tf.embed(folder, texts, **settings)
        found = bert_tf.embed(model, texts, **settings)
        np.testing.assert_array_equal(found, given)
    answers = [answer["embedding"] for answer in model(texts)]
    np.testing.assert_allclose(answers, bert_tf.embed(model, texts), atol=1e-5)
    line = error_of(bert_tf.embed, model, texts, precision="mixed_float16")
    assert "the encoder has float32 already" in line
    line = error_of(bert_tf.embed, model, texts, pooling="pooled")
    assert "has no pooler" in line
    for path in (tmp_path / "m").iterdir():
        path.unlink()
    assert open_model(model, DEFAULTS) is open_model(model, DEFAULTS)
    assert bert_tf.embed(model, texts).shape == (9, 24)


def test_special_tokens_in_texts(tmp_path):
    """They are split, or on request the tokens of the model."""
    folder = make(tmp_path, "classes")
    for option, found in ((None, False), (True, False), (False, True)):
        model = load(folder, split_special_tokens=option)
        ids = model.tokenizer.tokenize("a [SEP] film").numpy()
        assert (model.tokenizer.vocabulary.sep_id in ids) == found
