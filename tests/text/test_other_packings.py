"""Nothing assumes a BERT's rows, [CLS] A [SEP] and [CLS] A [SEP] B [SEP].

Here a row begins with two tokens, has three between its texts and ends with
two, and all of it is of one segment.
"""

import functools

import numpy as np
import tensorflow as tf
import tokenizers

import bert_tf
from bert_tf.families.data.examples import Example
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import ChoiceExample, SwagFiles
from bert_tf.families.multiple_choice.task import MultipleChoiceTask
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.question_answering.squad_files import Answer, Question
from bert_tf.families.question_answering.windows import (
    answer_positions,
    make_windows,
)
from bert_tf.families.text_classification.task import encode
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.conll_files import TaggedWords
from bert_tf.families.token_classification.windows import encode_words
from bert_tf.records.examples import pack_rows as fill_rows
from bert_tf.records.examples import (
    packed_records,
    plain_records,
    static_records,
)
from bert_tf.records.instances import make_instances
from bert_tf.records.masking import MaskingRule
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import Documents
from bert_tf.text.layout import SentencePacker
from bert_tf.text.token_table import Packing, SpecialTokens
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary
from tests.inference.serving_models import text_config

SPECIAL = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
WORDS = "who came where of the ##s river lake sea ran to a".split()
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *WORDS]
START, PAD, END, UNKNOWN, MASK = range(5)
BEGIN, MIDDLE, LAST = [START, END], [END, START, END], [END, END]


class OtherVocabulary(Vocabulary):
    """A vocabulary of other rows."""

    @functools.cached_property
    def packing(self) -> Packing:
        return Packing(*map(tuple, (BEGIN, MIDDLE, LAST)), 0, PAD)


VOCABULARY = OtherVocabulary(TOKENS, special=SPECIAL)
TOKENIZER = BertTokenizer(VOCABULARY, lower_case=True)


def ids_of(text):
    return [TOKENS.index(word) for word in text.split()]


def row_of(first, second=None):
    between = [] if second is None else [*MIDDLE, *ids_of(second)]
    return [*BEGIN, *ids_of(first), *between, *LAST]


def rows_of(rows):
    flat = {name: values.numpy() for name, values in rows.flat().items()}
    assert not flat["segment_ids"].any()
    split = np.split(flat["input_ids"], rows.starts.numpy()[1:-1])
    return [row.tolist() for row in split]


def test_rows_of_the_packer():
    pack = SentencePacker(TOKENIZER, 12)
    for texts in (("the river",), ("the river", "a sea ran"), ("", "")):
        packed = {name: x.numpy() for name, x in pack(*texts).items()}
        row = row_of(*texts)
        assert packed["input_ids"].tolist() == row + [PAD] * (12 - len(row))
        assert packed["input_mask"].sum() == len(row)
        assert not packed["segment_ids"].any()
    cut = pack("the river ran to the sea", "a lake the lake")["input_ids"]
    assert cut.numpy().tolist() == row_of("the river ran", "a lake")


def test_rows_of_tasks():
    examples = [
        Example("the river", "a sea", None, "0", 1, "x"),
        Example("to the lake", "", None, "1", 2, "x"),
    ]
    assert rows_of(encode(examples, TOKENIZER, text_config(num_texts=2))) == [
        row_of("the river", "a sea"),
        row_of("to the lake", ""),
    ]
    ending = ("the sea", "a lake ran ran")
    given = [ChoiceExample("who ran", "to", ending, None, "0", 1, "x")]
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    config = MultipleChoiceConfig("swag", (), 13, True)
    assert rows_of(task.encode(given, TOKENIZER, config).rows) == [
        row_of("who ran", "to the sea"),
        row_of("who ran", "to a lake ran"),
    ]


def test_answers_are_where_they_stand():
    context = "the river ran to the sea a lake ran to the river"
    answers = (Answer("a lake", 24 + 1),)
    asked = Question("1", "", "who ran where", context, answers, False)
    assert context[25:31] == "a lake"
    config = QuestionAnsweringConfig("q", (), 15, 3, 64, 30, 20, False)
    windows = make_windows([asked], TOKENIZER, config)
    positions = answer_positions(windows, [asked])
    found = set()
    rows = zip(rows_of(windows.rows), positions.tolist(), strict=True)
    for row, (first, last) in rows:
        assert row[:8] == [*BEGIN, *ids_of("who ran where"), *MIDDLE]
        assert row[-2:] == LAST
        if last:
            found.add(tuple(row[first : last + 1]))
    assert found == {tuple(ids_of("a lake"))}


def test_words_are_where_they_stand():
    words = "who ran to the rivers lake".split()
    data = TaggedWords(
        *("words.txt", words, ["O"] * 6, np.arange(6)),
        *(np.array([0, 6]), np.array([0, 1])),
    )
    config = TokenClassificationConfig("names", (), 9, "document", 0)
    windows = encode_words(data, TOKENIZER, config)
    rows = rows_of(windows.rows)
    assert all(row[:2] == BEGIN and row[-2:] == LAST for row in rows)
    found = [
        rows[row][position]
        for row, position in zip(windows.row, windows.position, strict=True)
    ]
    assert found == ids_of("who ran to the river lake")


def random_documents():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 60)
    return Documents(
        rng.integers(5, len(TOKENS), sizes.sum()).astype(np.int32),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.arange(0, 61, 3),
    )


def examples_of(records):
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        yield {n: list(v.int64_list.value) for n, v in features.items()}


def test_records():
    documents = random_documents()
    recipe = RecordsRecipe(max_seq_length=24, max_predictions_per_seq=4)
    made = make_instances(documents, 20, recipe, VOCABULARY.packing, "x")
    expected = [
        [
            *BEGIN,
            *documents.ids[made.a_start[row] : made.a_end[row]].tolist(),
            *MIDDLE,
            *documents.ids[made.b_start[row] : made.b_end[row]].tolist(),
            *LAST,
        ]
        for row in range(len(made))
    ]
    assert made.lengths().tolist() == list(map(len, expected))
    assert 20 < max(map(len, expected)) <= 24
    plain = list(examples_of(plain_records(made)))
    assert [one["input_ids"] for one in plain] == expected
    assert not any(any(one["segment_ids"]) for one in plain)
    rows = fill_rows(made.lengths(), 24, "x")
    packed = examples_of(packed_records(made, rows))
    ends = [0]
    tokens = []
    for one in packed:
        tokens += one["input_ids"]
        ends += one["sequence_lengths"]
    ends = np.cumsum(ends)
    parts = [tokens[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    assert sorted(parts) == sorted(expected)
    rule = MaskingRule.from_recipe(recipe, VOCABULARY)
    assert np.flatnonzero(rule.is_special).tolist() == [START, END]
    static = static_records(made, recipe, VOCABULARY, "x")
    for one, row in zip(examples_of(static), expected, strict=True):
        ids = np.array(one["input_ids"])
        count = sum(place > 0 for place in one["masked_lm_positions"])
        places = one["masked_lm_positions"][:count]
        assert count
        # Special tokens are never masked.
        ids[places] = one["masked_lm_ids"][:count]
        assert ids.tolist() == row + [PAD] * (24 - len(row))
        assert not set(one["masked_lm_ids"][:count]) & {START, END}
        assert sum(one["input_mask"]) == len(row)


def test_a_vocabulary_is_extended_with_its_names(tmp_path):
    BertTokenizer(Vocabulary(TOKENS, special=SPECIAL), True).save(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text("the estuary of the river\n" * 9)
    settings = {"extend": tmp_path / "vocab.txt", "min_frequency": 1}
    trained = bert_tf.train_vocab(str(text), len(TOKENS) + 23, **settings)
    assert trained.vocabulary.special == SPECIAL
    assert trained.vocabulary.tokens[: len(TOKENS)] == tuple(TOKENS)


def test_tokenizer_json(tmp_path):
    TOKENIZER.data.save_json(tmp_path, 12, True)
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    pack = SentencePacker(TOKENIZER, 12)
    for texts in (("the rivers",), ("the river", "a sea ran"), ("zzz", "a")):
        found, packed = other.encode(*texts), pack(*texts)
        assert found.ids == packed["input_ids"].numpy().tolist()
        assert found.type_ids == packed["segment_ids"].numpy().tolist()
        assert found.attention_mask == packed["input_mask"].numpy().tolist()
