import collections
import dataclasses
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import tensorflow as tf
from records_corpus import (
    VOCABULARY,
    Workshop,
    digests,
    parsed,
    text,
    write_vocabulary,
)

from bert_tf.errors import UserError
from bert_tf.records import build as build_module
from bert_tf.records import corpus
from bert_tf.records.build import create_records, work_folder
from bert_tf.records.folder import RecordFolder
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import read_records
from bert_tf.records.shards import ShardBuilder
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.wordpiece import WordPiece
from bert_tf.training.run_folder import digest
from tests import commands

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "records"
STATIC = {"static_masking": True, "dupe_factor": 3}


@pytest.mark.parametrize("kind", ["plain", "static", "packed", "mixed"])
def test_bytes_do_not_depend_on_the_workers(
    workshop: Workshop, kind: str
) -> None:
    inputs = ""
    changes = {"static": STATIC, "packed": {"packing": True}}.get(kind, {})
    if kind == "mixed":
        inputs, changes = workshop.mixed_inputs()
    reports = [
        workshop.build(f"w{workers}", workers, inputs, **changes)
        for workers in (1, 3)
    ]
    one = workshop.digests("w1")
    assert len([name for name in one if name.startswith("records-")]) == 3
    assert one == workshop.digests("w3")
    assert not (workshop.folder / "w1" / ".work").exists()
    assert reports[0].statistics == reports[1].statistics
    assert reports[0].corpora == reports[1].corpora


def test_records_hold_the_text(workshop: Workshop) -> None:
    report = workshop.build(max_seq_length=512, max_predictions_per_seq=76)
    tokenizer = BertTokenizer(VOCABULARY)
    lines = [
        line
        for name in ("a.txt", "b.txt")
        for line in (workshop.folder / name).read_text().split("\n")
        if line
    ]
    whole = [x for row in tokenizer.tokenize(lines).to_list() for x in row]
    flat = "," + ",".join(map(str, whole)) + ","
    files = sorted((workshop.folder / "out").glob("*.tfrecord"))
    rows = [row for path in files for row in parsed(path)]
    assert len(rows) == (
        report.statistics["records"] + report.statistics["held_out_records"]
    )
    seen = collections.Counter()
    for row in rows:
        ids, segments = row["input_ids"], row["segment_ids"]
        assert len(ids) == len(segments) <= 512
        assert ids[0] == VOCABULARY.cls_id
        first = ids.index(VOCABULARY.sep_id)
        assert ids[-1] == VOCABULARY.sep_id
        assert segments == [0] * (first + 1) + [1] * (len(ids) - first - 1)
        text_a, text_b = ids[1:first], ids[first + 1 : -1]
        for part in (text_a, text_b):
            assert f",{','.join(map(str, part))}," in flat
        both = f",{','.join(map(str, text_a + text_b))},"
        if row["next_sentence_labels"] == [0] and len(ids) < 512:
            assert both in flat
        seen.update(text_a)
    # The statistics are those of the text.
    assert report.statistics["tokens"] == len(whole)
    assert report.statistics["sentences"] == len(lines)
    assert report.statistics["documents"] == 90
    training = rows[-report.statistics["records"] :]
    assert report.statistics["record_tokens"] == sum(
        len(row["input_ids"]) for row in training
    )
    random_next = sum(row["next_sentence_labels"] == [1] for row in training)
    assert report.statistics["random_next"] == random_next
    assert 0.3 < random_next / len(training) < 0.7
    assert f"{len(training):,} training records" in str(report)
    assert "next: python -m tools.run_pretraining" in str(report)


def test_static_records_are_those_of_the_original(workshop: Workshop) -> None:
    workshop.build(**STATIC)
    folder = workshop.folder / "out"
    # name_to_features of run_pretraining.py in google-research/bert.
    specification = {
        "input_ids": tf.io.FixedLenFeature([48], tf.int64),
        "input_mask": tf.io.FixedLenFeature([48], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([48], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([7], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([7], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([7], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    plain = workshop.build("plain", dupe_factor=3)
    total = 0
    for path in sorted(folder.glob("records-*")):
        records = list(read_records(path))
        twins = parsed(workshop.folder / "plain" / path.name)
        assert len(records) == len(twins)
        total += len(records)
        batch = tf.io.parse_example(records, specification)
        for row, twin in enumerate(twins):
            one = {name: value[row].numpy() for name, value in batch.items()}
            size = len(twin["input_ids"])
            assert one["input_mask"].tolist() == [1] * size + [0] * (48 - size)
            assert one["segment_ids"][:size].tolist() == twin["segment_ids"]
            used = one["masked_lm_weights"] == 1
            assert used.sum() == min(7, max(1, round(size * 0.15)))
            restored = one["input_ids"].copy()
            restored[one["masked_lm_positions"][used]] = one["masked_lm_ids"][
                used
            ]
            assert restored[:size].tolist() == twin["input_ids"]
            assert not one["input_ids"][size:].any()
            assert (
                one["next_sentence_labels"].tolist()
                == twin["next_sentence_labels"]
            )
    assert total == plain.statistics["records"]


def test_a_finished_folder_says_so_and_is_left_alone(
    workshop: Workshop,
) -> None:
    workshop.build()
    files = sorted((workshop.folder / "out").iterdir())
    times = [path.stat().st_mtime_ns for path in files]
    lines: list[str] = []
    report = workshop.build(log=lines.append)
    assert "all records are there already" in " ".join(lines)
    assert report.statistics["records"] > 0
    assert sorted((workshop.folder / "out").iterdir()) == files
    assert [path.stat().st_mtime_ns for path in files] == times


class Killed(BaseException):
    """Stands for a kill: no handler of errors sees it."""


@pytest.mark.parametrize(
    ("stage", "steps"),
    [
        ("tokenize_corpus", 1),
        ("tokenize_corpus", 3),
        ("decide_repeats", 0),
        ("build_shards", 1),
        ("build_shards", 2),
    ],
)
def test_a_run_that_stops_anywhere_is_finished_by_the_next(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, stage: str, steps: int
) -> None:
    """The next run may have more workers, and refuses another recipe."""
    inputs, settings = workshop.mixed_inputs()
    workshop.build("whole", 1, inputs, **settings)
    work = getattr(build_module, stage)

    def stop_after(*arguments: object) -> Iterator[object]:
        for number, result in enumerate(work(*arguments), start=1):
            yield result
            if number == steps:
                raise Killed

    def stop(*arguments: object) -> None:
        work(*arguments)
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr(build_module, stage, stop_after if steps else stop)
        with pytest.raises(Killed):
            workshop.build("out", 1, inputs, **settings)
    with pytest.raises(UserError, match="unfinished; run"):
        RecordFolder.open(workshop.folder / "out")
    with pytest.raises(UserError, match="seed is 12345 there and 7"):
        workshop.build("out", 1, inputs, seed=7, **settings)
    other = inputs.replace("big:0.5", "big:2")
    with pytest.raises(UserError, match=r"weight of .* is 0.5 there and 2"):
        workshop.build("out", 1, other, **settings)
    lines: list[str] = []
    workshop.build("out", 2, inputs, log=lines.append, **settings)
    assert any("resuming after" in line for line in lines)
    assert workshop.digests() == workshop.digests("whole")


def test_only_missing_shards_are_made(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_module.build_shards
    asked: list[str] = []

    def one_then_stop(builder: ShardBuilder, jobs: list, workers: int):
        asked.extend(job.name for job in jobs)
        yield from build(builder, jobs[:1], workers)
        raise Killed

    monkeypatch.setattr(build_module, "build_shards", one_then_stop)
    for expected in (4, 3, 2, 1):
        asked.clear()
        with pytest.raises(Killed):
            workshop.build()
        assert len(asked) == expected


def test_full_disk_keeps_what_was_complete(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.build("whole")

    def full(path: pathlib.Path, rows: object) -> None:
        pathlib.Path(path).write_bytes(b"half a shard")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("bert_tf.records.shards.write_records", full)
    with pytest.raises(OSError, match="No space left"):
        workshop.build()
    left = [p.name for p in (workshop.folder / "out").rglob("*") if p.is_file()]
    assert not [name for name in left if "tfrecord" in name]
    monkeypatch.undo()
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 8000)
    workshop.build()
    assert workshop.digests("out") == workshop.digests("whole")


def test_overwrite_keeps_what_is_there_until_the_new_is_finished(
    workshop: Workshop,
) -> None:
    workshop.build()
    before = workshop.digests("out")
    (workshop.folder / "a.txt").write_bytes(b"caf\xe9\n\nmore\n")
    with pytest.raises(UserError, match="is not UTF-8"):
        workshop.build(overwrite=True)
    assert workshop.digests("out") == before
    (workshop.folder / "a.txt").write_bytes(
        b"one two .\nthree .\n\nfour .\n" * 30
    )
    workshop.build(overwrite=True, held_out=0.0)
    assert workshop.digests("out") != before
    assert RecordFolder.open(workshop.folder / "out").num_records > 0
    assert not list(workshop.folder.glob(".out*"))


# Replaces records in folders 1, 2, ... by forks that end before the first,
# second, ... change of a name, until one is not ended before it has finished.
KILLED = """
import itertools, os, pathlib, shutil, sys
from bert_tf.records import build, corpus
from bert_tf.records.recipe import RecordsRecipe

corpus.BLOCK_BYTES = 8000
folder = pathlib.Path(sys.argv[1])
finish = build.finish

def replace(number):
    changes = itertools.count(1)

    def counted(function):
        def call(*arguments, **options):
            if next(changes) == number:
                os._exit(9)
            return function(*arguments, **options)
        return call

    def finish_and_count(*arguments):
        finish(*arguments)
        for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))

    build.finish = finish_and_count
    recipe = RecordsRecipe(
        max_seq_length=64, max_predictions_per_seq=7, num_shards=2, held_out=0.1
    )
    build.create_records(
        [folder / "a.txt", folder / "b.txt"], folder / "vocab" / "vocab.txt",
        folder / str(number) / "out", recipe, 1, True, lambda line: None,
    )
    os._exit(0)

for number in itertools.count(1):
    shutil.copytree(folder / "old", folder / str(number) / "out")
    if not (fork := os.fork()):
        replace(number)
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    if code != 9:
        print(number)
        sys.exit(code)
"""
NEW = {"max_seq_length": 64, "num_shards": 2}


def test_killed_at_every_step_of_a_replacement(workshop: Workshop) -> None:
    """The next run finishes it, or keeps the old records as they were."""
    folder = workshop.folder
    workshop.build("new", **NEW)
    workshop.build("old")
    (folder / "old" / "notes.txt").write_text("the user's own")
    old, new = workshop.digests("old"), workshop.digests("new")
    new["notes.txt"] = old["notes.txt"]
    script = [sys.executable, "-c", KILLED, str(folder)]
    done = subprocess.run(script, cwd=ROOT, check=True, capture_output=True)
    # Two renames, and what is removed of the old folder.
    assert (last := int(done.stdout)) > 8
    for number in range(1, last + 1):
        shutil.copytree(folder / str(number), folder / "again")
        workshop.build("again/out", **NEW, overwrite=True)
        assert workshop.digests("again/out") == new
        assert not list((folder / "again").glob(".out*"))
        shutil.rmtree(folder / "again")
        name = f"{number}/out"
        if number == last or (folder / str(number) / ".out.old").exists():
            workshop.build(name, **NEW)
            assert workshop.digests(name) == new
        else:
            workshop.build(name)
            assert workshop.digests(name) == old
    assert not list((folder / str(last)).glob(".out*"))


def test_other_records_that_were_never_put_in_place_give_way(
    workshop: Workshop,
) -> None:
    """A killed replacement does not keep the next one from other settings."""
    workshop.build("new", **NEW)
    workshop.build()
    workshop.build(".out.new", seed=9)
    workshop.build(**NEW, overwrite=True)
    assert workshop.digests("out") == workshop.digests("new")
    assert not list(workshop.folder.glob(".out*"))


@pytest.mark.slow
def test_killed_for_good_at_any_moment(workshop: Workshop) -> None:
    """kill -9 again and again; the end is the same, byte for byte."""
    command = [
        "tools.create_pretraining_data",
        f"--input={workshop.folder}/*.txt",
        f"--vocab_file={workshop.vocab_file}",
        "--max_seq_length=48",
        "--num_shards=40",
        "--held_out=0.1",
        "--workers=2",
    ]
    whole, out = workshop.folder / "whole", workshop.folder / "out"
    assert not commands.run(*command, f"--output_dir={whole}").returncode
    command.append(f"--output_dir={out}")
    stopped = 0
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3):
        run = commands.Command(*command, log=workshop.folder / "log")
        while run.poll() is None:
            if (out / ".work").exists():
                time.sleep(delay)
                run.kill()
                stopped += run.wait() == -signal.SIGKILL
    assert stopped >= 4
    assert not commands.run(*command).returncode
    assert workshop.digests("out") == workshop.digests("whole")


def test_other_records_are_refused_and_overwritten(workshop: Workshop) -> None:
    workshop.build()
    with pytest.raises(
        UserError,
        match="max_seq_length is 48 there and 64 now.*another folder.*overwr",
    ):
        workshop.build(max_seq_length=64)
    (workshop.folder / "a.txt").write_text(text(61))
    with pytest.raises(UserError, match=r"a\.txt was changed since"):
        workshop.build()
    tokens = workshop.vocab_file.read_text()
    workshop.vocab_file.write_text(f"{tokens}new\n")
    with pytest.raises(UserError, match="the vocabulary is another one"):
        workshop.build()
    workshop.vocab_file.write_text(tokens)
    keep = workshop.folder / "out" / "notes.txt"
    keep.write_text("the user's own")
    workshop.build(max_seq_length=64, num_shards=2, overwrite=True)
    folder = RecordFolder.open(workshop.folder / "out")
    assert folder.max_seq_length == 64
    assert len(list((workshop.folder / "out").glob("records-*.tfrecord"))) == 2
    assert keep.read_text() == "the user's own"


def test_a_folder_of_something_else_is_not_touched(workshop: Workshop) -> None:
    folder = workshop.folder / "model"
    folder.mkdir()
    (folder / "recipe.json").write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="recipe.json of something else"):
            workshop.build("model", overwrite=overwrite)
    assert [p.name for p in folder.iterdir()] == ["recipe.json"]
    (workshop.folder / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        workshop.build("file")


def test_two_runs_at_once_are_refused(workshop: Workshop) -> None:
    with (
        work_folder(
            workshop.folder / "out",
            RecordsPlan(RecordsRecipe(), "", (), {}),
            WordPiece(VOCABULARY),
        ),
        pytest.raises(UserError, match="another run is writing there"),
    ):
        workshop.build()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one sentence .\nand two .\n", "one single document.*blank line"),
        (" \n\n\t\n", "holds no text"),
        ("\u200b\n\u200b\n", "holds no text"),
    ],
)
def test_a_corpus_that_gives_nothing(
    workshop: Workshop, content: str, message: str
) -> None:
    (workshop.folder / "a.txt").write_text(content)
    (workshop.folder / "b.txt").write_text("\n")
    with pytest.raises(UserError, match=message):
        workshop.build(num_shards=0)


def test_two_documents_are_enough(workshop: Workshop) -> None:
    (workshop.folder / "a.txt").write_text("bal del .\nfim gor .\n\nkun .\n")
    (workshop.folder / "b.txt").write_text("\n")
    lines: list[str] = []
    for seed in range(3):
        report = workshop.build(
            f"out{seed}", seed=seed, held_out=0.4, log=lines.append
        )
        assert report.statistics["records"] >= 2
        assert report.statistics["held_out_records"] == 0
        folder = RecordFolder.open(workshop.folder / f"out{seed}")
        assert folder.num_records == report.statistics["records"]
        assert folder.num_held_out == 0
    assert all("too few to hold out 40.0%" in line for line in lines)


def test_held_out_documents_are_not_trained_on(workshop: Workshop) -> None:
    workshop.build(held_out=0.3, max_seq_length=512, max_predictions_per_seq=76)

    def runs_of_tokens(pattern: str) -> set[tuple[int, ...]]:
        found = set()
        for path in (workshop.folder / "out").glob(pattern):
            for row in parsed(path):
                ids = row["input_ids"]
                found.update(zip(*(ids[k:] for k in range(8)), strict=False))
        special = {VOCABULARY.cls_id, VOCABULARY.sep_id}
        return {window for window in found if not special & set(window)}

    held_out = runs_of_tokens("held_out-*")
    assert len(held_out) > 500
    assert not held_out & runs_of_tokens("records-*")


def test_a_line_of_a_million_characters(workshop: Workshop) -> None:
    with (workshop.folder / "b.txt").open("a") as file:
        file.write("\n\nbal .\n" + "bal " * 250_000 + "\n")
    number = len((workshop.folder / "b.txt").read_text().split("\n")) - 1
    with pytest.raises(UserError) as caught:
        workshop.build()
    message = str(caught.value)
    assert f"b.txt, line {number}: one sentence of more than" in message
    assert "250,000 tokens, of which a record keeps at most 45" in message
    assert "pass `long_lines`=cut" in message
    assert not (workshop.folder / "out").exists()
    lines: list[str] = []
    report = workshop.build(log=lines.append, long_lines="cut")
    (warning,) = [line for line in lines if "warning" in line]
    assert f"b.txt, line {number}: one sentence of more than" in warning
    assert report.statistics["tokens_cut"] > 200_000


def test_the_tokenizer_config_beside_the_vocabulary(workshop: Workshop) -> None:
    """Accents kept, a token added that takes two words, and both remembered."""
    folder = workshop.vocab_file.parent
    tokens = list(VOCABULARY.tokens)
    added = {"content": "bal bam", "id": len(tokens)}
    values = {"do_lower_case": True, "strip_accents": False}
    config = folder / "tokenizer_config.json"
    decoder = {str(len(tokens)): added}
    config.write_text(json.dumps({**values, "added_tokens_decoder": decoder}))
    (workshop.folder / "a.txt").write_text("bal bam bal .\nbál bal .\n\n" * 40)
    (workshop.folder / "b.txt").write_text("Bal Bam . bal\nbam\n\n" * 40)
    workshop.build(held_out=0.0, short_seq_prob=0.0)
    out = RecordFolder.open(workshop.folder / "out")
    assert out.vocabulary.tokens == (*tokens, "bal bam")
    assert out.tokenizer.config == TokenizerConfig.of(
        True, False, added_tokens=[AddedToken("bal bam")]
    )
    ids = {
        int(number)
        for file in out.training_files
        for row in parsed(file.path)
        for number in row["input_ids"]
    }
    of = out.vocabulary.ids
    assert ids == {of[t] for t in ("[CLS]", "[SEP]", "[UNK]", ".")} | {
        of[t] for t in ("bal", "bam", "bal bam")
    }
    workshop.build(held_out=0.0, short_seq_prob=0.0)
    config.write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(UserError, match="strip_accents is False there and Tr"):
        workshop.build(held_out=0.0, short_seq_prob=0.0)


def test_case_that_contradicts_the_vocabulary(workshop: Workshop) -> None:
    config = workshop.vocab_file.parent / "tokenizer_config.json"
    config.write_text('{"do_lower_case": false}')
    with pytest.raises(UserError, match="pass `lower_case`=False"):
        workshop.build()
    assert workshop.build(lower_case=False).statistics["records"]
    config.unlink()
    tokens = workshop.vocab_file.read_text()
    workshop.vocab_file.write_text(tokens + "Capital\n")
    # Hugging Face's say nothing of case in some folders.
    for without in (None, "{}"):
        if without:
            config.write_text(without)
        with pytest.raises(UserError, match="`lower_case`=False for a cased"):
            workshop.build("other")


def test_fields_added_later_keep_folders_and_runs_of_before(
    workshop: Workshop,
) -> None:
    """What the code before these fields wrote and took for the same."""
    before = {
        "5d4e42abb17940ca982fd6f31f105f44dc42295801718bd22150711d7b3af12c": {},
        "b4e485dd774cf9c49f3d353a6563f36b70a731b461a4becf3d402301e24b68a1": {
            "max_seq_length": 64,
            "packing": True,
        },
    }
    for fingerprint, changes in before.items():
        recipe = RecordsRecipe(**changes)
        assert digest(recipe.to_dict()) == fingerprint
        tokenizer = WordPiece(VOCABULARY, TokenizerConfig.of())
        plan = RecordsPlan.of(recipe, tokenizer, ())
        # What is unfinished is known by this, in a file or in a bucket.
        assert digest(plan.to_dict()["recipe"]) == fingerprint
        state = workshop.folder / "state.json"
        plan.save(state)
        assert RecordsPlan.load(state) == plan
        assert "random_next_prob" not in state.read_text()
        other = dataclasses.replace(recipe, random_next_prob=0.0)
        assert RecordsRecipe.from_dict(other.to_dict(), "x") == other
        pair = plan, dataclasses.replace(plan, recipe=other)
        for now, there in (pair, pair[::-1]):
            assert now.difference(there) == (
                f"random_next_prob is {there.recipe.random_next_prob} there "
                f"and {now.recipe.random_next_prob} now"
            )


def test_one_document_will_do_where_no_next_sentence_is_random(
    workshop: Workshop,
) -> None:
    document = text(1, seed=4)
    (workshop.folder / "a.txt").write_text(document + document)
    (workshop.folder / "b.txt").write_text("\n")
    for kind in ({}, {"packing": True}, {"static_masking": True}):
        settings = kind | {"random_next_prob": 0.0, "overwrite": True}
        report = workshop.build(**settings)
        assert "0.0% with a random next sentence" in str(report)
        folder = RecordFolder.open(workshop.folder / "out")
        assert folder.recipe.random_next_prob == 0
        rows = [row for f in folder.training_files for row in parsed(f.path)]
        labels = [x for row in rows for x in row["next_sentence_labels"]]
        assert set(labels) == {0}


def test_recipe_warns_of_predictions_that_do_not_fit_the_share() -> None:
    assert RecordsRecipe().warnings() == []
    assert "masks only 3.9%" in RecordsRecipe(max_seq_length=512).warnings()[0]
    never = RecordsRecipe(max_predictions_per_seq=76).warnings()
    assert "is never reached" in never[0]


@pytest.mark.parametrize("kind", ["plain", "static"])
def test_bytes_stay_as_they_were(tmp_path: pathlib.Path, kind: str) -> None:
    """What the same text and seed gave when the format was fixed.

    Records that change without a reason break the resumption of old runs; a
    change with a reason gives new values here.
    """
    (tmp_path / "text.txt").write_text(text(40, seed=7))
    changes = STATIC | {"whole_word_mask": True} if kind == "static" else {}
    create_records(
        [tmp_path / "text.txt"],
        write_vocabulary(tmp_path / "vocab"),
        tmp_path / "out",
        RecordsRecipe(max_seq_length=64, held_out=0.2, num_shards=2, **changes),
        workers=2,
        log=lambda line: None,
    )
    found = digests(tmp_path / "out")
    found = {name: d for name, d in found.items() if "tfrecord" in name}
    recorded = json.loads((GOLDEN / "digests.json").read_text())
    assert found == recorded[kind]
