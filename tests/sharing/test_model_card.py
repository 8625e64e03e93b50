"""Cards that hubs can read, whatever a user calls things."""

import dataclasses
import pathlib

import pytest

from bert_tf.sharing.model_card import CardScore, ModelCard
from tests.sharing.cards import read_card, scores_of, table

AWKWARD = (
    'a: "b" #c',
    "- {x: [1, | 2",
    "<b>`code`</b> *bold* $x$ &amp;",
    "---",
    "yes",
    "1e3",
    "ümläut \u202e\u2028 中文",
    "lone \udcff half",
    "C:\\names\ttab\nline",
)
CARD = ModelCard(
    summary="BERT, fine-tuned for tests",
    pipeline_tag="text-classification",
    question={"text": "A lovely film."},
    init_from="hf://google-bert/bert-base-uncased@main",
    num_rows={"train": 12345, "dev": 7},
    labels=("up", "down"),
    scores=[
        CardScore(
            *("dev", "matthews", 0.5, 0.0, 0.45, 0.01, {"bert_base": 0.6}, 100)
        ),
        CardScore("dev", "cost", 0.5, 0.0),
        CardScore("dev", "accuracy", None, None),
    ],
    seeds=3,
    settings={"learning_rate": 1e-3, "train_file": "/home/me/secret.csv"},
    data_set="nyu-mll/glue/cola",
)


def test_what_it_says(tmp_path) -> None:
    CARD.write(tmp_path / "acceptable")
    card = read_card(tmp_path / "acceptable")
    data = card.data.to_dict()
    assert data["library_name"] == "bert_tf"
    assert data["base_model"] == "google-bert/bert-base-uncased"
    assert data["datasets"] == ["nyu-mll/glue"]
    # Under huggingface.co's name; what is no number is left out.
    assert data["metrics"] == ["matthews_correlation", "cost"]
    result, _ = card.data.eval_results
    assert (result.dataset_config, result.dataset_split) == ("cola", "dev")
    assert result.metric_value == 0.5
    assert card.data.model_name == "acceptable"
    head, _, *rows = table(card, "Scores")
    assert head[4:] == [
        *("mean of 3 seeds", "standard deviation", "bert base, published")
    ]
    assert rows == [
        ["dev", "matthews", "50.0", "0.0", "45.0", "1.0", "60.0"],
        ["dev", "cost", "0.5", "0", *"\u2013\u2013\u2013"],
        ["dev", "accuracy", *"\u2013\u2013\u2013\u2013\u2013"],
    ]
    assert ["train", "12,345"] in table(card, "Data")
    assert ["learning\\_rate", "0.001"] in table(card, "Training")
    assert "secret" not in card.text


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names(tmp_path, name) -> None:
    folder = tmp_path / name.replace("/", "")
    card = dataclasses.replace(
        CARD,
        summary=name,
        labels=(name,),
        num_rows={name: 1},
        scores=[CardScore(name, name, 0.25, 0.5, published={name: 1.0})],
        settings={"label_column": name},
        init_from=f"/home/me/{name}",
        data_set="",
    )
    card.write(folder)
    read = read_card(folder)
    valid = name.encode("utf-8", "backslashreplace").decode()
    assert scores_of(read) == {(valid, valid): 0.25}
    assert "base_model" not in read.data.to_dict()
    for heading in ("Scores", "Data", "Training"):
        widths = {len(row) for row in table(read, heading)}
        assert len(widths) <= 1, table(read, heading)
    # Nothing of it is markup, and a line stays a line.
    assert "<b>" not in read.text
    assert "`code`" not in read.text.replace("\\`", "")
    assert "/home/me" not in read.text


def test_what_a_user_wrote_stays(tmp_path) -> None:
    path = CARD.write(tmp_path)
    first = path.read_text()
    dataclasses.replace(CARD, summary="Something new").write(tmp_path)
    assert "Something new" in path.read_text()
    lines = [x for x in first.splitlines() if "Written by bert_tf" not in x]
    for own in ("\n".join(lines), "My model.\n"):
        path.write_text(own)
        assert CARD.write(tmp_path) == path
        assert path.read_text() == own
    path.write_bytes(b"\xff not UTF-8")
    assert CARD.write(pathlib.Path(tmp_path)) == path
    assert path.read_bytes() == b"\xff not UTF-8"


@pytest.mark.parametrize(
    ("kind", "tag", "tags"),
    [
        (
            "SentenceTransformer",
            "sentence-similarity",
            ["sentence-similarity", "feature-extraction", "dense"],
        ),
        ("CrossEncoder", "text-ranking", ["cross-encoder", "reranker"]),
        (
            "SparseEncoder",
            "feature-extraction",
            ["sparse-encoder", "sparse", "splade"],
        ),
        (
            "MultiVectorEncoder",
            "feature-extraction",
            ["multi-vector", "colbert", "late-interaction"],
        ),
    ],
)
def test_models_of_sentence_transformers(tmp_path, kind, tag, tags) -> None:
    losses = ("MatryoshkaLoss", "CoSENTLoss")
    card = dataclasses.replace(CARD, sentence_kind=kind, losses=losses)
    card.write(tmp_path)
    data = read_card(tmp_path).data
    assert data.pipeline_tag == tag
    assert data.tags == [
        *("bert", "keras", "tensorflow", "sentence-transformers", *tags),
        *("dataset_size:12345", "loss:MatryoshkaLoss", "loss:CoSENTLoss"),
    ]
    result, *_ = data.eval_results
    assert result.task_type == tag
    assert result.metric_name == "matthews"


def test_a_model_that_was_not_trained_here(tmp_path) -> None:
    card = dataclasses.replace(
        CARD, sentence_kind="SparseEncoder", num_rows={}, scores=()
    )
    card.write(tmp_path, "named")
    read = read_card(tmp_path)
    assert "# named" in read.text
    assert "## Use" in read.text
    assert "## Data" not in read.text
    assert "## Training" not in read.text
    assert not any("dataset_size" in tag for tag in read.data.tags)
