"""Models with subword tokenizers answer alike wherever they are asked.

A blank belongs to the next piece, and a word at the start of a text may have
other pieces than inside of it.
"""

import dataclasses
import functools
import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import bert_tf
from bert_tf.checkpoints import load_checkpoint
from bert_tf.distillation.run import distill_task
from bert_tf.families.explained import TokenizedTexts
from bert_tf.families.recipe import PruningSettings
from bert_tf.families.token_classification.conll_files import read_conll
from bert_tf.families.token_classification.windows import encode_words
from bert_tf.finetuning.pruning import prune
from bert_tf.finetuning.run import run_finetuning
from bert_tf.inference.export_file import export_file
from bert_tf.inference.saving import write_saved_model
from bert_tf.inference.served_folder import served_model
from bert_tf.teacher_settings import StudentSettings
from bert_tf.text.layout import SentencePacker
from tests.contracts.task_cases import CASES, without_drawings
from tests.families.token_classification.test_word_windows import words_of
from tests.inference.model_folders import HEADS
from tests.run_folders import answer_lines
from tests.sharing.cards import read_card
from tests.subword_models import (
    NAMES,
    config_of,
    tokenizer_of,
    write_encoder,
    write_model,
)
from tests.user_errors import error_of

# Eagerly run, tf.data's functions stay graphs, of which TensorFlow warns.
pytestmark = pytest.mark.filterwarnings("ignore:Even though")
every_name = pytest.mark.parametrize("name", NAMES)
TEXT = "so  great, it was (awful) in\u00a0Berlin. It's a good-bad U.N. plot!"
WORDS = (
    "so great , it was ( awful ) in Berlin . It 's a good-bad U.N. plot !"
).split()


@functools.cache
def graph_of(name):
    return tokenizer_of(name).tokenizer()


@every_name
@pytest.mark.usefixtures("eagerly")
def test_a_text_is_tagged_as_the_words_of_a_file(name, tmp_path):
    """Tokens, rows and offsets are those of the words, one by one."""
    served = served_model(write_model(tmp_path / "model", name, "tags"))
    tokens = served.tokens(tf.constant([TEXT, "", " . "]))
    row, begin, end, _ = (each.numpy().tolist() for each in tokens.words)
    places = list(zip(row, begin, end, strict=True))
    found = [TEXT[b:e] for r, b, e in places if r == 0]
    assert found == WORDS
    assert [place for place in places if place[0]] == [(2, 1, 2)]
    rows = served.rows(tokens)
    of_file = encode_words(
        words_of([[WORDS]]), served.tokenizer, HEADS["tags"][0]
    )
    ids, starts, *_ = of_file.rows.arrays
    windows = np.split(ids, starts[1:-1])
    packing = served.tokenizer.packing
    begins, counts = rows.texts.begin.numpy(), rows.texts.count.numpy()
    assert len(windows) > 2
    for number, window in enumerate(windows):
        own = rows.texts.ids[begins[number] :][: counts[number]].numpy()
        framed = [*packing.begin, *own.tolist(), *packing.end]
        assert window.tolist() == framed
    # transformers' fast tokenizers, with a blank before each word.
    library = tokenizer_of(name).library_tokenizer()
    for word, own in zip(WORDS, tokens.ids, strict=False):
        assert library.encode(f" {word}").ids == own.numpy().tolist()
    answers = served.answers(tf.constant([TEXT]))
    for entity, begin, end in zip(
        answers["entities"][0].numpy(),
        answers["starts"][0].numpy(),
        answers["ends"][0].numpy(),
        strict=True,
    ):
        assert entity.decode() == TEXT[begin:end] == TEXT[begin:end].strip()


@every_name
@pytest.mark.usefixtures("eagerly")
def test_words_are_explained(name, tmp_path):
    model = bert_tf.load(write_model(tmp_path / "model", name, "classes"))
    text = f" {TEXT}  "
    given = TokenizedTexts.of(model.served, {"text": text})
    # A piece of several words, such as "),", makes one word of them.
    spelled = [text[place.start : place.end] for place in given.words]
    assert re.sub(r"\s", "", "".join(spelled)) == "".join(WORDS)
    assert all(word == word.strip() for word in spelled)
    assert {"great", "Berlin", "good-bad", "plot"} <= set(spelled)
    assert set(given.owner) == set(range(len(spelled)))
    assert (np.diff(given.owner) >= 0).all()
    why = model.explain("so great", steps=1)
    # Without the marks of blanks, and bytes as characters.
    assert "".join(why.rows[0].texts[1:-1]) == "sogreat"
    assert [word.text for word in why.words] == ["so", "great"]
    masked = [graph_of(name).vocabulary.mask_id] * len(why.rows[0].tokens)
    packing = graph_of(name).packing
    masked[0], masked[-1] = packing.begin[0], packing.end[0]
    ids = tf.constant([masked])
    inputs = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    inputs["segment_ids"] = tf.zeros_like(ids)
    logits = model.served.forward(inputs)[0].numpy().astype(float)
    label = model.labels.index(why.target)
    others = np.logaddexp.reduce(np.delete(logits, label))
    assert why.baseline_score == pytest.approx(logits[label] - others, abs=1e-4)


@every_name
@pytest.mark.usefixtures("eagerly")
def test_a_mask_takes_the_blank_before_it(name, tmp_path):
    """As the library tokenizers recognize special tokens."""
    data = tokenizer_of(name)
    model = bert_tf.load(write_model(tmp_path / "model", name, "pretrained"))
    mask = data.special.mask
    text = f"so {mask} plot is{mask}. "
    masked, *_ = model.served.with_mask_ids(tf.constant([text]))
    expected = data.library_tokenizer(False).encode(text).ids
    assert masked.ids.numpy()[: masked.count[0]].tolist() == expected
    assert len(model(text)["masks"]) == 2
    why = model.explain(text, steps=1)
    assert [word.text for word in why.words] == ["so", "plot", "is", "."]


@pytest.mark.parametrize(
    ("name", "kind", "changes", "file_format"),
    [
        ("roberta", "span", {}, "onnx"),
        ("xlm-roberta", "pairs", {}, "onnx"),
        ("albert", "tags", {"num_hidden_layers": 2}, "onnx"),
        *(
            (
                *("modernbert", "classes"),
                {"num_hidden_layers": 2, "classifier_pooling": "mean"},
                file_format,
            )
            for file_format in ("onnx", "litert")
        ),
    ],
)
def test_files_of_other_runtimes(name, kind, changes, file_format, tmp_path):
    """The writer compares the outputs; rows are those of tokenizer.json."""
    folder = write_model(tmp_path / "model", name, kind, **changes)
    export_file(folder, tmp_path / "file", file_format)
    path = tmp_path / "file" / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    pack = SentencePacker(graph_of(name), 16)
    for texts in (("so  great, it",), ("",), ("the plot", "It's caf\u00e9.")):
        rows = {key: each.numpy() for key, each in pack(*texts).items()}
        found = library.encode(*texts)
        size = len(found.ids)
        assert found.ids == rows["input_ids"][:size].tolist()
        assert found.type_ids == rows["segment_ids"][:size].tolist()
        assert found.attention_mask == rows["input_mask"][:size].tolist()


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """A finished run by architecture and case."""

    @functools.cache
    def made(name, kind):
        place = tmp_path_factory.mktemp("runs")
        start = write_encoder(place / "start", name)
        task, recipe = CASES[kind].make(place / "files", start)
        if kind != "questions":
            # Pieces of words take more steps to learn than whole words.
            rate, epochs = {"tags": (2e-2, 4.0), "classes": (1e-2, 6.0)}[kind]
            recipe = dataclasses.replace(
                recipe, learning_rate=rate, num_train_epochs=epochs
            )
        with without_drawings():
            done = run_finetuning(
                task, recipe, place / "run", ("train", "eval")
            )
        return task, recipe, place / "run", done

    return made


def served_answers(folder, output_dir, **columns):
    """The answers of an exported model."""
    output_dir.mkdir()
    exported = write_saved_model(served_model(folder), output_dir)
    signature = tf.saved_model.load(str(exported)).signatures
    return signature["serving_default"](
        **{name: tf.constant(texts) for name, texts in columns.items()}
    )


@pytest.mark.parametrize("name", ["roberta", "albert"])
def test_entities_are_the_same_everywhere(name, run_of, tmp_path):
    _, recipe, folder, done = run_of(name, "tags")
    scores = done["train"]["dev"]["dev"]
    assert scores["f1"] > 0.7
    assert done["eval"]["dev"] == pytest.approx(scores, nan_ok=True)
    dev = read_conll(str(recipe.dev_file))
    texts = [" ".join(dev.words[part]) for part in dev.sentences()]
    # Of a sentence alone, as a text is.
    alone = dataclasses.replace(recipe, context="sentence")
    task = CASES["tags"].on_files(folder.parent / "files", folder)[0]
    run_finetuning(task, alone, folder, ["eval"])
    model = bert_tf.load(folder)
    answers = model(texts)
    for line, text, answer in zip(
        answer_lines(folder), texts, answers, strict=True
    ):
        tagged = set()
        for entity in answer["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"]
            first = text[: entity["start"]].count(" ")
            words = entity["text"].count(" ") + 1
            tagged |= set(range(first, first + words))
        expected = [n for n, t in enumerate(line["predictions"]) if t != "O"]
        assert sorted(tagged) == expected
    found = served_answers(folder, tmp_path / "served", text=texts)
    for row, answer in enumerate(answers):
        for number, entity in enumerate(answer["entities"]):
            assert found["entities"][row, number] == entity["text"].encode()
            assert found["starts"][row, number] == entity["start"]
    card = read_card(folder).text
    assert config_of(name).title in card
    assert graph_of(name).vocabulary.description in card


@pytest.mark.parametrize("name", ["xlm-roberta", "modernbert"])
def test_spans_are_the_same_everywhere(name, run_of, tmp_path, eagerly):
    _, _, folder, done = run_of(name, "questions")
    scores = done["train"]["dev"]["dev"]
    assert scores["f1"] >= CASES["questions"].reached
    lines = answer_lines(folder)
    columns = {
        key: [line[key] for line in lines] for key in ("question", "context")
    }
    answers = bert_tf.load(folder)(**columns)
    found = served_answers(folder, tmp_path / "served", **columns)
    for row, (line, answer) in enumerate(zip(lines, answers, strict=True)):
        assert answer["answer"] == line["prediction"]
        assert answer["start"] == line["start"]
        text = line["context"][answer["start"] : answer["end"]]
        assert text == answer["answer"] == text.strip()
        assert found["answer"][row] == text.encode()


def test_smaller_models(run_of, tmp_path, undrawn):
    """By low-rank updates, distillation and pruning."""
    task, recipe, folder, done = run_of("albert", "classes")
    assert done["train"]["dev"]["dev"]["accuracy"] >= 0.9
    updated = dataclasses.replace(
        recipe, lora_rank=4, lora_on="all_dense", learning_rate=3e-2
    )
    found = run_finetuning(task, updated, tmp_path / "lora", ("train", "eval"))
    assert found["train"]["dev"]["dev"]["accuracy"] >= 0.9
    assert found["eval"]["dev"] == pytest.approx(found["train"]["dev"]["dev"])
    written = json.loads((tmp_path / "lora/adapter_config.json").read_text())
    assert written["r"] == 4
    text = "good film, so fine."
    whole = served_model(tmp_path / "lora", merge=False)
    alone = np.asarray(whole.answers(tf.constant([text]))["probabilities"])
    merged = bert_tf.load(tmp_path / "lora")(text)["probabilities"]
    np.testing.assert_allclose(alone[0], list(merged.values()), atol=1e-5)
    taught = dataclasses.replace(
        recipe,
        init_from="",
        num_train_epochs=0.2,
        teacher=str(folder),
        hidden_state_weight=1.0,
        attention_score_weight=1.0,
    )
    student = StudentSettings(size="2/16/2")
    report = distill_task(task, taught, student, tmp_path / "small", False)
    assert set(report.models) == {"teacher", "student"}
    # A teacher with another tokenizer.
    start = write_encoder(tmp_path / "start", "xlm-roberta")
    line = error_of(
        run_finetuning,
        task,
        dataclasses.replace(recipe, teacher=str(folder), init_from=str(start)),
        tmp_path / "other",
        ("train",),
    )
    assert "another vocabulary" in line
    shares = PruningSettings(keep_heads=0.5, keep_columns=0.75, num_rows=9)
    cut = prune(task, recipe, folder, tmp_path / "cut", shares)
    scored = run_finetuning(task, recipe, tmp_path / "cut", ["eval"])
    assert scored["eval"]["dev"] == pytest.approx(dict(cut.after.scores))
    assert load_checkpoint(tmp_path / "cut").config.intermediate_size == 24


@pytest.mark.parametrize(
    ("setting", "value"), [("freeze_layers", 1), ("layer_decay", 0.8)]
)
def test_shared_layers_are_trained_alike(setting, value, tmp_path):
    start = write_encoder(tmp_path / "start", "albert", num_hidden_layers=2)
    task, recipe = CASES["classes"].make(tmp_path / "files", start)
    recipe = dataclasses.replace(recipe, **{setting: value})
    line = error_of(run_finetuning, task, recipe, tmp_path / "run", ("train",))
    assert line.startswith(f"`{setting}`={value}: ")
    assert "ALBERT" in line
    assert "share their weights" in line
