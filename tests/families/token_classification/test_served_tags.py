"""Taggers that take text: words, windows, entities."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.token_classification.answers import tagged_entities
from bert_tf.families.token_classification.conll_files import read_conll
from bert_tf.families.token_classification.entities import entities, tag_table
from bert_tf.families.words import WordFinder, first_tokens, tokenize_words
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.tokenizer_files import AddedToken
from tests.as_numpy import as_numpy
from tests.inference import serving_models as models
from tests.subword_models import tokenizer_of


def words_of(texts, tokenizer):
    """The words of texts as (begin, end) in characters."""
    texts = tf.constant(texts, tf.string)
    words = WordFinder(tokenizer)(tf.strings.unicode_decode(texts, "UTF-8"))
    found = [[] for _ in range(len(texts))]
    for row, begin, end in zip(
        words.row.numpy(), words.begin.numpy(), words.end.numpy(), strict=True
    ):
        found[row].append((int(begin), int(end)))
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.N. is here.", "The|U.N.|is|here|."),
        ("O'Neal's (AT&T) 3-1", "O'Neal|'s|(|AT&T|)|3-1"),
        ("J. Smith-Jones, 1996-08-22", "J.|Smith-Jones|,|1996-08-22"),
        ("1,000 a,b 10:30 a:b", "1,000|a|,|b|10:30|a|:|b"),
        ("Smith\u2019s 's x's'", "Smith|\u2019s|'s|x|'s|'"),
        ("\u6771\u4eac.a \u6771b", "\u6771|\u4eac|.|a|\u6771|b"),
        ('and/or "quoted" -- a-', 'and/or|"|quoted|"|-|-|a|-'),
        ("don't 'sir' it's-a", "don't|'|sir|'|it|'s-a"),
        ("cafe\u0301-x\u200by \U0001f600.", "cafe\u0301-x\u200by|\U0001f600|."),
        (" \n\u00a0 ", ""),
        ("A.B.C.", "A.B.C."),
        ("...a.. .", ".|.|.|a|.|.|."),
    ],
)
def test_words_of_text(text, words):
    for lower_case in (True, False):
        (found,) = words_of([text], models.tokenizer(lower_case))
        assert "|".join(text[begin:end] for begin, end in found) == words


def test_words_of_several_texts():
    texts = ["a-", "b", "", "-c", "'", "s", "x.", "y"]
    found = words_of(texts, models.tokenizer())
    assert [len(words) for words in found] == [2, 1, 0, 2, 1, 1, 2, 1]


ADDED = ("<user>", "[E1]", "covid-19")


def with_added_tokens(name):
    """A tokenizer with added tokens, of a BERT or another architecture."""
    added = [AddedToken(each, normalized=False) for each in ADDED]
    if name == "bert":
        tokens = [*models.tokenizer().vocabulary.tokens, *ADDED]
        return bert_tf.BertTokenizer(tokens, True, added_tokens=added)
    data = tokenizer_of(name)
    assert isinstance(data, ByteLevelBpe)
    return ByteLevelBpe(
        [*data.tokens, *ADDED],
        data.merges,
        data.special,
        added_tokens=added,
        packing=data.packing,
    ).tokenizer()


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<user> has [E1]bob in covid-19", "<user>|has|[E1]|bob|in|covid-19"),
        ("bob<user>.[E1][E1]", "bob|<user>|.|[E1]|[E1]"),
        ("[E1]'s in-<user>-rome", "[E1]|'s|in|-|<user>|-|rome"),
        ("<users> [E2] covid-1", "<|users|>|[|E2|]|covid-1"),
        (" <user>\n[E1] ", "<user>|[E1]"),
    ],
)
def test_added_tokens_are_words(name, text, words):
    tokenizer = with_added_tokens(name)
    (found,) = words_of([text], tokenizer)
    assert "|".join(text[begin:end] for begin, end in found) == words


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_words_have_the_tokens_of_their_text(name):
    """The ids are the tokenizer's, and an added token represents itself."""
    tokenizer = with_added_tokens(name)
    texts = ["a <user> [E1]b a[E1] b covid-19", "[E1]<user> a", "a b", ""]
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    words = WordFinder(tokenizer)(codes)
    spelled = words.texts(codes)
    ids, _, ends = tokenize_words(tokenizer, spelled, words.after_blank)
    # A text begins like a word after a blank, unless with an added token.
    expected = tokenizer.tokenize([f" {texts[0]}", texts[1], " a b", ""])
    assert ids.flat_values.numpy().tolist() == (
        expected.flat_values.numpy().tolist()
    )
    first = tf.gather(ids.flat_values, first_tokens(tokenizer, ids, ends))
    own = {text.encode(): tokenizer.vocabulary.ids[text] for text in ADDED}
    for word, token in zip(spelled.numpy(), first.numpy(), strict=True):
        assert token == own.get(word, token)
        assert token in own.values() or word not in own


def served_entities(served, texts):
    """The entities as tuples; checks the padding."""
    answers = as_numpy(served.answers(tf.constant(texts)))
    names = ("entities", "labels", "starts", "ends", "scores")
    found = []
    for row, count in enumerate(answers["count"]):
        columns = [answers[name][row] for name in names]
        fills = (b"", b"", -1, -1, 0)
        for column, unused in zip(columns, fills, strict=True):
            assert (column[count:] == unused).all()
        found.append(
            [
                (text.decode(), label.decode(), *numbers)
                for text, label, *numbers in zip(
                    *(column[:count] for column in columns), strict=True
                )
            ]
        )
    assert answers["entities"].shape[1] == max(map(len, found))
    return found


@pytest.mark.parametrize("stride", [0, 5, 100])
@pytest.mark.usefixtures("eagerly")
def test_the_window_with_most_context_answers(stride):
    """The tag tells how much context the window shows to the nearer side."""
    labels = [*map(str, range(12))]
    model = bert_tf.bert_token_classifier(models.new_encoder(), 12)
    served = models.tag_model(model, labels, 26, stride)

    def logits_of(inputs):
        length = tf.reduce_sum(inputs["input_mask"], 1, keepdims=True)
        place = tf.range(tf.shape(inputs["input_mask"])[1]) - 1
        return 9 * tf.one_hot(tf.minimum(place, length - 3 - place), 12)

    served.forward = logits_of
    counts = [3, 24, 25, 50, 0, 61]
    texts = [
        " ".join("ab" * (count // 2) + "a" * (count % 2)) for count in counts
    ]
    found = served_entities(served, texts)
    step, probability = min(stride or 12, 24), 1 / (1 + 11 * np.exp(-9))
    for entities_of_text, count in zip(found, counts, strict=True):
        offsets = [*range(0, max(count - 24, 0), step), max(count - 24, 0)]
        size = min(count, 24)
        context = [
            max(min(n - o, o + size - 1 - n) for o in offsets)
            for n in range(count)
        ]
        runs = [
            (label, [n for n, _ in run])
            for label, run in itertools.groupby(
                enumerate(context), lambda each: each[1]
            )
        ]
        assert [e[1:4] for e in entities_of_text] == [
            (str(label), 2 * run[0], 2 * run[-1] + 1) for label, run in runs
        ]
        for entity in entities_of_text:
            assert entity[4] == pytest.approx(probability, abs=1e-6)


def test_scores_are_mean_probabilities():
    """Of the tags of the words, by hand."""
    logits = np.log(np.float32([[1, 7, 2], [3, 1, 6], [8, 1, 1], [2, 5, 3]]))
    sentence = np.array([0, 0, 0, 1])
    *found, scores = tagged_entities(logits, sentence, ["O", "B-X", "I-X"])
    assert [x.numpy().tolist() for x in found] == [[0, 0], [0, 3], [1, 3]]
    np.testing.assert_allclose(scores, [0.65, 0.5], atol=1e-6)
    nothing = tagged_entities(logits[:0], sentence[:0], ["O", "X", "Y"])
    assert [len(x) for x in nothing] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "labels",
    [
        "O B-X I-X E-X S-X I-Y L-Y U-Y",
        "O B-X M-X E-X S-X B-Y M-Y E-Y",
        "O PER LOC ADJ ADP S-PRO S [SEP]",
    ],
)
def test_entities_of_every_scheme(labels):
    """Those of logits are those of the tags in files."""
    labels = labels.split()
    tags = np.random.default_rng(2).integers(8, size=1200)
    starts = np.arange(0, 1201, 30)
    sentence = np.repeat(np.arange(40), 30)
    kind, first, last, _ = as_numpy(
        tagged_entities(np.eye(8, dtype="float32")[tags], sentence, labels)
    )
    kinds = tag_table(labels).kinds
    found = [*zip([kinds[k] for k in kind], first, last, strict=True)]
    assert found == entities([labels[tag] for tag in tags], starts)


def test_words_of_conll2003(shared_data):
    """Sentences of the data set, whose words are separated by blanks."""
    vocabulary = shared_data / "vocab" / "bert-base-cased" / "vocab.txt"
    tokenizer = bert_tf.BertTokenizer(vocabulary, lower_case=False)
    data = read_conll(str(shared_data / "conll2003" / "eng.testb"))
    texts = [
        " ".join(data.words[part])
        for part in itertools.islice(data.sentences(), 300)
    ]
    words = [[m.span() for m in re.finditer(r"\S+", t)] for t in texts]
    # Raw text: nearly all words are those of the data set.
    raw = words_of(texts, tokenizer)
    kept = sum(len(set(a) & set(b)) for a, b in zip(raw, words, strict=True))
    assert kept > 0.97 * sum(map(len, words))
