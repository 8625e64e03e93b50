"""Served taggers against the Python path: words, windows, entities."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.token_classification.answers import TagModel, WordFinder
from bert_tf.families.token_classification.conll_files import (
    TaggedWords,
    read_conll,
)
from bert_tf.families.token_classification.entities import entities, in_scheme
from bert_tf.families.token_classification.windows import (
    encode_words,
)
from tests.inference import serving_models as models
from tests.model_helpers import fill, small_config


def words_of(texts, tokenizer, rule):
    """The words of texts as (begin, end) in characters."""
    texts = tf.constant(texts, tf.string)
    words = WordFinder(tokenizer, rule)(
        tf.strings.unicode_decode(texts, "UTF-8"),
        *tokenizer.tokenize_with_offsets(texts),
    )
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
        (found,) = words_of([text], models.tokenizer(lower_case), "text")
        assert "|".join(text[begin:end] for begin, end in found) == words


def test_words_between_blanks_and_of_several_texts():
    text = "The U.N. 's (x) \u6771\u4eac a\u200b \u00a0b"
    (found,) = words_of([text], models.tokenizer(), "blanks")
    words = [text[begin:end] for begin, end in found]
    assert words == ["The", "U.N.", "'s", "(x)", "\u6771\u4eac", "a\u200b", "b"]

    texts = ["a-", "b", "", "-c", "'", "s", "x.", "y"]
    found = words_of(texts, models.tokenizer(), "text")
    assert [len(words) for words in found] == [2, 1, 0, 2, 1, 1, 2, 1]


def python_entities(texts, words, model, tokenizer, labels, length, stride):
    """The entities of texts whose words are known, by the Python path."""
    rows = [row for row, own in enumerate(words) if own]
    flat = [texts[row][b:e] for row in rows for b, e in words[row]]
    starts = np.cumsum([0, *(len(words[row]) for row in rows)])
    data = TaggedWords(
        path="made.txt",
        words=flat,
        tags=[],
        rows=np.arange(len(flat)),
        sentence_starts=starts,
        document_starts=np.arange(len(rows) + 1),
        marks=len(rows),
    )
    windows = encode_words(data, tokenizer, length, "sentence", stride or 0)
    every = np.arange(len(windows))
    outputs = model(windows.batch(every), training=False).numpy()
    logits = windows.gather([(every, {"logits": outputs})])["logits"]
    tags = in_scheme([labels[k] for k in logits.argmax(1)], starts)
    shares = tf.nn.softmax(logits).numpy().max(1)
    found = [[] for _ in texts]
    places = [place for row in rows for place in words[row]]
    for kind, first, last in entities(tags, starts):
        row = rows[np.searchsorted(starts, first, side="right") - 1]
        begin, end = places[first][0], places[last][1]
        score = shares[first : last + 1].mean()
        found[row].append((texts[row][begin:end], kind, begin, end, score))
    return found


def served_entities(function, texts):
    """The entities as tuples, with what fills up checked."""
    answers = models.ask(function, text=texts)
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


def assert_same_entities(found, expected):
    assert [[e[:4] for e in row] for row in found] == [
        [e[:4] for e in row] for row in expected
    ]
    scores = [[e[4] for row in rows for e in row] for rows in (found, expected)]
    np.testing.assert_allclose(*scores, atol=1e-4)
    assert scores[0]


@pytest.mark.parametrize(
    ("rule", "stride", "lower_case"),
    [("text", None, True), ("blanks", 5, True), ("text", 100, False)],
)
def test_entities_are_those_of_the_python_path(rule, stride, lower_case):
    tokenizer = models.tokenizer(lower_case)
    served = TagModel(
        models.tagger(),
        tokenizer,
        models.TAGS,
        24,
        doc_stride=stride,
        word_rule=rule,
    )
    texts = [*models.texts(25, 30, 4), *models.texts(15, 4, 5), "", "\n"]
    function = served.signatures()["serving_default"]
    words = words_of(texts, tokenizer, rule)
    expected = python_entities(
        texts, words, models.tagger(), tokenizer, models.TAGS, 24, stride
    )
    assert_same_entities(served_entities(function, texts), expected)
    kinds = {entity[1] for row in expected for entity in row}
    assert kinds == {"LOC", "PER"}


@pytest.mark.parametrize(
    "labels",
    [
        "O B-X I-X E-X S-X I-Y L-Y U-Y",
        "O B-X M-X E-X S-X B-Y M-Y E-Y",
        "O PER LOC ADJ ADP S-PRO S [SEP]",
    ],
)
def test_every_scheme_is_decoded_as_by_the_python_path(labels):
    labels = labels.split()
    random = np.random.default_rng(2)
    served = TagModel(
        bert_tf.bert_token_classifier(models.new_encoder(), len(labels)),
        models.tokenizer(),
        labels,
        80,
    )
    letters = dict(zip("abcdefgh", range(8), strict=True))
    ids = {models.TOKENS.index(letter): k for letter, k in letters.items()}
    table = np.zeros((len(models.TOKENS), 8), np.float32)
    for number, label in ids.items():
        table[number, label] = 9

    served.forward = lambda inputs: tf.gather(table, inputs["input_ids"])
    texts = [" ".join(random.choice(list("abcdefgh"), 30)) for _ in range(40)]
    tags = [labels[letters[letter]] for t in texts for letter in t.split()]
    starts = np.arange(0, 40 * 30 + 1, 30)
    expected = [[] for _ in texts]
    for kind, first, last in entities(tags, starts):
        expected[first // 30].append(
            (kind, 2 * (first % 30), 2 * (last % 30) + 1)
        )
    found = served_entities(served.signatures()["serving_default"], texts)
    assert [[e[1:4] for e in row] for row in found] == expected


def test_odd_texts():
    function = models.KINDS["tags"]().signatures()["serving_default"]
    texts = [b"", b"\xff the \xf0\x9f ferry", b"\x00\x01", b"a" * 5000]
    found = models.ask(function, text=texts)
    assert found["count"][0] == found["count"][2] == 0
    given = texts[1].decode(errors="replace")
    for k in range(found["count"][1]):
        begin, end = found["starts"][1, k], found["ends"][1, k]
        assert given[begin:end] == found["entities"][1, k].decode()
    nobody = models.ask(function, text=["", ""])
    assert nobody["entities"].shape == (2, 0)


@pytest.mark.slow
def test_conll_is_tagged_alike(shared_data):
    """Sentences of the data set, whose words stand between blanks."""
    vocabulary = shared_data / "vocab" / "bert-base-cased" / "vocab.txt"
    tokenizer = bert_tf.BertTokenizer(vocabulary, lower_case=False)
    data = read_conll(str(shared_data / "conll2003" / "eng.testb"))
    starts = data.sentence_starts[:301]
    texts = [
        " ".join(data.words[a:b])
        for a, b in zip(starts[:-1], starts[1:], strict=True)
    ]
    config = small_config(
        vocab_size=len(tokenizer.vocabulary), max_position_embeddings=80
    )
    model = bert_tf.bert_token_classifier(bert_tf.BertEncoder(config), 5)
    fill(model, 7, 0.6)
    words = words_of(texts, tokenizer, "blanks")
    assert [len(own) for own in words] == np.diff(starts).tolist()
    served = TagModel(model, tokenizer, models.TAGS, 32, word_rule="blanks")
    expected = python_entities(
        texts, words, model, tokenizer, models.TAGS, 32, None
    )
    function = served.signatures()["serving_default"]
    assert_same_entities(served_entities(function, texts), expected)
    # Raw text: nearly all words are those of the data set.
    raw = words_of(texts, tokenizer, "text")
    kept = sum(len(set(a) & set(b)) for a, b in zip(raw, words, strict=True))
    assert kept > 0.97 * sum(map(len, words))
