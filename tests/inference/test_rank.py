"""Ranking with cross-encoders, in Python and by the command."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.inference import rank as module
from bert_tf.inference.load import load
from tests import commands
from tests.families.pretrained.sentence_folders import (
    PAIRS,
    scores_of,
    write_cross_encoder,
    write_folder,
)
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")
QUERY = "the cat"
DOCUMENTS = ["on the mat", "a dog", "", "the cats ran for the dog", "mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_cross_encoder("plain", tmp_path_factory.mktemp("m") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return load(folder)


def test_scores_are_those_of_sentence_transformers(model):
    queries, documents = map(list, zip(*PAIRS, strict=True))
    pairs = np.stack([np.arange(len(PAIRS))] * 2, axis=1)
    found = module.pair_scores(model, queries, documents, pairs)
    np.testing.assert_allclose(found, scores_of("plain"), rtol=0, atol=1e-6)


def test_best_first(model):
    found = model.rank(QUERY, iter(DOCUMENTS))
    scores = [model(QUERY, text)["score"] for text in DOCUMENTS]
    order = sorted(range(5), key=lambda n: -scores[n])
    assert [each["corpus_id"] for each in found] == order
    for each in found:
        assert each["text"] == DOCUMENTS[each["corpus_id"]]
        assert each["score"] == pytest.approx(scores[each["corpus_id"]])
    assert model.rank(QUERY, DOCUMENTS, top_k=2) == found[:2]
    assert model.rank(QUERY, DOCUMENTS, top_k=9) == found


def test_blocks_of_pairs_and_small_batches(model, monkeypatch):
    expected = model.rank(QUERY, DOCUMENTS)
    monkeypatch.setattr(module, "_PAIRS", 2)
    found = load(model.folder, batch_size=1).rank(QUERY, DOCUMENTS)
    assert [e["corpus_id"] for e in found] == [e["corpus_id"] for e in expected]


def test_wrong_models_and_arguments(model, tmp_path):
    line = error_of(model.rank, QUERY, [])
    assert line.startswith("`documents`: is empty")
    assert error_of(model.rank, QUERY, ["a", 1]).startswith("`documents`[1] is")
    assert error_of(model.rank, ["q"], ["a"]).startswith("`query` is ['q']")
    assert error_of(model.rank, QUERY, "text").startswith("`documents` is one")
    line = error_of(model.rank, QUERY, DOCUMENTS, top_k=0)
    assert line.startswith("`top_k`=0")
    bi_encoder = load(write_folder("mean", tmp_path / "bi"))
    line = error_of(bi_encoder.rank, QUERY, DOCUMENTS)
    assert line.startswith(str(tmp_path / "bi"))
    assert "bert_tf.search" in line
    several = load(write_cross_encoder("several", tmp_path / "several"))
    line = error_of(several.rank, QUERY, DOCUMENTS)
    assert "with one output" in line
    single = load(model.folder, task="text_regression")
    line = error_of(single.rank, QUERY, DOCUMENTS)
    assert "Load it with `task`=text_pair_regression" in line


def command(folder, *arguments):
    return commands.run("tools.rank", f"--model={folder}", *arguments)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_command(folder, model, tmp_path, monkeypatch):
    texts = [text for text in DOCUMENTS if text]
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(texts) + "\n")
    output = tmp_path / "best.jsonl"
    done = command(
        *(folder, f"--query={QUERY}", f"--input={source}"),
        *(f"--output={output}", "--top_k=3"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("best.jsonl: 4 documents ranked.\n")
    expected = model.rank(QUERY, texts, top_k=3)
    assert lines_of(output.read_text()) == expected
    rows = [
        {"q": QUERY, "docs": texts},
        {"q": "a dog", "docs": texts[:2]},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    # Two batches.
    monkeypatch.setattr(module, "_PAIRS", 3)
    done = command(
        *(folder, f"--input={source}", "--output=-"),
        *("--query_column=q", "--document_column=docs"),
    )
    assert done.returncode == 0, done.stderr
    first, second = lines_of(done.stdout)
    assert first["query"] == QUERY
    for one, other in zip(
        first["results"], model.rank(QUERY, texts), strict=True
    ):
        assert one["score"] == pytest.approx(other.pop("score"))
        assert one["text"] == other["text"]
    assert [each["text"] for each in second["results"]] == [
        each["text"] for each in model.rank("a dog", texts[:2])
    ]


@pytest.mark.parametrize(
    ("arguments", "row", "expected"),
    [
        ([], {"query": "q", "documents": "d"}, "row 1: 'documents' holds no"),
        ([], {"query": " ", "documents": ["d"]}, "text in 'query' is empty"),
        ([], {"query": "q"}, "has no 'documents'"),
        (["--query=q"], {"text": ""}, "row 1: the text in 'text' is empty"),
        (["--query=q"], None, "has no rows"),
        (["--query=q", "--output=out.csv"], {"text": "a"}, "--output=out.csv"),
    ],
)
def test_bad_input_of_the_command(arguments, row, expected, folder, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(row) if row else "")
    done = command(
        *(folder, f"--input={source}", f"--output={tmp_path}/o.jsonl"),
        *arguments,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert expected in line
    assert not (tmp_path / "o.jsonl").exists()


def test_a_trained_ranker(finish_case, tmp_path):
    run = finish_case("rankings")
    model = bert_tf.load(run.folder)
    assert model.served.activation == "sigmoid"
    documents = ["the film", "a bad film"]
    scores = [model("the", text)["score"] for text in documents]
    assert 0 < min(scores) < max(scores) < 1
    found = model.rank("the", documents)
    assert found[0]["score"] == pytest.approx(max(scores))
    # The predictions of the run.
    line = json.loads(
        (run.folder / "dev_predictions.jsonl").read_text().splitlines()[0]
    )
    ranking = model.rank(line["query"], line["documents"])
    by_id = sorted(ranking, key=lambda each: each["corpus_id"])
    assert [each["score"] for each in by_id] == pytest.approx(
        line["prediction"], abs=1e-6
    )
    bert_tf.convert(run.folder, "hugging_face", tmp_path / "written")
    settings = json.loads((tmp_path / "written" / "config.json").read_text())
    assert settings["sentence_transformers"] == {
        "activation_fn": "torch.nn.Sigmoid"
    }
    again = bert_tf.load(tmp_path / "written").rank("the", documents)
    assert [each["score"] for each in again] == pytest.approx(
        [each["score"] for each in found], abs=1e-6
    )
