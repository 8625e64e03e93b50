"""Ranking: losses as sentence-transformers', files, scores of rankings."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint, read_arrays, save_checkpoint
from bert_tf.families.model_folder import build_model, text_tokenizer
from bert_tf.families.text_classification import report
from bert_tf.families.text_classification.ranking import UserRankingTask
from bert_tf.families.text_classification.ranking_files import RankingExample
from bert_tf.families.text_classification.recipe import RankingRecipe
from tests.families.pretrained.sentence_folders import write_cross_encoder
from tests.user_errors import error_of

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "ranking"
QUERIES = ["the cat", "a dog"]
DOCUMENTS = [
    ("the cat sat on the mat", "a dog ran"),
    ("the dog ran", "a cat sat", "the mat"),
]
# As in tests/golden/ranking/make.py; BCE has a row for each pair.
ROWS = {
    "bce": [
        (QUERIES[n], (document,), (label,))
        for n, labels in enumerate([(1.0, 0.0), (0.75, 0.0)])
        for document, label in zip(DOCUMENTS[n][:2], labels, strict=True)
    ],
    "listnet": [
        (QUERIES[0], DOCUMENTS[0], (1.0, 0.0)),
        (QUERIES[1], DOCUMENTS[1], (2.0, 0.5, 0.0)),
    ],
    "margin_mse": [
        (QUERIES[0], DOCUMENTS[0], (3.5, -1.25)),
        (QUERIES[1], DOCUMENTS[1][:2], (0.5, 0.25)),
    ],
}


def task_of(**settings):
    recipe = RankingRecipe(task="ranking", **settings)
    return UserRankingTask(name="ranking").resolve(recipe), recipe


def examples_of(rows):
    return [
        RankingExample(query, documents, labels, labels, str(n), n, "f")
        for n, (query, documents, labels) in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "model"
    return load_checkpoint(write_cross_encoder("plain", folder))


@pytest.mark.parametrize("name", ROWS)
def test_loss_and_gradient_of_scores(name):
    recorded = np.load(GOLDEN / "losses.npz")
    task, _ = task_of()
    labels = task.targets(examples_of(ROWS[name]), ())
    is_document = ~np.isnan(labels)
    # The scores of padding do not matter.
    scores = np.full(labels.shape, 7.0, np.float32)
    scores[is_document] = recorded[f"{name}.scores"]
    objective = task.objective(name)
    batch = {
        "document_labels": labels,
        "example_weights": np.ones(len(labels), np.float32),
        "choice_mask": is_document.astype(np.float32),
    }
    logits = tf.Variable(scores)
    with tf.GradientTape() as tape:
        losses, _ = objective({"logits": logits}, batch)
        loss = losses["loss"] / len(labels)
    assert float(loss) == pytest.approx(float(recorded[name]), rel=1e-6)
    gradient = tape.gradient(loss, logits).numpy()
    expected = recorded[f"{name}.gradient"]
    np.testing.assert_allclose(gradient[is_document], expected, atol=1e-6)
    assert not gradient[~is_document].any()


@pytest.mark.parametrize("name", ROWS)
def test_loss_and_gradient_of_a_model(name, cross_encoder, eagerly, tmp_path):
    recorded = np.load(GOLDEN / "losses.npz")
    task, recipe = task_of(max_seq_length=24)
    examples = examples_of(ROWS[name])
    config = task.configure(recipe, examples)
    model = build_model(task, config, cross_encoder, "float32")
    tokenizer = text_tokenizer(cross_encoder)
    rows = task.encode(examples, tokenizer, config, labelled=True)
    objective = task.objective(name)
    batch = rows.batch(np.arange(len(examples)))
    with tf.GradientTape() as tape:
        # Without dropout.
        losses, _ = objective(model(batch, training=False), batch)
        weights = objective.loss_weights(batch)
        loss = objective.normalise(losses, weights)["loss"]
    assert float(loss) == pytest.approx(float(recorded[name]), rel=1e-6)
    logits = model(batch)["logits"].numpy()
    targets = task.targets(examples, ())
    logits = np.where(np.isnan(targets), -np.inf, logits)
    assert objective.mean_loss(logits, targets) == pytest.approx(float(loss))
    # Written as if they were the weights, gradients get transformers' names.
    variables = model.trainable_variables
    for variable, gradient in zip(
        variables, tape.gradient(loss, variables), strict=True
    ):
        variable.assign(tf.convert_to_tensor(gradient))
    arrays = dict(model.arrays())
    written = dataclasses.replace(cross_encoder, arrays=arrays)
    save_checkpoint(tmp_path / "gradients", written, "hugging_face")
    found = read_arrays(tmp_path / "gradients" / "model.safetensors")
    expected = {
        key.partition("/")[2]: recorded[key]
        for key in recorded.files
        if key.startswith(f"{name}/")
    }
    assert len(expected) == 41
    largest = max(np.abs(array).max() for array in expected.values())
    # Both are in float32.
    atol = 2e-6 * max(largest, 1.0)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=0, atol=atol)


def read(tmp_path, *rows, labelled=True, **settings):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task, recipe = task_of(**settings)
    return task, task.read_file(str(path), recipe, labelled)


def test_three_forms_of_files(tmp_path):
    pair = {"query": "q", "document": "[d]", "label": 0.5}
    _, (example,) = read(tmp_path, pair)
    assert example[:4] == ("q", ("[d]",), (0.5,), (0.5,))
    lists = {"query": "q", "document": ["a", "b"], "label": [-2.5, 3]}
    _, (example,) = read(tmp_path, lists)
    # A negative score of a teacher means not relevant.
    assert example[1:4] == (("a", "b"), (-2.5, 3.0), (0.0, 3.0))
    del lists["label"], pair["label"]
    _, (example,) = read(tmp_path, lists, labelled=False)
    assert example[1:4] == (("a", "b"), None, None)
    columns = {"document_columns": "pos,neg,other", "query_column": "anchor"}
    row = {"anchor": "q", "pos": "a", "neg": "b", "other": "c"}
    for label, expected in (
        (None, (1.0, 0.0, 0.0)),
        ([4, 1, 2], (4.0, 1.0, 2.0)),
        ([3, 2.5], (0.0, -3.0, -2.5)),
    ):
        given = row if label is None else row | {"label": label}
        _, (example,) = read(tmp_path, given, **columns)
        assert example.documents == ("a", "b", "c")
        assert example.label == expected
        assert example.relevance == (1.0, 0.0, 0.0)


def test_lists_in_a_table_of_texts(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("query,document,label\nq,\"['a', 'b']\",\"[1, 0]\"\n")
    task, recipe = task_of()
    (example,) = task.read_file(str(path), recipe)
    assert example[1:3] == (("a", "b"), (1.0, 0.0))


@pytest.mark.parametrize(
    ("row", "settings", "expected"),
    [
        ({"document": "d", "label": "x"}, {}, "row 1: the label is 'x'"),
        ({"document": "d", "label": "nan"}, {}, "the label is 'nan'"),
        ({"document": ["a", "b"], "label": [1]}, {}, "has 1 labels"),
        ({"document": [], "label": []}, {}, "list of documents in 'document'"),
        ({"document": ["a", " "], "label": [1, 0]}, {}, "none of them empty"),
        ({"document": "", "label": 1}, {}, "the text in 'document' is empty"),
        (
            {"document": "d", "document_2": "e", "label": [1, 2, 3]},
            {"document_columns": "document,document_2"},
            "has 3 labels, ('1', '2', '3'), and 2 documents",
        ),
        ({"document": "d"}, {}, "has no 'label'"),
        ({"document": "d", "label": 1}, {"query_column": "no"}, "has no 'no'"),
    ],
)
def test_bad_rows(row, settings, expected, tmp_path):
    given = {"query": "q"} | row
    line = error_of(lambda: read(tmp_path, given, **settings))
    assert line.startswith(str(tmp_path / "rows.jsonl"))
    assert expected in line


def test_labels_that_fit_no_loss(tmp_path):
    row = {"query": "q", "document": "d", "label": 2}
    task, examples = read(tmp_path, row)
    assert task._loss(examples) == "bce"
    line = error_of(task.check, examples, None)
    assert "rows.jsonl, row 1: the label is 2, and `loss`=bce takes" in line
    for loss in ("listnet", "margin_mse"):
        task, examples = read(tmp_path, row, loss=loss)
        line = error_of(task.check, examples, None)
        assert f"has one document, and `loss`={loss} compares" in line


def test_losses_by_the_form_of_the_rows():
    task, recipe = task_of()
    columns = [("q", ("a", "b"), (2.0, 1.0))]
    for rows, relevance, expected in (
        (ROWS["bce"], None, "bce"),
        (ROWS["listnet"], None, "listnet"),
        (columns, (1.0, 0.0), "margin_mse"),
    ):
        examples = examples_of(rows)
        if relevance:
            examples = [e._replace(relevance=relevance) for e in examples]
        found = task.complete(recipe, examples, None, True)
        assert found.loss == expected


def test_scores_of_pairs_and_of_lists_are_the_same():
    task, _ = task_of()
    lists = [
        ("p", ("a", "b", "c"), (0.0, 1.0, 0.0)),
        ("q", ("a", "b"), (0.0, 2.0)),
        # No relevant document.
        ("r", ("a", "b"), (0.0, 0.0)),
    ]
    scores = [(0.9, 0.5, 0.1), (0.2, 0.3), (0.6, 0.4)]
    found = task.metrics(examples_of(lists), scores)
    pairs = [
        (query, (document,), (label,))
        for query, documents, labels in lists
        for document, label in zip(documents, labels, strict=True)
    ]
    flat = [(score,) for row in scores for score in row]
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = [examples_of(pairs)[n] for n in order]
    assert task.metrics(shuffled, [flat[n] for n in order]) == found
    ndcg = (1 / np.log2(3) + 1) / 2
    assert found == pytest.approx(
        {
            "ndcg@10": ndcg,
            "mrr@10": 0.75,
            "map@100": 0.75,
            "average_precision": (1 / 3 + 2 / 5) / 2,
        }
    )


def test_nothing_to_rank():
    task, _ = task_of()
    examples = examples_of([("p", ("a",), (1.0,)), ("q", ("a",), (0.0,))])
    line = error_of(task.metrics, examples, [(0.5,), (0.5,)])
    assert "so there is nothing to rank" in line


def test_rows_of_a_query_stay_in_one_split(tmp_path):
    rows = [
        {"query": f"q{n % 10}", "document": f"d{n}", "label": n % 2}
        for n in range(60)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task, recipe = task_of(train_file=str(path), dev_share=0.2)
    train, dev = (
        {e.query for e in task.load(split, recipe)}
        for split in ("train", "dev")
    )
    assert (len(train), len(dev)) == (8, 2)
    assert not train & dev
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[::10]))
    task, recipe = task_of(train_file=str(path))
    line = error_of(task.load, "train", recipe)
    assert "all rows have the same query" in line


def test_lists_in_memory(tmp_path):
    data = {
        "query": ["p", "q"],
        "document": [["a", "b"], ["c"]],
        "label": [[1, 0], [0.5]],
    }
    file = UserRankingTask(name="ranking").stored(data, "`train`", {})
    path = tmp_path / f"train.{file.ending}"
    path.write_text(file.text)
    task, recipe = task_of(**file.settings)
    first, second = task.read_file(str(path), recipe)
    assert first[:3] == ("p", ("a", "b"), (1.0, 0.0))
    assert second[:3] == ("q", ("c",), (0.5,))


def test_report():
    rows = [
        {
            "query": query,
            "documents": documents,
            "relevance": relevance,
            "prediction": scores,
        }
        for query, documents, relevance, scores in (
            ("p", ["a", "b"], [0.0, 1.0], [0.9, 0.2]),
            # Another row of the same query.
            ("p", ["c"], [0.0], [0.5]),
            ("q", ["a", "b"], [1.0, 0.0], [0.8, 0.1]),
            # Nothing is relevant, or everything.
            ("r", ["a"], [0.0], [0.3]),
            ("s", ["a"], [1.0], [0.3]),
        )
    ]
    similarity, mistakes = report.sections(rows, {})
    found = similarity.numbers["similarity"]
    assert found["mean of relevant"] == pytest.approx((0.2 + 0.8 + 0.3) / 3)
    assert found["mean of other"] == pytest.approx((0.9 + 0.5 + 0.1 + 0.3) / 4)
    assert (sum(found["relevant"]), sum(found["other"])) == (3, 4)
    assert mistakes.numbers["num_examples"] == 2
    (worst,) = mistakes.numbers["mistakes"]["worst"]
    expected = {"query": "p", "rank": 3, "documents": 3, "score": 0.2}
    expected |= {"top_score": 0.9, "relevant": "b", "top": "a"}
    assert worst == expected
