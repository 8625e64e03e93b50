"""Records from text of every format, without duplicates, mixed by weight."""

import collections
import dataclasses
import json
import pathlib
import random

import numpy as np
import pytest
from records_corpus import digests, sentence, write_vocabulary

from bert_tf.corpora.sources import parse_inputs
from bert_tf.errors import UserError
from bert_tf.records import build as build_module
from bert_tf.records import corpus
from bert_tf.records.build import RecordsReport, create_records
from bert_tf.records.folder import Manifest
from bert_tf.records.instances import make_instances
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import Documents

PAGE = (
    "<page><title>T</title><ns>0</ns><revision><text>{{{{box}}}} {}"
    "</text></revision></page>\n"
)


def made_documents(count: int, seed: int) -> list[str]:
    """Documents of sentences that the splitter tells apart."""
    rng = random.Random(seed)
    return [
        " ".join(
            sentence(rng).capitalize().replace(" .", ".")
            for _ in range(rng.randint(4, 20))
        )
        for _ in range(count)
    ]


@dataclasses.dataclass(frozen=True)
class Workshop:
    """A folder of inputs, and what makes records of them."""

    folder: pathlib.Path

    def write(self, name: str, documents: list[str]) -> str:
        path = self.folder / name
        if name.endswith(".jsonl"):
            rows = [json.dumps({"text": document}) for document in documents]
            path.write_text("\n".join(rows))
        elif name.endswith(".xml"):
            pages = "".join(PAGE.format(document) for document in documents)
            path.write_text(f"<mediawiki>\n{pages}</mediawiki>\n")
        else:
            path.write_text("\n\n".join(documents))
        return str(path)

    def build(
        self, inputs: str, name: str = "out", workers: int = 1, **changes
    ) -> RecordsReport:
        log = changes.pop("log", lambda line: None)
        recipe = RecordsRecipe(
            **{"max_seq_length": 48, "num_shards": 3, "held_out": 0.1} | changes
        )
        return create_records(
            parse_inputs(inputs, recipe),
            write_vocabulary(self.folder / "vocab"),
            self.folder / name,
            recipe,
            workers,
            log=log,
        )

    def digests(self, name: str) -> dict[str, str]:
        return digests(self.folder / name)


@pytest.fixture
def workshop(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Workshop:
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 8000)
    return Workshop(tmp_path)


def test_the_same_text_in_any_format_gives_the_same_records(
    workshop: Workshop,
) -> None:
    documents = made_documents(60, seed=1)
    inputs = {
        "jsonl": workshop.write("a.jsonl", documents),
        "text": workshop.write("a.txt", documents),
        "wikipedia": workshop.write("a.xml", documents),
    }
    found = []
    for kind, path in inputs.items():
        setting = "text" if kind == "text" else "auto"
        workshop.build(path, kind, input_format=setting)
        digests = workshop.digests(kind)
        found.append({n: d for n, d in digests.items() if "tfrecord" in n})
    assert len(found[0]) == 4
    assert found[0] == found[1] == found[2]


def mixed_inputs(workshop: Workshop) -> tuple[str, dict[str, object]]:
    """Three corpora in three formats, with some documents twice."""
    documents = made_documents(80, seed=2)
    names = [
        "big:0.5=" + workshop.write("a.jsonl", documents + documents[:7]),
        "small:3=" + workshop.write("b.xml", made_documents(15, seed=3)),
        "other=" + workshop.write("c.jsonl", made_documents(20, seed=4)),
    ]
    return ",".join(names), {"near_duplicates": 0.8, "smoothing": 0.7}


def test_bytes_do_not_depend_on_the_workers(workshop: Workshop) -> None:
    inputs, settings = mixed_inputs(workshop)
    reports = [
        workshop.build(inputs, f"w{workers}", workers, **settings)
        for workers in (1, 3)
    ]
    one = workshop.digests("w1")
    assert one == workshop.digests("w3")
    assert reports[0].statistics == reports[1].statistics
    assert reports[0].corpora == reports[1].corpora
    workshop.build(inputs, "other", 1, **settings, seed=7)
    assert one != workshop.digests("other")


class Killed(BaseException):
    """Stands for a kill: no handler of errors sees it."""


def test_a_run_that_stops_anywhere_is_finished_by_the_next(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, settings = mixed_inputs(workshop)
    workshop.build(inputs, "whole", **settings)
    stages = {
        name: getattr(build_module, name)
        for name in ("tokenize_corpus", "decide_repeats", "build_shards")
    }

    def stop_after(steps: int, work: object) -> object:
        def stopping(*arguments: object) -> object:
            for number, result in enumerate(work(*arguments), start=1):
                yield result
                if number == steps:
                    raise Killed

        return stopping

    def stop(*arguments: object) -> object:
        stages["decide_repeats"](*arguments)
        raise Killed

    for where, stopped in (
        ("tokenize_corpus", stop_after(3, stages["tokenize_corpus"])),
        ("decide_repeats", stop),
        ("build_shards", stop_after(1, stages["build_shards"])),
    ):
        monkeypatch.setattr(build_module, where, stopped)
        name = f"{where}{id(stopped)}"
        with pytest.raises(Killed):
            workshop.build(inputs, name, **settings)
        monkeypatch.setattr(build_module, where, stages[where])
        with pytest.raises(UserError, match=r"weight of .* is 0.5 there and 2"):
            workshop.build(inputs.replace("big:0.5", "big:2"), name, **settings)
        lines: list[str] = []
        workshop.build(inputs, name, 2, log=lines.append, **settings)
        assert any("resuming after" in line for line in lines)
        assert workshop.digests(name) == workshop.digests("whole")


def test_near_duplicates_are_left_out_and_counted(workshop: Workshop) -> None:
    documents = made_documents(40, seed=5)
    path = workshop.write("a.jsonl", documents + documents[:9])
    kept = workshop.build(path, "kept", held_out=0.0)
    assert "near-duplicates" not in str(kept)
    assert kept.statistics["near_duplicates"] == 0
    report = workshop.build(path, near_duplicates=0.8, held_out=0.0)
    assert report.statistics["documents"] == 49
    assert report.statistics["near_duplicates"] == 9
    assert "9 documents left out as near-duplicates" in str(report)
    assert report.statistics["records"] < kept.statistics["records"]
    # What is left is made of the first forty alone.
    alone = workshop.build(
        workshop.write("b.jsonl", documents), "alone", held_out=0.0
    )
    wanted = alone.statistics["tokens"]
    taken = report.corpora[""]["tokens_taken"]
    assert taken == wanted


def test_shares_of_the_mix_are_the_ones_asked_for(workshop: Workshop) -> None:
    sizes = {"aa": 900, "bb": 300, "cc": 60}
    inputs = ",".join(
        f"{name}=" + workshop.write(f"{name}.jsonl", made_documents(count, n))
        for n, (name, count) in enumerate(sizes.items())
    )
    report = workshop.build(inputs, smoothing=0.5, held_out=0.0)
    tokens = {name: c["tokens"] for name, c in report.corpora.items()}
    powers = {name: size**0.5 for name, size in tokens.items()}
    taken = {name: c["tokens_taken"] for name, c in report.corpora.items()}
    for name in sizes:
        share = taken[name] / sum(taken.values())
        wanted = powers[name] / sum(powers.values())
        assert share == pytest.approx(wanted, rel=0.06)
        assert f"{name}: {sizes[name]:,} documents" in str(report)
    assert sum(taken.values()) == pytest.approx(sum(tokens.values()), rel=0.05)
    manifest = Manifest.load(workshop.folder / "out")
    assert manifest.corpora == report.corpora
    assert {file.corpus for file in manifest.inputs} == set(sizes)
    # A second look at the folder tells the same.
    assert (
        workshop.build(inputs, smoothing=0.5, held_out=0.0).corpora
        == report.corpora
    )


def test_a_weight_is_how_often_a_document_is_taken(workshop: Workshop) -> None:
    a, b = made_documents(30, seed=6), made_documents(30, seed=7)
    paths = workshop.write("a.jsonl", a), workshop.write("b.jsonl", b)
    plain = workshop.build(f"a={paths[0]},b={paths[1]}", "plain")
    more = workshop.build(f"a:3={paths[0]},b:1={paths[1]}", "more")
    assert plain.corpora["a"]["tokens_taken"] == plain.corpora["a"]["tokens"]
    assert more.corpora["a"]["tokens_taken"] == 3 * more.corpora["a"]["tokens"]
    assert more.corpora["b"] == plain.corpora["b"]
    # Names alone change nothing in the records but the cuts between blocks.
    assert plain.statistics["records"] > 0
    for name in ("plain", "more"):
        assert (workshop.folder / name / "records.json").exists()
    assert more.statistics["documents"] == 60


def test_another_visit_makes_other_pairs_of_the_same_document() -> None:
    rng = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 9, 200))])
    bounds = np.arange(0, 201, 10)
    repeats = np.array([1, 3, 2, 1] * 5)
    documents = Documents(np.arange(starts[-1]), starts, bounds, repeats)
    recipe = RecordsRecipe(max_seq_length=24)
    made = make_instances(documents, 20, recipe, "x")
    owner = np.searchsorted(starts[bounds], made.a_start, side="right") - 1
    other = np.searchsorted(starts[bounds], made.b_start, side="right") - 1
    # Text A of each visit covers each document once or nearly so.
    per_document = collections.Counter(owner.tolist())
    once = np.mean([per_document[d] for d in range(20) if repeats[d] == 1])
    three = np.mean([per_document[d] for d in range(20) if repeats[d] == 3])
    assert 2.3 < three / once < 3.7
    # A random text B is of another document, never of another visit.
    assert (owner[made.is_random] != other[made.is_random]).all()
    plain = dataclasses.replace(documents, repeats=np.ones(20, np.int64))
    unsaid = dataclasses.replace(documents, repeats=None)
    for one, same in zip(
        dataclasses.astuple(make_instances(plain, 20, recipe, "x")),
        dataclasses.astuple(make_instances(unsaid, 20, recipe, "x")),
        strict=True,
    ):
        assert np.array_equal(one, same)


def test_a_document_without_end_is_cut_with_a_warning(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("bert_tf.corpora.reading", "bert_tf.records.corpus"):
        monkeypatch.setattr(f"{module}.DOCUMENT_BYTES", 20_000)
    lines = "\n".join(made_documents(200, seed=8))
    paths = [workshop.write(f"{n}.txt", [lines]) for n in "ab"]
    said: list[str] = []
    report = workshop.build(
        ",".join(paths),
        input_format="text",
        document_end="file",
        log=said.append,
        held_out=0.0,
    )
    assert report.statistics["documents"] > 2
    assert any("the document is longer than" in line for line in said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "Bal fim."}\n{"text": 1}\n', "a.jsonl, line 2: 'text' is 1"),
        ('{"text": ""}\n', "a.jsonl: holds no text"),
        ('{"text": "Bal fim."}\n', "a.jsonl: is one single document"),
    ],
)
def test_mistakes_leave_nothing_behind(
    workshop: Workshop, text: str, message: str
) -> None:
    (workshop.folder / "a.jsonl").write_text(text)
    for workers in (1, 2):
        with pytest.raises(UserError, match=message):
            workshop.build(f"{workshop.folder}/a.jsonl", workers=workers)
        assert not (workshop.folder / "out").exists()


def test_impossible_thresholds() -> None:
    for value in (0.1, 1.1, -1.0):
        with pytest.raises(UserError, match="near_duplicates is .* be 0 or"):
            RecordsRecipe(near_duplicates=value)
