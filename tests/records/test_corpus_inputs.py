"""Records from text of every format, without duplicates, mixed by weight."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from records_corpus import PACKING, Workshop, made_documents, parsed

from bert_tf.errors import UserError
from bert_tf.records.build import create_records
from bert_tf.records.folder import Manifest, RecordFolder
from bert_tf.records.instances import make_instances
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import Documents
from tests.relatives import BYTES


def test_the_same_text_in_any_format_gives_the_same_records(workshop) -> None:
    documents = made_documents(60, seed=1)
    inputs = {
        "jsonl": workshop.write("a.jsonl", documents),
        "text": workshop.write("a.txt", documents),
        "wikipedia": workshop.write("a.xml", documents),
    }
    for kind, path in inputs.items():
        setting = "text" if kind == "text" else "auto"
        workshop.build(kind, inputs=path, input_format=setting)
    jsonl, text, wikipedia = map(workshop.records, inputs)
    assert len(jsonl) == 4
    assert jsonl == text == wikipedia


def test_near_duplicates_are_left_out_and_counted(workshop: Workshop) -> None:
    documents = made_documents(40, seed=5)
    path = workshop.write("a.jsonl", documents + documents[:9])
    kept = workshop.build("kept", inputs=path, held_out=0.0)
    assert "near-duplicates" not in str(kept)
    assert kept.statistics["near_duplicates"] == 0
    report = workshop.build(inputs=path, near_duplicates=0.8, held_out=0.0)
    assert report.statistics["documents"] == 49
    assert report.statistics["near_duplicates"] == 9
    assert "9 documents left out as near-duplicates" in str(report)
    assert report.statistics["records"] < kept.statistics["records"]
    # What is left is made of the first forty alone.
    path = workshop.write("b.jsonl", documents)
    alone = workshop.build("alone", inputs=path, held_out=0.0)
    taken = report.corpora[""]["tokens_taken"]
    assert taken == alone.statistics["tokens"]


def test_shares_of_the_mix_are_the_ones_asked_for(workshop: Workshop) -> None:
    sizes = {"aa": 900, "bb": 300, "cc": 60}
    inputs = ",".join(
        f"{name}=" + workshop.write(f"{name}.jsonl", made_documents(count, n))
        for n, (name, count) in enumerate(sizes.items())
    )
    report = workshop.build(inputs=inputs, smoothing=0.5, held_out=0.0)
    tokens = {name: c["tokens"] for name, c in report.corpora.items()}
    powers = {name: size**0.5 for name, size in tokens.items()}
    taken = {name: c["tokens_taken"] for name, c in report.corpora.items()}
    for name in sizes:
        share = taken[name] / sum(taken.values())
        expected = powers[name] / sum(powers.values())
        assert share == pytest.approx(expected, rel=0.06)
        assert f"{name}: {sizes[name]:,} documents" in str(report)
    assert sum(taken.values()) == pytest.approx(sum(tokens.values()), rel=0.05)
    manifest = Manifest.load(workshop.folder / "out")
    assert manifest.corpora == report.corpora
    assert {file.corpus for file in manifest.inputs} == set(sizes)
    # A finished folder gives the same report.
    again = workshop.build(inputs=inputs, smoothing=0.5, held_out=0.0)
    assert again.corpora == report.corpora


def test_a_weight_is_how_often_a_document_is_taken(workshop: Workshop) -> None:
    a, b = made_documents(30, seed=6), made_documents(30, seed=7)
    paths = workshop.write("a.jsonl", a), workshop.write("b.jsonl", b)
    plain = workshop.build("plain", inputs=f"a={paths[0]},b={paths[1]}")
    more = workshop.build("more", inputs=f"a:3={paths[0]},b:1={paths[1]}")
    assert plain.corpora["a"]["tokens_taken"] == plain.corpora["a"]["tokens"]
    assert more.corpora["a"]["tokens_taken"] == 3 * more.corpora["a"]["tokens"]
    assert more.corpora["b"] == plain.corpora["b"]
    assert more.statistics["documents"] == 60


def test_a_repeat_makes_other_pairs_of_the_same_document() -> None:
    rng = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 9, 200))])
    bounds = np.arange(0, 201, 10)
    repeats = np.array([1, 3, 2, 1] * 5)
    documents = Documents(np.arange(starts[-1]), starts, bounds, repeats)
    recipe = RecordsRecipe(max_seq_length=24)
    made = make_instances(documents, 20, recipe, PACKING, "x")
    owner = np.searchsorted(starts[bounds], made.a_start, side="right") - 1
    other = np.searchsorted(starts[bounds], made.b_start, side="right") - 1
    # Text A of each repeat covers each document once or nearly so.
    per_document = collections.Counter(owner.tolist())
    once = np.mean([per_document[d] for d in range(20) if repeats[d] == 1])
    three = np.mean([per_document[d] for d in range(20) if repeats[d] == 3])
    assert 2.3 < three / once < 3.7
    # A random text B is of another document, never of the same repeated.
    assert (owner[made.labels == 1] != other[made.labels == 1]).all()
    plain = dataclasses.replace(documents, repeats=np.ones(20, np.int64))
    unsaid = dataclasses.replace(documents, repeats=None)
    given = 20, recipe, PACKING, "x"
    one, same = (vars(make_instances(d, *given)) for d in (plain, unsaid))
    for name, values in one.items():
        assert np.all(values == same[name]), name


def test_sentences_of_a_document_are_apart(workshop: Workshop) -> None:
    """Rows spell running text also if tokens contain blanks."""
    BYTES.save(workshop.folder)
    lines = ["\n".join(["bal del.", "fim gor.", "kun bal."])] * 3
    report = create_records(
        [workshop.write("lines.txt", lines)],
        workshop.folder / BYTES.FILES[0],
        workshop.folder / "out",
        RecordsRecipe(
            lower_case=False, sequences="document_sentences", held_out=0.0
        ),
        workers=1,
        log=lambda _: None,
    )
    folder = RecordFolder.open(report.output_dir)
    packing = folder.vocabulary.packing
    rows = [row for f in folder.training_files for row in parsed(f.path)]
    assert len(rows) == 3
    for row in rows:
        assert row["input_ids"][:1] == list(packing.begin)
        ids = tf.constant([row["input_ids"][1:-1]], tf.int32)
        (spelled,) = BYTES.tokenizer().detokenize(ids).numpy()
        assert spelled == b"bal del. fim gor. kun bal."


def test_a_document_without_end_is_cut_with_a_warning(workshop, monkeypatch):
    for module in ("bert_tf.corpora.reading", "bert_tf.records.corpus"):
        monkeypatch.setattr(f"{module}.DOCUMENT_BYTES", 20_000)
    lines = "\n".join(made_documents(200, seed=8))
    paths = [workshop.write(f"{n}.txt", [lines]) for n in "ab"]
    lines_logged: list[str] = []
    report = workshop.build(
        inputs=",".join(paths),
        input_format="text",
        document_end="file",
        log=lines_logged.append,
        held_out=0.0,
    )
    assert report.statistics["documents"] > 2
    assert any("the document is longer than" in line for line in lines_logged)


def test_mistakes_in_a_worker_leave_nothing_behind(workshop: Workshop) -> None:
    path = workshop.folder / "a.jsonl"
    path.write_text('{"text": "Bal fim."}\n{"text": 1}\n')
    with pytest.raises(UserError, match="a.jsonl, line 2: 'text' is 1"):
        workshop.build("out", 2, str(path))
    assert not (workshop.folder / "out").exists()
