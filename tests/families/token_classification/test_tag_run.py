"""What taggers are trained for, and what their runs promise besides others."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import TOKEN_CLASSIFIER, load_checkpoint
from bert_tf.families.task import Answered, Split
from bert_tf.families.token_classification.conll_files import (
    TaggedWords,
    read_conll,
    split_off_documents,
)
from bert_tf.families.token_classification.recipe import TagRecipe
from bert_tf.families.token_classification.windows import TagObjective
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import prepare_training
from bert_tf.text.tokenizer import BertTokenizer
from tests.as_numpy import as_numpy
from tests.checkpoints.arrays import assert_same_arrays
from tests.contracts.task_cases import CASES, model_folder, write_tags
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import tokenizer
from tests.finished_runs import finished_run
from tests.run_folders import answer_lines, weights
from tests.user_errors import error_of
from tools.shared_flags import load_task

TASK = load_task("conll2003")
LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return finished_run("tags", tmp_path_factory.mktemp("stored") / "tags")


def words_of(tmp_path, text, **settings) -> TaggedWords:
    path = tmp_path / "words.txt"
    path.write_text(text)
    return read_conll(str(path), **settings)


def some_words(tmp_path, count, seed) -> TaggedWords:
    """Sentences, of which four make a document."""
    write_tags(tmp_path / "some.txt", count, seed, False)
    return read_conll(str(tmp_path / "some.txt"))


def mean_loss(words, logits, config):
    """The mean loss of a word, whatever is predicted."""
    return TASK.mean_loss(Answered(words, {"logits": logits}, config))


def test_only_first_sub_tokens_are_learned_from(tmp_path):
    words = some_words(tmp_path, 6, 3)
    config = TASK.configure(TagRecipe(max_seq_length=24), words)
    rows = TASK.encode(words, tokenizer(), config, labelled=True)
    batch = as_numpy(rows.batch(np.arange(6)))
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
    count = len(words.words)
    assert touched.sum() == count
    # Sentences show words of others too, and words have further sub-tokens.
    assert count < batch["input_mask"].sum() - 2 * 6
    # Every word counts the same.
    chosen = logits.numpy()[touched].astype(np.float64)
    gold = batch["tag_ids"][touched]
    total = np.log(np.exp(chosen).sum(axis=-1))
    expected = np.mean(total - chosen[np.arange(count), gold])
    assert float(mean["loss"]) == pytest.approx(expected, rel=1e-5)
    right, weight = metrics["accuracy"]
    assert (right, weight) == (np.sum(chosen.argmax(axis=-1) == gold), count)
    # The same loss as over the words of a split.
    logits = logits.numpy()[touched]
    assert mean_loss(words, logits, config) == pytest.approx(expected)
    # A tag that the model lacks has no loss.
    words.tags[-1] = "B-ORG"
    words = dataclasses.replace(words)
    others = total - chosen[np.arange(count), gold]
    found = mean_loss(words, logits, config)
    assert found == pytest.approx(others[:-1].mean())
    strange = words_of(tmp_path, "b B-ORG\n")
    assert mean_loss(strange, logits[:1], config) is None
    line = error_of(TASK.encode, words, tokenizer(), config, labelled=True)
    assert line.startswith(f"{words.path}: has the tag 'B-ORG', which is none")


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
    train = words_of(tmp_path, "a PER\nb PER\nc LOC\n\nd O\n")
    config = TASK.configure(TagRecipe(max_seq_length=24), train)
    assert config.labels == ("O", "LOC", "PER")
    has_tags = " " in text
    words = words_of(tmp_path, text, tagged=has_tags)
    logits = np.eye(3, dtype="float32")[[2, 2, 1, 1]] * 9
    split = Split(words, None)
    found = TASK.decode({"logits": logits}, split, config)
    assert found["prediction"] == answers.split()
    if has_tags:
        scores = TASK.score(Answered(words, found, config))
        assert scores["accuracy"] == 3 / 4
        assert scores["f1"] == 4 / 5
        # Of three words next to nothing, of one that misses by 9.
        loss = mean_loss(words, logits, config)
        assert loss == pytest.approx(9 / 4, abs=1e-3)
        labels = TASK.encode(words, tokenizer(), config, labelled=True).tags
        assert labels.tolist() == [2, 2, 1, 0]
        # All words are PER: one entity of three words, in the file's form.
        expected = 1 / 4 if "E-" in text else 2 / 4
        assert TASK.baseline(train, words)["accuracy"] == expected


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
    assert "(not in train)" in lines
    assert "sentences longer than 32 tokens: 1, read in " in lines
    assert "3 sentences, 75.0 %" in lines


@pytest.mark.parametrize("lower_case", [True, False])
def test_case_of_words_and_of_the_vocabulary(tmp_path, lower_case):
    tokens = [*tokenizer().vocabulary.tokens, "Good"]
    tokens = BertTokenizer(tokens, lower_case)
    for word, fits in (("Good", not lower_case), ("good", lower_case)):
        words = words_of(tmp_path, f"{word} B-PER\na O\n")
        found = TASK.examine(TagRecipe(), tokens, {"train": words})
        remarks = "".join(x for x in found.lines if "remark" in x)
        kind = "un" if lower_case else ""
        assert (f"the model is {kind}cased" in remarks) is not fits
        other = "" if lower_case else "un"
        assert f"the model is {other}cased" not in remarks


def test_documents_are_split_whole(tmp_path):
    words = some_words(tmp_path, 40, 7)
    train, dev = split_off_documents(words, 0.2, 5)
    assert (len(train), len(dev)) == (32, 8)
    both = sorted([*train.rows.tolist(), *dev.rows.tolist()])
    assert both == words.rows.tolist()
    place = {row: number for number, row in enumerate(words.rows.tolist())}
    for part in (train, dev):
        assert part.document_starts.tolist() == [*range(0, len(part) + 1, 4)]
        numbers = [place[row] for row in part.rows.tolist()]
        assert part.words == [words.words[number] for number in numbers]
        assert part.tags == [words.tags[number] for number in numbers]
        # Sentences are those of the file.
        assert set(part.rows[part.sentence_starts[:-1]]) <= set(
            words.rows[words.sentence_starts[:-1]]
        )
    # Documents of the same words stay on one side.
    text = "a O\n\nb B-PER\n\n" * 10 + "c O\n\n"
    train, dev = split_off_documents(words_of(tmp_path, text), 0.4, 0)
    assert not set(train.words) & set(dev.words)
    # Of a single document, the end is split off.
    text = "".join(f"w{k} O\n\n" for k in range(10))
    words = words_of(tmp_path, f"-DOCSTART- O\n\n{text}")
    train, dev = split_off_documents(words, 0.2, 0)
    assert (len(train), len(dev)) == (8, 2)
    assert dev.rows[0] > train.rows[-1]
    words = words_of(tmp_path, "-DOCSTART- O\n\na O\n\n")
    line = error_of(split_off_documents, words, 0.1, 0)
    assert "1 sentence(s) in 1 document(s) cannot" in line


def test_dev_predictions_hold_every_sentence(stored):
    run = stored
    dev = read_conll(str(run.files / "dev.csv"))
    words = read_conll(str(run.folder / "predictions_dev.txt"))
    assert answer_lines(run.folder) == [
        {
            "row": dev.rows[part.start],
            "words": dev.words[part],
            "tags": dev.tags[part],
            "predictions": words.tags[part],
        }
        for part in dev.sentences()
    ]


def test_what_no_tag_depends_on_is_neither_trained_nor_missed(tmp_path):
    """The pooler: it stays as it was, and is not reported as fresh."""
    start = model_folder(tmp_path / "start")
    case_task, recipe = CASES["tags"].make(tmp_path / "files", start)
    recipe = recipe.override(["num_train_epochs=0.12"])
    with quickly():
        run_finetuning(case_task, recipe, tmp_path / "run", ["train"])
    whole = load_checkpoint(start)
    for name, array in weights(tmp_path / "run" / "last").items():
        if name in whole.arrays:
            stays = "pooler" in name
            assert np.array_equal(array, whole.arrays[name]) == stays, name
    without = {n: a for n, a in whole.arrays.items() if "pooler" not in n}
    assert len(without) < len(whole.arrays)
    task = case_task.resolve(recipe)
    for arrays, fresh in ((whole.arrays, ()), (without, ("pooler",))):
        initial = dataclasses.replace(whole, arrays=arrays)
        found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
        assert found.fresh == fresh


def test_a_head_serves_where_the_tags_are_the_same(stored, tmp_path, capsys):
    run = stored
    settings = [f"init_from={run.folder}"]
    for name in ("train", "dev"):
        path = tmp_path / f"{name}.csv"
        path.write_bytes((run.files / path.name).read_bytes())
        settings.append(f"{name}_file={path}")
    recipe = run.recipe.override(settings)
    initial = load_checkpoint(run.folder)

    def prepared(initial, recipe=recipe):
        task = run.task.resolve(recipe)
        return prepare_training(task, recipe, initial, tokenizer(), tmp_path)

    # The names decide, not their order.
    arrays = dict(initial.arrays)
    for name in (n for n in arrays if "token_classification" in n):
        arrays[name] = arrays[name][::-1]
    labels = initial.labels[::-1]
    reverse = dataclasses.replace(initial, arrays=arrays, labels=labels)
    for each in (initial, reverse):
        found = prepared(each)
        assert found.fresh == ()
        assert found.initial.labels == found.config.labels == initial.labels
        assert_same_arrays(found.initial.arrays, initial.arrays)
    reset = dataclasses.replace(recipe, reset_head=True)
    assert prepared(initial, reset).fresh == (TOKEN_CLASSIFIER,)
    capsys.readouterr()
    train = tmp_path / "train.csv"
    train.write_text(train.read_text().replace("PER", "MAN"))
    assert prepared(initial).fresh == (TOKEN_CLASSIFIER,)
    captured = capsys.readouterr()
    line = "only in the model: 'B-PER', 'I-PER'; only in the data: 'B-MAN', "
    assert line in captured.err
    # The dev file has the old types.
    assert "of types that the model does not learn (PER)" in captured.err
    assert "(not in train)" in captured.out


def test_the_files_of_a_folder(tmp_path, capsys):
    """Test is read without tags, unless it is to be scored."""

    def recipe_of(folder=tmp_path, **settings):
        values = {**TASK.defaults, "data_dir": str(folder), **settings}
        return TagRecipe.from_dict(values, "test")

    def line_of(call, folder, **settings):
        return error_of(call, "train", recipe_of(folder, **settings))

    for name in ("eng.train", "eng.testa"):
        write_tags(tmp_path / name, 4, 0, False)
    (tmp_path / "eng.testb").write_text("no tags\n\nhere either\n")
    plain, scored = recipe_of(score_test=False), recipe_of(score_test=True)
    task = TASK.resolve(plain)
    assert task.splits(task.dev_splits, plain) == ("dev",)
    words = task.load("test", plain)
    assert (words.words, words.tags) == (["no", "here"], [])
    task = TASK.resolve(scored)
    assert task.splits(task.dev_splits, scored) == ("dev", "test")
    assert task.load("test", scored).tags == ["tags", "either"]
    (tmp_path / "eng.testb").unlink()
    assert task.splits(task.dev_splits, scored) == ("dev",)
    assert "continuing with only dev" in capsys.readouterr().err
    folder = tmp_path / "no"
    assert line_of(task.load, "").startswith("`data_dir`=...: name the folder")
    assert line_of(task.load, folder).endswith("no such folder.")
    folder.mkdir()
    assert "has neither eng.train nor train.txt" in line_of(task.load, folder)
    line = line_of(task.load, tmp_path, tag_column=7)
    assert "tag_column=7 is not there" in line
    words = words_of(tmp_path, "a O\nb O\n")
    assert "every word has the tag O" in error_of(task.configure, plain, words)


def test_official_numbers_of_conll2003(shared_data):
    """The real files: what they hold, and that every word is asked for."""
    assert TASK.defaults["score_test"]
    recipe = TagRecipe(**{**TASK.defaults, "data_dir": str(shared_data)})
    assert TASK.splits(TASK.dev_splits, recipe) == ("dev", "test")
    splits = {k: TASK.load(k, recipe) for k in ("train", "dev", "test")}
    assert [len(words) for words in splits.values()] == [14041, 3250, 3453]
    # Tjong Kim Sang and De Meulder 2003, tables 1 and 2.
    assert [len(w.document_starts) - 1 for w in splits.values()] == [
        *(946, 216, 231)
    ]
    counts = [len(words.words) for words in splits.values()]
    assert counts == [203621, 51362, 46435]
    config = TASK.configure(recipe, splits["train"])
    assert len(config.labels) == 9
    dev = splits["dev"]
    found = TASK.examine(recipe, tokenizer(), {"dev": dev}).numbers["splits"]
    assert sum(found["dev"]["entities"].values()) == 5942
    rows = TASK.encode(dev, tokenizer(), config, labelled=True)
    assert len(rows) == 3250
    assert rows.word_starts[-1] == len(dev.words) == 51362
    batch = as_numpy(rows.batch(np.arange(9)))
    assert batch["tag_weights"].sum() == rows.word_starts[9]
