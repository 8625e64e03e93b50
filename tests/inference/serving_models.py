"""Small models of every kind, to serve in the tests."""

import functools
import pathlib

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.families.multiple_choice.answers import ChoiceModel
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.question_answering.answers import SpanModel
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.text_classification.answers import SentenceModel
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.families.token_classification.answers import TagModel
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.inference.load import LoadedModel
from bert_tf.text.token_table import SPECIAL_TOKENS
from tests.model_helpers import fill, small_config

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
TOKENS += [*"ABCS.,-'()?&1234567890", "##1", "##9", "the", "ferry", "smith"]
TOKENS += ["cafe", "##ing", "東", "京", "ü", "é", "##é", "σ", "##ς", "A", "is"]
TOKENS = list(dict.fromkeys(TOKENS))
WORDS = "the ferry is good Café's U.N. smith-jones (naïve) x\u200by ΣΑΣ "
WORDS += "cafe\u0301 don't 1,999 東京 \U0001f600 \U00020000a ﬁn a\u00a0b 1996"
WORDS = WORDS.split(" ")
HERE = pathlib.Path(__file__).parent
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@functools.cache
def tokenizer(lower_case: bool = True) -> bert_tf.BertTokenizer:
    return bert_tf.BertTokenizer(TOKENS, lower_case)


def config(**changes) -> bert_tf.BertConfig:
    changes |= {"vocab_size": len(TOKENS) + 3, "max_position_embeddings": 80}
    return small_config(**changes)


@functools.cache
def encoder(seed: int = 0) -> bert_tf.BertEncoder:
    return fill(bert_tf.BertEncoder(config()), seed, 0.6)


def new_encoder() -> bert_tf.BertEncoder:
    return bert_tf.BertEncoder(config())


@functools.cache
def classifier(classes: int = 3):
    model = bert_tf.bert_classifier(new_encoder(), classes, unpadded=True)
    return fill(model, 1, 0.6)


@functools.cache
def span_labeler():
    return fill(bert_tf.bert_span_labeler(new_encoder(), unpadded=True), 2, 0.6)


@functools.cache
def tagger():
    count = len(TAGS)
    model = bert_tf.bert_token_classifier(new_encoder(), count, unpadded=True)
    return fill(model, 3, 0.6)


@functools.cache
def chooser():
    model = bert_tf.bert_multiple_choice(new_encoder(), unpadded=True)
    return fill(model, 4, 0.6)


@functools.cache
def pretrainer():
    return fill(bert_tf.BertPretrainer(config()), 5, 0.6)


def text_config(**changes) -> TextClassificationConfig:
    """How a classifier of three classes of texts is used, but for changes."""
    values = {
        "task": "mood",
        "labels": ("bad", "fair", "gut ü"),
        "max_seq_length": 40,
        "label_kind": "classes",
        "num_texts": 1,
        "text_columns": "text",
        "label_separator": ",",
        "long_inputs": "cut",
        "doc_stride": 16,
        "threshold": 0.5,
        **changes,
    }
    outputs = {"num_outputs": len(values["labels"]) or 1}
    return TextClassificationConfig(**outputs, **values)


def text_model(model, **changes) -> SentenceModel:
    return SentenceModel(model, tokenizer(), text_config(**changes))


def span_model(network=None, tokens=None, **changes) -> SpanModel:
    """A model of spans, but for changes of how it is used."""
    values = {
        "max_seq_length": 40,
        "doc_stride": 128,
        "max_query_length": 10,
        "max_answer_length": 30,
        "n_best_size": 20,
        "with_null": False,
        "null_threshold": 0.0,
        **changes,
    }
    config = QuestionAnsweringConfig(task="questions", labels=(), **values)
    return SpanModel(network or span_labeler(), tokens or tokenizer(), config)


def tag_model(network, labels, max_seq_length=40, doc_stride=0) -> TagModel:
    config = TokenClassificationConfig(
        "tags", tuple(labels), max_seq_length, "sentence", doc_stride
    )
    return TagModel(network, tokenizer(), config)


def choice_model(max_seq_length=40, has_start=False) -> ChoiceModel:
    config = MultipleChoiceConfig("choice", (), max_seq_length, has_start)
    return ChoiceModel(chooser(), tokenizer(), config)


KINDS = {
    "classes": lambda: text_model(classifier(), num_texts=2),
    "regression": lambda: text_model(
        classifier(1), label_kind="regression", labels=(), long_inputs="windows"
    ),
    "several_labels": lambda: text_model(
        classifier(), label_kind="multi_label", labels=("a", "b", "c")
    ),
    "span": lambda: span_model(
        doc_stride=12, with_null=True, null_threshold=-0.5
    ),
    "tags": lambda: tag_model(tagger(), TAGS),
    "choice": lambda: choice_model(has_start=True),
    "pretrained": lambda: PretrainedModel(pretrainer(), tokenizer()),
    "encoder": lambda: PretrainedModel(
        encoder(), tokenizer(), Settings(max_seq_length=40)
    ),
    "bfloat16": lambda: of_policy("mixed_bfloat16"),
}


@functools.cache
def loaded(kind: str) -> LoadedModel:
    """A model without a folder of a training, computed without graphs."""
    model = LoadedModel(KINDS[kind](), HERE)
    model._function = model._function.python_function
    return model


def texts(count: int, longest: int, seed: int = 0) -> list[str]:
    """Texts full of traps, of 0 to `longest` words."""
    random = np.random.default_rng(seed)
    blanks = [" ", "  ", "\n", "\t ", " \u202f"]
    found = []
    for _ in range(count):
        words = random.choice(WORDS, random.integers(0, longest + 1))
        found.append("".join(w + random.choice(blanks) for w in words))
    return found


def ask(function, **inputs) -> dict[str, np.ndarray]:
    """What a signature answers to lists of strings."""
    given = {
        name: tf.constant(value, tf.string)
        if not isinstance(value, tf.Tensor)
        else value
        for name, value in inputs.items()
    }
    return {n: v.numpy() for n, v in function(**given).items()}


def strings(array: np.ndarray) -> list:
    """Bytes of an array as a list of str."""
    return np.vectorize(bytes.decode, otypes=[object])(array).tolist()


def of_policy(policy: str) -> SentenceModel:
    """A classifier of another dtype policy."""
    model = bert_tf.bert_classifier(bert_tf.BertEncoder(config(), policy), 3)
    return text_model(fill(model, 1), labels=("a", "b", "c"))
