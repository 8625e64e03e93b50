"""`TextClassifier`: stock Keras on texts, the same as by hand."""

import functools
import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

import bert_tf
from bert_tf.text.text_batches import TextBatches
from tests.finetuning.sentence_runs import model_folder, texts
from tests.frames import Frame
from tests.user_errors import error_of

LABELS = ["negative", "positive"]
TRAIN, DEV = texts(44, 1), texts(13, 2)
TEXTS, NAMES = [e.text_a for e in TRAIN], [e.label for e in TRAIN]
# Two batches of 8, where what is trained does not matter.
FEW = 12
NUMBERS = np.array([LABELS.index(name) for name in NAMES])
DEV_DATA = [e.text_a for e in DEV], [e.label for e in DEV]
PAIRS = [(e.text_a, e.text_b) for e in texts(12, 3, pairs=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(
        tmp_path_factory.mktemp("start") / "model", num_hidden_layers=1
    )


@functools.cache
def tokenizer(folder):
    """Traced once."""
    return bert_tf.BertTokenizer.from_checkpoint(folder)


@pytest.fixture
def eager_steps(monkeypatch):
    """Keras trains without a graph; that of the data stays."""
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(keras.Model, "run_eagerly", always)


def classifier(folder, **settings):
    keras.utils.set_random_seed(7)
    values = {"labels": LABELS, "max_seq_length": 32, "learning_rate": 1e-2}
    return bert_tf.TextClassifier.from_checkpoint(folder, **values | settings)


@pytest.fixture(scope="module")
def model(folder):
    """One that is not trained."""
    return classifier(folder)


def fitted(folder, *data, **settings):
    """The weights and numbers that a short training in order leaves."""
    model = classifier(folder)
    done = model.fit(*data, **{"shuffle": False, "verbose": 0} | settings)
    return [w.numpy() for w in model.weights], done.history


def assert_same(first, second):
    assert first[1] == second[1]
    for ours, theirs in zip(first[0], second[0], strict=True):
        assert_array_equal(ours, theirs)


def test_fit_is_the_program_written_by_hand(folder, eager_steps):
    settings = {"epochs": 2, "verbose": 0, "shuffle": False}
    ours, history = fitted(folder, TEXTS[:FEW], NAMES[:FEW], 8, 2)
    keras.utils.set_random_seed(7)
    encoder = bert_tf.BertEncoder.from_checkpoint(folder)
    pack = bert_tf.SentencePacker(tokenizer(folder), 32)
    data = tf.data.Dataset.from_tensor_slices((TEXTS[:FEW], NUMBERS[:FEW]))
    # Autograph would read the whole tokenizer.
    packed = tf.autograph.experimental.do_not_convert(
        lambda text, label: (pack(text), label)
    )
    data = data.batch(8).map(packed)
    model = bert_tf.bert_classifier(encoder, 2, unpadded=True)
    model.compile(
        bert_tf.adamw(1e-2, total_steps=4, warmup=0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    done = model.fit(data, **settings)
    assert_same(
        (ours, history), ([w.numpy() for w in model.weights], done.history)
    )
    assert history["loss"][1] != history["loss"][0]


def test_labels_and_weights_by_name_are_those_by_number(folder, eager_steps):
    weights = np.where(NUMBERS == 1, 3.0, 1.0)
    first, last = slice(9), slice(9, FEW)
    ours = fitted(
        folder,
        TEXTS[:FEW],
        NAMES[:FEW],
        8,
        class_weight={"negative": 1.0, "positive": 3.0},
        validation_split=0.25,
    )
    theirs = fitted(
        folder,
        np.array(TEXTS[first]),
        NUMBERS[first],
        8,
        sample_weight=weights[first],
        validation_data=(TEXTS[last], NUMBERS[last]),
    )
    assert_same(ours, theirs)
    assert ours[1].keys() == {"accuracy", "loss", "val_accuracy", "val_loss"}


def batches_of(folder, *data, pairs=False, **settings):
    """All that a model of these labels is given, flat."""
    pack = bert_tf.SentencePacker(tokenizer(folder), 24)
    made = TextBatches(pack, LABELS, pairs).make("x", *data, **settings)
    batches = list(made.as_numpy_iterator())
    return [keras.tree.flatten(batch) for batch in batches]


def test_every_form_of_the_same_data_is_the_same_batches(folder):
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, NAMES)).batch(32)
    forms = [
        (TEXTS, NAMES),
        (tuple(TEXTS), NUMBERS),
        (np.array(TEXTS), NUMBERS.tolist()),
        (iter(TEXTS), np.array(NAMES, object)),
        (rows,),
        (rows.map(lambda text, name: ((text,), name == "positive")),),
    ]
    expected = batches_of(folder, *forms[0])
    assert [len(batch[0]) for batch in expected] == [32, 12]
    assert_array_equal(expected[1][-1], NUMBERS[32:])
    for form in forms[1:]:
        for ours, theirs in zip(
            batches_of(folder, *form), expected, strict=True
        ):
            keras.tree.map_structure(assert_array_equal, ours, theirs)
    texts_alone = batches_of(folder, TEXTS, labelled=False)
    assert_array_equal(texts_alone[0], expected[0][:-1])
    shuffled = batches_of(folder, TEXTS, NAMES, shuffle=True)
    ids = [
        np.concatenate([b[0] for b in form]) for form in (shuffled, expected)
    ]
    assert (ids[0] != ids[1]).any()
    assert_array_equal(*(each[np.lexsort(each.T)] for each in ids))


def test_pairs_are_packed_as_pairs(folder):
    columns = tuple(map(list, zip(*PAIRS, strict=True)))
    packed = bert_tf.SentencePacker(tokenizer(folder), 24)(*columns)
    data = tf.data.Dataset.from_tensor_slices((columns,)).batch(12)
    for form in (PAIRS, data):
        (batch,) = batches_of(folder, form, pairs=True, labelled=False)
        assert_array_equal(batch, keras.tree.flatten(packed))
    assert packed["segment_ids"].numpy().any()


@pytest.mark.witness("TextClassifier learns by fit; a .keras file holds it")
def test_it_learns_and_a_file_of_keras_holds_all_of_it(
    folder, tmp_path, monkeypatch, request
):
    """Trained in graphs, as users do."""
    model = classifier(folder)
    path = tmp_path / "best.keras"
    best = keras.callbacks.ModelCheckpoint(
        path, "val_accuracy", save_best_only=True
    )
    settings = {"validation_data": DEV_DATA, "callbacks": [best]}
    model.fit(TEXTS, NAMES, 8, epochs=6, verbose=0, **settings)
    request.getfixturevalue("eager_steps")
    loaded = keras.saving.load_model(path)
    scores = loaded.evaluate(*DEV_DATA, verbose=0, return_dict=True)
    assert scores["accuracy"] > 0.9
    assert "['negative', 'positive'], 1 layers of 16" in repr(loaded)
    logits = loaded.predict(DEV_DATA[0], verbose=0)
    assert logits.shape == (13, 2)
    assert_allclose(loaded(DEV_DATA[0]), logits, atol=1e-5)
    data = tf.data.Dataset.from_tensor_slices(DEV_DATA[0]).batch(13)
    assert_allclose(loaded.predict(data, verbose=0), logits, atol=1e-5)
    # The saved rate has fallen to 0; each fit is a training of its own.
    assert float(model.optimizer.learning_rate) == 0
    monkeypatch.setattr(keras.Model, "fit", lambda *args, **settings: None)
    loaded.fit(TEXTS, NAMES)
    assert float(loaded.optimizer.learning_rate) == pytest.approx(1e-2)


def test_the_users_own_compilation_stays(folder):
    """And the optimizer is built once, since that may reset its state."""
    built = []

    class Counting(keras.optimizers.SGD):
        def build(self, variables):
            built.append(len(variables))
            super().build(variables)

    model, optimizer = classifier(folder), Counting(0.0)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, run_eagerly=True)
    before = [w.numpy() for w in model.weights]
    for _ in range(2):
        model.fit(TEXTS[:8], np.eye(2)[NUMBERS[:8]], verbose=0)
    assert model.optimizer is optimizer
    assert built == [len(model.trainable_variables)]
    for weight, array in zip(model.weights, before, strict=True):
        assert_array_equal(weight, array)


def test_the_rate_falls_where_the_number_of_steps_is_known(
    folder, monkeypatch, capfd
):
    monkeypatch.setattr(keras.Model, "fit", lambda *args, **settings: None)
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, NAMES)).batch(22).repeat()
    model = classifier(folder)
    model.fit(rows)
    assert "the learning rate stays at 0.01" in capfd.readouterr().err
    assert model.optimizer.get_config()["learning_rate"] == pytest.approx(0.01)
    for data, settings, steps in (
        (rows, {"steps_per_epoch": 5, "epochs": 3, "initial_epoch": 1}, 10),
        (rows.take(2), {}, 2),
        (TEXTS, {"y": NAMES, "batch_size": 8, "epochs": 2}, 12),
    ):
        model.fit(data, **settings)
        schedule = model.optimizer.get_config()["learning_rate"]["config"]
        assert schedule["total_steps"] == steps
    assert not capfd.readouterr().err


def test_a_model_folder_answers_the_same(folder, tmp_path, capfd, eager_steps):
    model = classifier(folder, pairs=True)
    model.weights[-1].assign([0.5, -0.5])
    logits = model.predict(PAIRS, verbose=0)
    model.save_checkpoint(tmp_path)
    again = classifier(tmp_path, labels=None, pairs=True)
    assert_array_equal(again.predict(PAIRS, verbose=0), logits)
    loaded = bert_tf.load(tmp_path)
    loaded._function = loaded._function.python_function
    answers = loaded(*map(list, zip(*PAIRS, strict=True)))
    probabilities = keras.ops.softmax(logits)[:, 1]
    found = [answer["probabilities"]["positive"] for answer in answers]
    assert_allclose(found, probabilities, atol=1e-5)
    for own in (model.answer(PAIRS), [*map(model.answer, map(tuple, PAIRS))]):
        assert [a["label"] for a in own] == [a["label"] for a in answers]
        for each, other in zip(own, answers, strict=True):
            assert each.keys() == other.keys()
            for name in ("probability", "probabilities"):
                assert each[name] == pytest.approx(other[name], abs=1e-5)
    # The same names in another order.
    swapped = ["positive", "negative"]
    other = classifier(tmp_path, labels=swapped, pairs=True)
    assert_allclose(other(PAIRS), logits[:, ::-1], atol=1e-5)
    # A head of another kind is not used as one of classes without a word.
    path = tmp_path / "task.json"
    values = json.loads(path.read_text()) | {"label_kind": "multi_label"}
    path.write_text(json.dumps(values))
    line = "its classifier was trained as multi_label_classification, and a"
    assert line in error_of(classifier, tmp_path, labels=None)
    capfd.readouterr()
    classifier(tmp_path, labels=swapped, pairs=True)
    line = "multi_label_classification and is used as single_label_class"
    assert line in capfd.readouterr().err


def test_one_text_is_one_row(model):
    (expected,) = model.predict(TEXTS[:1], verbose=0)
    found = model.predict(TEXTS[0], verbose=0)
    assert_array_equal(found, expected)
    assert_allclose(model(TEXTS[0]), expected, atol=1e-5)


BAD = [
    ({"x": "a film"}, "`x` is one string, 'a film'; give a list of them."),
    ({"x": []}, "`x`: is empty; give at least one text."),
    ({"x": 3}, "`x` is 3; give a list of strings"),
    ({"x": {"text": ["a"]}}, "`x` is a mapping with the keys 'text'; give the"),
    ({"x": {"a", "b"}}, "`x` is {"),
    ({"x": Frame({"text": ["a"], "label": [0]})}, "`x` is a table with th"),
    ({"x": ["a", None]}, "`x`[1] is None; give a string or a pair of strings."),
    ({"x": ["a", float("nan")]}, "`x`[1] is nan; give a string"),
    ({"x": ["a", b"b"]}, "`x`[1] is b'b'; give a string"),
    ({"x": ["a", "\ud800"]}, "`x`[1] is '\\ud800', with half of a surrogate"),
    ({"x": ["a", ("b", "c")]}, "`x`[1] has 2 texts and `x`[0] has 1"),
    ({"x": [("b", "c")]}, "`x`: has 2 text(s) a row, and the model takes 1;"),
    ({"y": ["negative"]}, "`x`: has 2 texts, and there are 1 labels or weig"),
    ({"y": None}, "`x`: comes without labels; give each text one."),
    ({"y": [0, 2]}, "`y`[1] is 2; give the name of a label, which are neg"),
    ({"y": ["negative", "bad"]}, "`y`[1] is 'bad'; give the name"),
    ({"y": [0.0, float("nan")]}, "`y`[0] is 0.0; give the name"),
    ({"y": [["negative"], []]}, "`y`[0] is ['negative']; give the name"),
    ({"sample_weight": [1.0]}, "`x`: has 2 texts, and there are 1 labels or"),
    ({"class_weight": {"bad": 2.0}}, "`class_weight` is 'bad'; give the name"),
    ({"validation_split": 0.6}, "`validation_split`=0.6: leaves none of 2 t"),
    ({"validation_data": (["a"], ["bad"])}, "labels of `validation_data`[0] "),
]


@pytest.mark.parametrize(("given", "line"), BAD)
def test_what_is_no_text_or_label_is_one_line(model, given, line):
    values = {"x": ["a film", "the plot"], "y": ["negative", "positive"]}
    assert error_of(model.fit, **values | given).startswith(line)


def test_tables_and_batches_of_a_program_train_as_lists_do(folder, eager_steps):
    """A table of one column, a column, a generator and a PyDataset."""
    texts, names = TEXTS[:FEW], NAMES[:FEW]
    weights = np.linspace(0.5, 1.5, FEW, dtype=np.float32)
    every = [slice(i, i + 8) for i in range(0, FEW, 8)]

    class Batches(keras.utils.PyDataset):
        ended = 0

        def __len__(self):
            return len(every)

        def __getitem__(self, index):
            part = every[index]
            return texts[part], names[part], weights[part]

        def on_epoch_end(self):
            self.ended += 1

    batches, model = Batches(), classifier(folder, max_seq_length=np.int64(20))
    by_list = model._data.make("x", texts, names, weights, np.int64(8))
    generator = model._data.make("x", (batches[i] for i in range(len(every))))
    packed = model._data.make("x", batches)
    for other in (generator, map(packed.__getitem__, range(len(every)))):
        for found, expected in zip(other, by_list, strict=True):
            keras.tree.map_structure(assert_array_equal, found, expected)
    model.fit(batches, epochs=np.int64(2), verbose=0)
    schedule = model.optimizer.get_config()["learning_rate"]["config"]
    assert (schedule["total_steps"], batches.ended > 1) == (4, True)
    more = itertools.cycle([batches[0]])
    model.fit(more, steps_per_epoch=1, epochs=2, verbose=0)
    logits = model.predict(TEXTS[:16], verbose=0)
    given = [TEXTS[:8], TEXTS[8:16]]
    table = Frame({"text": TEXTS[:16]})
    for x, steps in ((iter(TEXTS[:16]), None), (table, None), (iter(given), 2)):
        found = model.predict(x, steps=steps, verbose=0)
        assert_allclose(found, logits, atol=1e-5)
    for x in (batches, iter([batches[0]])):
        assert "leave out `y`" in error_of(model.fit, x, batch_size=8)
    line = error_of(list, model._data.make("x", iter([(["a"], ["bad"])])))
    assert line.startswith("`y`[0] is 'bad'")
    line = error_of(list, model._data.make("x", iter([(5, ["bad"])])))
    assert line.startswith("`x` is 5; give a list of strings")
    line = error_of(model.fit, batches, validation_split=0.5)
    assert "beside batches give `validation_data`" in line


def test_data_sets_that_do_not_fit_are_refused(folder, model):
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, NAMES))
    assert "as .batch(32) makes them" in error_of(model.fit, rows)
    rows = rows.batch(8)
    assert "leave out `y`" in error_of(model.fit, rows, NAMES)
    line = error_of(model.fit, rows, validation_split=0.5)
    assert "`validation_split`=0.5" in line
    wrong = rows.map(lambda text, _: (text, tf.fill(tf.shape(text), "bad")))
    with pytest.raises(tf.errors.InvalidArgumentError, match="neither a name"):
        batches_of(folder, wrong)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"labels": None}, "`labels`: {folder} has no classifier; name the"),
        ({"labels": "good"}, "`labels` is 'good'; name two classes or more"),
        ({"labels": ["good"]}, "`labels` is ['good']; name two classes"),
        ({"labels": [0, 1]}, "`labels` is [0, 1]; name two classes"),
        ({"labels": ["a", "a"]}, "`labels`: the label 'a' occurs twice."),
        ({"max_seq_length": 41}, "`max_seq_length`=41: give a whole number"),
        ({"max_seq_length": 3, "pairs": True}, "`max_seq_length`=3: give a"),
    ],
)
def test_what_no_model_is_made_of(folder, settings, line):
    found = error_of(classifier, folder, **settings)
    assert found.startswith(line.format(folder=folder))
