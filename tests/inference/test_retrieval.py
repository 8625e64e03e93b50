"""Scores of retrieval: data in two layouts, BM25, rankings and the report."""

import collections
import json
import math
import pathlib
from unittest import mock

import numpy as np
import pytest

import bert_tf
from bert_tf.families.data.bm25 import Bm25, words_of
from bert_tf.inference import retrieval as module
from bert_tf.inference.load import load
from bert_tf.inference.retrieval import evaluate_retrieval
from bert_tf.inference.retrieval_data import read_retrieval, texts_at
from tests import commands
from tests.families.pretrained.sentence_folders import (
    write_cross_encoder,
    write_folder,
)
from tests.user_errors import error_of

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "ranking"
WORDS = "the cat sat on mat a dog ran query passage i am for".split()


def write_lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_beir(folder, corpus, queries, relevance, split="test"):
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", queries)
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{q}\t{d}\t{gain}" for q, d, gain in relevance]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def texts(count, seed=0):
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice(WORDS, random.integers(1, 12)))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def beir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beir") / "small"
    random = np.random.default_rng(1)
    corpus = [
        {"_id": f"d{n}", "title": "the" * (n % 2), "text": text}
        for n, text in enumerate(texts(150))
    ]
    # "q8" has no relevant document, and "d999" is not in the corpus.
    queries = [
        {"_id": f"q{n}", "text": t} for n, t in enumerate(texts(9, seed=2))
    ]
    relevance = [
        (f"q{n}", f"d{document}", int(random.integers(1, 3)))
        for n in range(8)
        for document in random.permutation(150)[:4]
    ]
    relevance += [("q0", "d999", 1), ("q8", "d1", 0)]
    return write_beir(folder, corpus, queries, relevance)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return (
        load(write_folder("default_prompt", folder / "bi")),
        load(write_cross_encoder("plain", folder / "cross")),
    )


def test_scores_are_those_of_the_recorded_vectors(tmp_path, models, eagerly):
    """Whatever the size of the blocks."""
    recorded = json.loads((GOLDEN / "retrieval.json").read_text())
    corpus, queries = (
        np.array(recorded[name], np.float32) for name in ("corpus", "queries")
    )
    folder = write_beir(
        tmp_path / "data",
        [{"_id": f"d{n}", "text": str(n)} for n in range(len(corpus))],
        [{"_id": f"q{n}", "text": "q"} for n in range(len(queries))],
        [
            (query, document, 1)
            for query, gains in recorded["relevance"].items()
            for document in gains
        ],
    )
    model, _ = models

    def vectors(opened, given, computed):
        numbers = [int(text) for text in given]
        for begin in range(0, len(numbers), 7):
            chunk = mock.Mock()
            chunk.vectors = corpus[numbers[begin : begin + 7]][:, None]
            yield chunk

    with (
        mock.patch.object(module, "text_vectors", vectors),
        mock.patch.object(type(model), "encode_query", return_value=queries),
    ):
        found = evaluate_retrieval(model, folder)
    assert found.scores["bi"] == pytest.approx(
        recorded["sentence_transformers"], abs=1e-12
    )
    assert (found.num_queries, found.num_documents) == (17, 230)


def reference_bm25(query, corpus):
    """The score of each document, from the formula."""
    documents = [words_of(text) for text in corpus]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for words in documents:
        total = 0.0
        for word in words_of(query):
            holding = sum(word in other for other in documents)
            odds = (len(documents) - holding + 0.5) / (holding + 0.5)
            count = words.count(word)
            norm = 0.9 * (0.6 + 0.4 * len(words) / mean)
            total += math.log(1 + odds) * count / (count + norm)
        scores.append(total)
    return scores


def test_bm25():
    corpus = [*texts(40), "", "Straße_1, STRASSE."]
    queries = [*texts(5, seed=3), "the the cat", "Straße_1", "no", ""]
    index = Bm25(queries)
    for text in corpus:
        index.add(text)
    for number, query in enumerate(queries):
        expected = reference_bm25(query, corpus)
        np.testing.assert_allclose(index.scores(number), expected, rtol=1e-12)
        for top_k in (1, 7, 100):
            found, scores = index.best(number, top_k)
            order = sorted(range(len(corpus)), key=lambda n: -expected[n])
            order = [n for n in order if expected[n] > 0][:top_k]
            assert found.tolist() == order
            np.testing.assert_allclose(scores, np.take(expected, order))
    assert words_of("Straße_1, STRASSE.") == ["straße_1", "strasse"]


def test_beir(beir):
    data = read_retrieval(beir)
    assert data.name == "small, test"
    assert data.identifiers == [f"q{n}" for n in range(8)]
    assert data.relevance[0]["d999"] == 1.0
    documents = list(data.corpus())
    assert len(documents) == 150
    first, second = texts(2)
    assert documents[:2] == [("d0", first), ("d1", f"the {second}")]
    assert list(data.corpus()) == documents
    assert texts_at(data, {1, 5}) == {n: documents[n][1] for n in (1, 5)}
    part = data.sampled(3)
    assert len(part.queries) == 3
    chosen = [data.identifiers.index(name) for name in part.identifiers]
    assert chosen == sorted(chosen)
    assert part.relevance == [data.relevance[n] for n in chosen]
    assert part.queries == [data.queries[n] for n in chosen]
    assert data.sampled(0) == data.sampled(8) == data


def test_squad(tmp_path):
    def question(name, impossible=False):
        answers = [] if impossible else [{"text": "cat", "answer_start": 4}]
        row = {"id": name, "question": f"who {name}", "answers": answers}
        return row | {"is_impossible": impossible}

    paragraphs = [
        {"context": "the cat", "qas": [question("a"), question("b")]},
        {"context": "one cat", "qas": [question("c"), question("d", True)]},
        {"context": "the cat", "qas": [question("e")]},
    ]
    path = tmp_path / "dev.json"
    article = {"title": "t", "paragraphs": paragraphs}
    path.write_text(json.dumps({"data": [article]}))
    data = read_retrieval(path)
    assert list(data.corpus()) == [("0", "the cat"), ("1", "one cat")]
    assert data.identifiers == ["a", "b", "c", "e"]
    assert data.queries[2] == "who c"
    one, other = {"0": 1.0}, {"1": 1.0}
    assert data.relevance == [one, one, other, one]


def test_squad_has_so_many_paragraphs(shared_data):
    data = read_retrieval(shared_data / "squad" / "dev-v1.1.json")
    assert len(data.queries) == 10570
    assert sum(1 for _ in data.corpus()) == 2067


def test_rankings_and_report(beir, models, tmp_path, eagerly, capsys):
    model, cross = models
    found = bert_tf.evaluate_retrieval(
        *(model, beir, tmp_path / "out"), reranker=cross, num_reranked=20
    )
    assert "1 relevant documents, such as 'd999'" in capsys.readouterr().err
    assert [*found.scores] == ["BM25", "bi", "bi + cross"]
    # Reranking by the cross-encoder, with other functions.
    data = read_retrieval(beir)
    names, documents = zip(*data.corpus(), strict=True)
    vectors = model.encode_document(list(documents))
    written = (tmp_path / "out" / "rankings.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["query_id"] for line in lines] == data.identifiers
    for line, query in zip(lines[:2], data.queries, strict=False):
        (similar,) = model.similarity(model.encode_query(query), vectors)
        best = np.argsort(-similar, kind="stable")[:20]
        ranked = cross.rank(query, [documents[n] for n in best])
        scores = [each["score"] for each in line["results"]]
        expected = [each["score"] for each in ranked]
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        chosen = {each["corpus_id"] for each in line["results"]}
        assert chosen == {names[n] for n in best}
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["scores"] == found.scores
    assert (report["queries"], report["documents"]) == (8, 150)
    # A document that is not in the corpus has no similarity.
    assert sum(report["similarity"]["relevant"]) == 32
    worst = report["mistakes"]["worst"]
    assert report["mistakes"]["total"] == len(worst) == 8
    ndcg = [each["ndcg@10"] for each in worst]
    assert ndcg == sorted(ndcg)
    by_query = dict(zip(data.queries, data.relevance, strict=True))
    by_text = collections.defaultdict(set)
    for name, text in data.corpus():
        by_text[text].add(name)
    for each in worst:
        assert by_text[each["relevant"]] & by_query[each["query"]].keys()
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 1
    for words in ("BM25", "bi + cross", "small, test"):
        assert words in page
    table = found.table().splitlines()
    assert table[0].split()[:4] == ["small,", "test", "BM25", "bi"]
    value = f"{100 * found.scores['BM25']['ndcg@10']:.2f}"
    assert table[1].split()[:2] == ["ndcg@10", value]


def test_a_corpus_that_is_smaller_than_a_ranking(models, tmp_path, eagerly):
    folder = write_beir(
        tmp_path / "data",
        [{"_id": "a", "text": "the cat"}, {"_id": "b", "text": "a dog"}],
        [{"_id": "a", "text": "the cat"}],
        [("a", "b", 1)],
    )
    model, _ = models
    found = evaluate_retrieval(model, folder)
    assert found.scores["bi"]["map@100"] in (0.5, 1.0)
    # No word is common to the query and the relevant document.
    assert found.scores["BM25"]["recall@10"] == 0
    found = evaluate_retrieval(model, folder, ignore_identical_ids=True)
    assert found.scores["bi"]["mrr@10"] == 1


def test_command(beir, models, tmp_path, eagerly):
    model, _ = models
    done = commands.run(
        "tools.evaluate_retrieval",
        *(f"--model={model.folder}", f"--data={beir}", "--num_queries=3"),
    )
    assert done.returncode == 0, done.stderr
    expected = evaluate_retrieval(model, beir, num_queries=3).table()
    assert done.stdout == f"{expected}\n"


def refusal_of(models, folder, **settings):
    return error_of(evaluate_retrieval, models[0], folder, **settings)


def test_malformed_data(models, tmp_path, eagerly):
    corpus = [{"_id": "d", "text": "the cat"}]
    queries = [{"_id": "q", "text": "the cat"}]

    def written(name, *parts):
        return write_beir(tmp_path / name, *parts)

    line = refusal_of(models, tmp_path)
    assert "has 0 files queries.*; it takes one" in line
    folder = written("number", corpus, queries, [("q", "d", "yes")])
    line = refusal_of(models, folder)
    assert "test.tsv, row 2: the score is 'yes'" in line
    folder = written("none", corpus, queries, [("q", "d", 0)])
    assert "no document has a score above 0" in refusal_of(models, folder)
    assert "dev.*" in refusal_of(models, folder, split="dev")
    folder = written("unknown", corpus, queries, [("p", "d", 1)])
    line = refusal_of(models, folder)
    assert "test.tsv, row 2: the query 'p' is not in" in line
    folder = written("twice", corpus * 2, queries, [("q", "d", 1)])
    line = refusal_of(models, folder)
    assert "corpus.jsonl, row 2: the _id 'd' occurs twice" in line
    folder = written("empty", [], queries, [("q", "d", 1)])
    assert "corpus.jsonl: has no rows" in refusal_of(models, folder)


def test_models_of_another_kind(beir, models, eagerly):
    model, cross = models
    line = error_of(evaluate_retrieval, cross, beir)
    assert "give it as `reranker`" in line
    line = refusal_of(models, beir, reranker=model)
    assert "computes a vector of each text" in line
    assert refusal_of(models, beir, num_reranked=101).startswith(
        "`num_reranked`=101"
    )
