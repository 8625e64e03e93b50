"""What taggers are trained for, the data doctor, own files split in two."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.recipe import TagRecipe
from bert_tf.families.task import Answered, Split
from bert_tf.families.token_classification.conll_files import (
    TaggedWords,
    read_conll,
    split_off_documents,
)
from bert_tf.families.token_classification.task import TagPredictions
from bert_tf.families.token_classification.windows import TagObjective
from bert_tf.models import bert_token_classifier
from bert_tf.text.tokenizer import BertTokenizer
from tests.as_numpy import as_numpy
from tests.contracts.task_cases import write_tags
from tests.finetuning.sentence_runs import tokenizer
from tests.model_helpers import encoder_inputs, fill, numpy, small_config
from tools.task_files import load_task

TASK = load_task("conll2003")
LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def words_of(tmp_path, text, name="words.txt") -> TaggedWords:
    path = tmp_path / name
    path.write_text(text)
    return read_conll(str(path))


def some_words(tmp_path, count, seed) -> TaggedWords:
    """Sentences, of which four make a document."""
    write_tags(tmp_path / "some.txt", count, seed, False)
    return read_conll(str(tmp_path / "some.txt"))


def mean_loss(words, logits, config):
    """The mean loss of a word, whatever is predicted."""
    tags = ["O"] * len(words.words)
    return TASK.score(
        Answered(words, TagPredictions(logits, tags), config)
    ).loss


@pytest.fixture
def split(tmp_path):
    words = some_words(tmp_path, 6, 3)
    config = TASK.configure(TagRecipe(max_seq_length=24), words)
    rows = TASK.encode(words, tokenizer(), config, labelled=True)
    return Split(words, rows), config


def test_only_first_sub_tokens_are_learned_from(split):
    part, config = split
    batch = as_numpy(part.rows.batch(np.arange(6)))
    random = np.random.default_rng(1)
    shape = (*batch["input_ids"].shape, len(LABELS))
    logits = tf.constant(random.normal(size=shape).astype("float32"))
    objective = TagObjective()
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses, metrics = objective({"logits": logits}, batch)
        mean = objective.normalise(losses, objective.loss_weights(batch))
    gradient = tape.gradient(mean["loss"], logits).numpy()
    touched = np.abs(gradient).max(axis=-1) > 0
    np.testing.assert_array_equal(touched, batch["tag_weights"] > 0)
    words = len(part.examples.words)
    assert touched.sum() == words
    # Sentences show words of others too, and words have further sub-tokens.
    assert words < batch["input_mask"].sum() - 2 * 6
    # Every word counts the same.
    rows, places = np.nonzero(batch["tag_weights"])
    chosen = logits.numpy()[rows, places].astype(np.float64)
    gold = batch["tag_ids"][rows, places]
    total = np.log(np.exp(chosen).sum(axis=-1))
    expected = np.mean(total - chosen[np.arange(words), gold])
    assert float(mean["loss"]) == pytest.approx(expected, rel=1e-5)
    right, weight = metrics["accuracy"]
    assert weight == words
    assert right == np.sum(chosen.argmax(axis=-1) == gold)
    # The same loss as over the words of a split.
    order = np.lexsort((places, rows))
    found = mean_loss(part.examples, chosen[order].astype("float32"), config)
    assert found == pytest.approx(expected)


def test_loss_leaves_out_tags_that_are_not_known(tmp_path, split):
    _, config = split
    words = words_of(tmp_path, "a O\nb B-ORG\n")
    logits = np.float32([[3, 1, 0, 0, 0], [9, 9, 9, 9, 9]])
    alone = words_of(tmp_path, "a O\n", "alone.txt")
    assert mean_loss(words, logits, config) == mean_loss(
        alone, logits[:1], config
    )
    strange = words_of(tmp_path, "b B-ORG\n", "strange.txt")
    assert mean_loss(strange, logits[1:], config) is None


def test_answers_are_the_best_tags_in_iob2(tmp_path, split):
    _, config = split
    words = words_of(tmp_path, "a O\nb O\nc O\n\nd O\n")
    best = [4, 4, 2, 2]
    logits = np.eye(5, dtype="float32")[best]
    found = TASK.decode(
        {"logits": logits}, Split(words, None), tokenizer(), config
    )
    assert found.tags == ["B-PER", "I-PER", "B-LOC", "B-LOC"]


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("a PER\nb PER\nc LOC\n\nd O\n", "PER PER LOC LOC"),
        ("a B-PER\nb I-PER\nc B-LOC\n\nd O\n", "B-PER I-PER B-LOC B-LOC"),
        ("a B-PER\nb E-PER\nc S-LOC\n\nd O\n", "B-PER E-PER S-LOC S-LOC"),
        # A file without tags has no form to follow.
        ("a\nb\nc\n\nd\n", "PER PER LOC LOC"),
    ],
)
def test_labels_without_prefixes(tmp_path, text, answers):
    """A model of such labels answers in the form of any file."""
    train = words_of(tmp_path, "a PER\nb PER\nc LOC\n\nd O\n", "train.txt")
    config = TASK.configure(TagRecipe(max_seq_length=24), train)
    assert config.labels == ("O", "LOC", "PER")
    (tmp_path / "words.txt").write_text(text)
    has_tags = " " in text
    words = read_conll(str(tmp_path / "words.txt"), tagged=has_tags)
    logits = np.eye(3, dtype="float32")[[2, 2, 1, 1]] * 9
    found = TASK.decode(
        {"logits": logits}, Split(words, None), tokenizer(), config
    )
    assert found.tags == answers.split()
    if has_tags:
        score = TASK.score(Answered(words, found, config))
        assert score.values["accuracy"] == 3 / 4
        assert score.values["f1"] == 4 / 5
        # Of three words next to nothing, of one that misses by 9.
        assert score.loss == pytest.approx(9 / 4, abs=1e-3)
        labels = TASK.encode(words, tokenizer(), config, labelled=True).tags
        assert labels.tolist() == [2, 2, 1, 0]
        # All words are PER: one entity of three words, in the file's form.
        expected = 1 / 4 if "E-" in text else 2 / 4
        assert TASK.baseline(train, words)["accuracy"] == expected


def test_the_logits_of_tokens_are_the_same_without_padding():
    config = small_config()
    encoder = fill(BertEncoder(config))
    models = [
        bert_token_classifier(encoder, 3, 0.0, unpadded=unpadded)
        for unpadded in (False, True)
    ]
    models[1].set_weights(fill(models[0], seed=4).get_weights())
    inputs = encoder_inputs(config)
    padded, unpadded = (numpy(model(inputs)) for model in models)
    tokens = inputs["input_mask"] > 0
    np.testing.assert_allclose(padded[tokens], unpadded[tokens], atol=2e-5)
    assert not tokens.all()


def test_what_the_doctor_finds(tmp_path):
    for name, count in (("eng.train", 20), ("eng.testa", 3)):
        write_tags(tmp_path / name, count, 0, False)
    dev = (tmp_path / "eng.testa").read_text().replace("LOC", "ORG")
    long = "".join(f"Good{number}\u200b N I-NP O\n" for number in range(60))
    (tmp_path / "eng.testa").write_text(f"{dev}\n{long}")
    recipe = TagRecipe(data_dir=str(tmp_path), max_seq_length=32)
    splits = {k: TASK.load(k, recipe) for k in ("train", "dev")}
    found = TASK.examine(recipe, tokenizer(), splits)
    numbers, lines = found.numbers, "\n".join(found.lines)
    train, part = (numbers["splits"][k] for k in splits)
    assert train["sentences"] == train["document_marks"] * 4 == 20
    assert part["sentences"] == 4
    assert part["words_per_sentence"]["100"] == 60
    assert (part["long_sentences"], train["long_sentences"]) == (1, 0)
    assert part["windows_of_long_sentences"] >= 60 // 30
    # good60 is no word of the vocabulary.
    assert part["unknown"] >= 60
    assert part["suspicious"]["invisible"]["words"] == 60
    assert numbers["types_not_in_train"]["dev"] == {
        "ORG": part["entities"]["ORG"]
    }
    shared = numbers["in_train"]["dev"]
    assert shared["sentences"] == 3
    assert shared["with_other_tags"] >= 1
    assert shared["first"] == [3, 3]
    assert "ORG" in lines
    assert "(not in train)" in lines
    assert "sentences longer than 32 tokens: 1, read in " in lines
    assert "sentences of dev that are in train: 3 sentences, 75.0 %" in lines


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("word", ["Good", "good"])
def test_case_of_words_and_of_the_vocabulary(tmp_path, lower_case, word):
    words = words_of(tmp_path, f"{word} B-PER\na O\n")
    tokens = [*tokenizer().vocabulary.tokens, "Good"]
    found = TASK.examine(
        TagRecipe(), BertTokenizer(tokens, lower_case), {"train": words}
    )
    remarks = [x for x in found.lines if "remark" in x]
    if lower_case and word == "Good":
        (line,) = remarks
        assert "the model is uncased, and 50.00 % of the words have" in line
        assert line.endswith("cased models do better.")
    elif not lower_case and word == "good":
        (line,) = remarks
        assert "the model is cased, and the words have hardly any" in line
    else:
        assert not remarks


def test_documents_are_split_whole(tmp_path):
    words = some_words(tmp_path, 40, 7)
    train, dev = split_off_documents(words, 0.2, 5)
    assert (len(train), len(dev)) == (32, 8)
    assert len(train.document_starts) - 1 == 8
    both = sorted([*train.rows.tolist(), *dev.rows.tolist()])
    assert both == words.rows.tolist()
    for part in (train, dev):
        assert part.document_starts.tolist() == [*range(0, len(part) + 1, 4)]
        place = {row: number for number, row in enumerate(words.rows.tolist())}
        numbers = [place[row] for row in part.rows.tolist()]
        assert part.words == [words.words[number] for number in numbers]
        assert part.tags == [words.tags[number] for number in numbers]
        # Sentences are those of the file.
        assert set(part.rows[part.sentence_starts[:-1]]) <= set(
            words.rows[words.sentence_starts[:-1]]
        )
    again = split_off_documents(words, 0.2, 5)[1]
    other = split_off_documents(words, 0.2, 6)[1]
    assert again.rows.tolist() == dev.rows.tolist() != other.rows.tolist()
    # Documents of the same words stay on one side.
    text = "a O\n\nb B-PER\n\n" * 10 + "c O\n\n"
    train, dev = split_off_documents(words_of(tmp_path, text), 0.4, 0)
    assert not set(train.words) & set(dev.words)


def test_of_one_document_the_end_is_split_off(tmp_path):
    words = words_of(tmp_path, "-DOCSTART- O\n\na O\n\n")
    with pytest.raises(UserError, match=r"its 1 sentence\(s\) in 1 document"):
        split_off_documents(words, 0.1, 0)
    text = "".join(f"w{k} O\n\n" for k in range(10))
    words = words_of(tmp_path, f"-DOCSTART- O\n\n{text}")
    train, dev = split_off_documents(words, 0.2, 0)
    assert (len(train), len(dev)) == (8, 2)
    assert dev.rows[0] > train.rows[-1]


def test_official_numbers_of_conll2003(shared_data):
    """The real files: what they hold, and that every word is asked for."""
    assert TASK.defaults["score_test"]
    recipe = TagRecipe(**{**TASK.defaults, "data_dir": str(shared_data)})
    assert TASK.splits(TASK.dev_splits, recipe) == ("dev", "test")
    splits = {k: TASK.load(k, recipe) for k in ("train", "dev", "test")}
    assert [len(words) for words in splits.values()] == [14041, 3250, 3453]
    numbers = TASK.examine(recipe, tokenizer(), splits).numbers
    parts = numbers["splits"].values()
    assert [sum(p["entities"].values()) for p in parts] == [23499, 5942, 5648]
    # Tjong Kim Sang and De Meulder 2003, tables 1 and 2.
    assert [p["documents"] for p in parts] == [946, 216, 231]
    assert [p["document_marks"] for p in parts] == [946, 216, 231]
    assert [p["words"] for p in parts] == [203621, 51362, 46435]
    config = TASK.configure(recipe, splits["train"])
    assert len(config.labels) == 9
    dev = splits["dev"]
    rows = TASK.encode(dev, tokenizer(), config, labelled=True)
    assert len(rows) == 3250
    assert rows.word_starts[-1] == len(dev.words) == 51362
    batch = as_numpy(rows.batch(np.arange(9)))
    assert batch["tag_weights"].sum() == rows.word_starts[9]
