"""Building record folders: their content, and how they are resumed."""

import dataclasses
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import tensorflow as tf
from records_corpus import VOCABULARY, Workshop, parsed, text

from bert_tf.errors import UserError
from bert_tf.records import build as build_module
from bert_tf.records import corpus
from bert_tf.records.build import work_folder
from bert_tf.records.folder import RecordFolder
from bert_tf.records.plan import RecordsPlan, RecordsTask
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import read_records
from bert_tf.records.shards import ShardBuilder
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.wordpiece import WordPiece
from bert_tf.training.run_folder import digest
from tests import commands
from tests.subword_models import tokenizer_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "records"
STATIC = {"static_masking": True, "dupe_factor": 3}
SENTENCES = {"sequences": "full_sentences"}
KINDS = {
    "plain": {},
    "static": {**STATIC, "whole_word_mask": True},
    "full_sentences": SENTENCES,
    "document_sentences": {"sequences": "document_sentences", "packing": True},
    "sentence_order": {"sequences": "sentence_order"},
    "ngrams": {
        "sequences": "sentence_order",
        "static_masking": True,
        "masked_ngram_length": 3,
    },
}
OLD = {"num_shards": 1, "held_out": 0.0}
NEW = {"max_seq_length": 64, "num_shards": 2}


@pytest.mark.parametrize("kind", ["static", "mixed"])
def test_bytes_do_not_depend_on_the_workers(workshop, kind) -> None:
    inputs, changes = "", STATIC
    if kind == "mixed":
        inputs, changes = workshop.mixed_inputs()
        changes |= SENTENCES
    one, two = (workshop.build(f"w{n}", n, inputs, **changes) for n in (1, 2))
    names = [path.name for path in (workshop.folder / "w2").iterdir()]
    assert sum(name.startswith("records-") for name in names) == 3
    assert ".work" not in names
    assert workshop.digests("w1") == workshop.digests("w2")
    assert one.manifest == two.manifest


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_stay_as_they_were(workshop, monkeypatch, kind) -> None:
    """Changed records would break the resumption of builds.

    The digests were recorded when the format was fixed.
    """
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 8 << 20)
    (workshop.folder / "text.txt").write_text(text(40, seed=7))
    workshop.build(
        inputs=f"{workshop.folder}/text.txt",
        max_seq_length=64,
        max_predictions_per_seq=20,
        held_out=0.2,
        num_shards=2,
        **KINDS[kind],
    )
    recorded = json.loads((GOLDEN / "digests.json").read_text())
    assert workshop.records() == recorded[kind]


def lines_of(workshop: Workshop) -> list[str]:
    files = [workshop.folder / name for name in ("a.txt", "b.txt")]
    return [x for file in files for x in file.read_text().split("\n") if x]


def test_records_of_sentences_hold_the_text(workshop: Workshop) -> None:
    report = workshop.build(held_out=0.0, num_shards=1, **SENTENCES)
    (path,) = (workshop.folder / "out").glob("*.tfrecord")
    special = {VOCABULARY.cls_id, VOCABULARY.sep_id}
    found: list[int] = []
    for row in parsed(path):
        ids = row["input_ids"]
        assert ids[0] == VOCABULARY.cls_id
        assert ids[-1] == VOCABULARY.sep_id
        assert row["segment_ids"] == [0] * len(ids)
        assert row["next_sentence_labels"] == [-1]
        found += [token for token in ids if token not in special]
    lines = lines_of(workshop)
    tokens = BertTokenizer(VOCABULARY).tokenize(lines).flat_values.numpy()
    assert sorted(found) == sorted(tokens.tolist())
    statistics = report.statistics
    assert statistics["random_next"] == statistics["tokens_cut"] == 0
    # Most rows are filled but for less than a sentence.
    assert statistics["record_tokens"] > 0.8 * 48 * statistics["records"]
    assert " from 1 pass: 4" in str(report)
    order = workshop.build("order", sequences="sentence_order")
    assert re.search(r"pass: [45]\d\.\d% not in order, ", str(order))


def test_records_hold_the_text(workshop: Workshop) -> None:
    report = workshop.build(max_seq_length=512, max_predictions_per_seq=76)
    lines = lines_of(workshop)
    tokens = BertTokenizer(VOCABULARY).tokenize(lines).flat_values.numpy()
    flat = f",{','.join(map(str, tokens.tolist()))},"
    files = sorted((workshop.folder / "out").glob("*.tfrecord"))
    rows = [row for path in files for row in parsed(path)]
    statistics = report.statistics
    assert len(rows) == statistics["records"] + statistics["held_out_records"]
    for row in rows:
        ids, segments = row["input_ids"], row["segment_ids"]
        assert len(ids) == len(segments) <= 512
        assert ids[0] == VOCABULARY.cls_id
        first = ids.index(VOCABULARY.sep_id)
        assert ids[-1] == VOCABULARY.sep_id
        assert segments == [0] * (first + 1) + [1] * (len(ids) - first - 1)
        text_a, text_b = ids[1:first], ids[first + 1 : -1]
        parts = [text_a, text_b]
        if row["next_sentence_labels"] == [0] and len(ids) < 512:
            parts.append(text_a + text_b)
        for part in parts:
            assert f",{','.join(map(str, part))}," in flat
    assert statistics["tokens"] == len(tokens)
    assert statistics["sentences"] == len(lines)
    assert statistics["documents"] == 90
    training = rows[-statistics["records"] :]
    sizes = [len(row["input_ids"]) for row in training]
    assert statistics["record_tokens"] == sum(sizes)
    random_next = sum(row["next_sentence_labels"] == [1] for row in training)
    assert statistics["random_next"] == random_next
    assert 0.3 < random_next / len(training) < 0.7
    assert f"{len(training):,} training records" in str(report)
    assert "bert-tf pretrain" in str(report)


def test_static_records_are_those_of_the_original(workshop: Workshop) -> None:
    workshop.build(**STATIC)
    workshop.build("plain", dupe_factor=3)
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
    for path in sorted((workshop.folder / "out").glob("records-*")):
        batch = tf.io.parse_example(list(read_records(path)), specification)
        columns = {name: value.numpy() for name, value in batch.items()}
        plain = parsed(workshop.folder / "plain" / path.name)
        assert len(columns["input_ids"]) == len(plain) > 0
        for row, expected in enumerate(plain):
            one = {name: values[row] for name, values in columns.items()}
            size = len(expected["input_ids"])
            assert one["input_mask"].tolist() == [1] * size + [0] * (48 - size)
            used = one["masked_lm_weights"] == 1
            assert used.sum() == min(7, max(1, round(size * 0.15)))
            positions = one["masked_lm_positions"][used]
            one["input_ids"][positions] = one["masked_lm_ids"][used]
            for name in ("input_ids", "segment_ids"):
                assert one[name][:size].tolist() == expected[name]
                assert not one[name][size:].any()
            name = "next_sentence_labels"
            assert one[name].tolist() == expected[name]


class Killed(BaseException):
    """Simulates a kill: no handler of errors catches it."""


def test_a_run_that_stops_anywhere_is_finished_by_the_next(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run may have more workers; another recipe is refused."""
    inputs, settings = workshop.mixed_inputs()
    workshop.build("whole", 1, inputs, **settings)
    whole = workshop.digests("whole")
    stages = {"tokenize_corpus": 3, "allocate": 0, "build_shards": 2}
    for stage, steps in stages.items():
        work = getattr(build_module, stage)

        def stop_after(*arguments, work=work, steps=steps) -> Iterator[object]:
            for number, result in enumerate(work(*arguments), start=1):
                yield result
                if number == steps:
                    raise Killed

        def stop(*arguments, work=work) -> None:
            work(*arguments)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(build_module, stage, stop_after if steps else stop)
            with pytest.raises(Killed):
                workshop.build(stage, 1, inputs, **settings)
        with pytest.raises(UserError, match="unfinished; run"):
            RecordFolder.open(workshop.folder / stage)
        with pytest.raises(UserError, match="seed is 12345 there and 7"):
            workshop.build(stage, 1, inputs, seed=7, **settings)
        other = inputs.replace("big:0.5", "big:2")
        with pytest.raises(UserError, match=r"weight of .* is 0.5 there and 2"):
            workshop.build(stage, 1, other, **settings)
        lines: list[str] = []
        workers = 2 if steps == 3 else 1
        workshop.build(stage, workers, inputs, log=lines.append, **settings)
        assert any("resuming after" in line for line in lines)
        assert workshop.digests(stage) == whole


def test_only_missing_shards_are_made(workshop, monkeypatch) -> None:
    build = build_module.build_shards
    requested: list[int] = []

    def one_then_stop(builder: ShardBuilder, jobs: list, workers: int):
        requested.append(len(jobs))
        yield from build(builder, jobs[:1], workers)
        raise Killed

    monkeypatch.setattr(build_module, "build_shards", one_then_stop)
    for _ in range(3):
        with pytest.raises(Killed):
            workshop.build()
    assert requested == [4, 3, 2]


def test_full_disk_keeps_what_was_complete(workshop, monkeypatch) -> None:
    def full(path: pathlib.Path, rows: object) -> None:
        pathlib.Path(path).write_bytes(b"half a shard")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("bert_tf.records.shards.write_records", full)
        with pytest.raises(OSError, match="No space left"):
            workshop.build()
    assert not list((workshop.folder / "out").rglob("*tfrecord*"))
    assert list((workshop.folder / "out").rglob("*.tokens"))
    workshop.build()
    workshop.build("whole")
    assert workshop.digests("out") == workshop.digests("whole")


# Replaces the records in folders 1, 2, ... in forks that are killed before the
# first, second, ... change of a name, until one finishes.
KILLED = """
import itertools, os, pathlib, shutil, sys
from bert_tf.records import build
from bert_tf.records.recipe import RecordsRecipe

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


def test_killed_at_every_step_of_a_replacement(workshop: Workshop) -> None:
    """The next run finishes it, or keeps the old records as they were."""
    folder = workshop.folder
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(text(5))
    workshop.build("new", **NEW)
    workshop.build("old", **OLD)
    (folder / "old" / "notes.txt").write_text("the user's own")
    old, new = workshop.digests("old"), workshop.digests("new")
    new["notes.txt"] = old["notes.txt"]
    script = [sys.executable, "-c", KILLED, str(folder)]
    done = subprocess.run(script, cwd=ROOT, check=True, capture_output=True)
    # Two renames, and the removal of the old files.
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
            workshop.build(name, **OLD)
            assert workshop.digests(name) == old
    assert not list((folder / str(last)).glob(".out*"))


def test_killed_for_good_at_any_moment(workshop: Workshop) -> None:
    """kill -9 again and again; the result is the same, byte for byte."""
    command = [
        "tools.create_pretraining_data",
        f"--input={workshop.folder}/*.txt",
        f"--vocab_file={workshop.vocab_file}",
        "--max_seq_length=48",
        "--num_shards=20",
        "--held_out=0.1",
        "--workers=2",
    ]
    out, log = workshop.folder / "out", workshop.folder / "log"
    # Processes of their own all, with blocks of one size: a worker whose parent
    # was killed may still finish its block.
    whole = [*command, f"--output_dir={workshop.folder}/whole"]
    assert not commands.Command(*whole, log=log).wait()
    command.append(f"--output_dir={out}")
    stopped = 0
    for delay in (0.0, 0.2):
        run = commands.Command(*command, log=log)
        while run.poll() is None:
            if (out / ".work").exists():
                time.sleep(delay)
                run.kill()
                stopped += run.wait() == -signal.SIGKILL
    assert stopped >= 2
    assert not commands.Command(*command, log=log).wait(), log.read_text()
    assert workshop.digests("out") == workshop.digests("whole")


def test_finished_records_are_kept_refused_or_replaced(workshop) -> None:
    report = workshop.build()
    out, keep = workshop.folder / "out", workshop.folder / "out" / "notes.txt"
    keep.write_text("the user's own")
    times = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    lines: list[str] = []
    again = workshop.build(log=lines.append)
    assert "all records are there already" in " ".join(lines)
    assert again.manifest == report.manifest
    with pytest.raises(UserError, match="48 there and 64 now.*overwr"):
        workshop.build(max_seq_length=64)
    before = (workshop.folder / "a.txt").read_bytes()
    tokens = workshop.vocab_file.read_text()
    (workshop.folder / "a.txt").write_bytes(b"caf\xe9\n\nmore\n")
    with pytest.raises(UserError, match=r"a\.txt was changed since"):
        workshop.build()
    workshop.vocab_file.write_text(f"{tokens}new\n")
    with pytest.raises(UserError, match="the vocabulary is another one"):
        workshop.build()
    # Old records are kept until the new ones are finished.
    with pytest.raises(UserError, match="is not UTF-8"):
        workshop.build(overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == times
    (workshop.folder / "a.txt").write_bytes(before)
    # Left by a killed replacement with other settings.
    workshop.build(".out.new", seed=9)
    workshop.build(**NEW, overwrite=True)
    workshop.build("new", **NEW)
    assert keep.read_text() == "the user's own"
    keep.unlink()
    assert workshop.digests("out") == workshop.digests("new")
    assert not list(workshop.folder.glob(".out*"))


def test_folders_that_are_not_written_to(workshop: Workshop) -> None:
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
    plan = RecordsPlan(RecordsRecipe(), "", (), {})
    with (
        work_folder(workshop.folder / "out", plan),
        pytest.raises(UserError, match="another run is writing there"),
    ):
        workshop.build()


def test_a_corpus_of_few_documents(workshop: Workshop) -> None:
    one = workshop.folder / "a.txt"
    (workshop.folder / "b.txt").write_text("\n")
    for content, message in (
        ("one sentence .\nand two .\n", "one single document.*blank line"),
        (" \n\n\t\n", "holds no text"),
        ("\u200b\n\u200b\n", "holds no text"),
    ):
        one.write_text(content)
        with pytest.raises(UserError, match=message):
            workshop.build(num_shards=0)
    one.write_text(text(1, seed=4) * 2)
    for kind in ({}, {"packing": True}, {"static_masking": True}):
        report = workshop.build(random_next_prob=0.0, overwrite=True, **kind)
        assert report.statistics["random_next"] == 0
        folder = RecordFolder.open(workshop.folder / "out")
        rows = [row for f in folder.training_files for row in parsed(f.path)]
        labels = [x for row in rows for x in row["next_sentence_labels"]]
        assert set(labels) == {0}
    for kind in ("full_sentences", "document_sentences"):
        assert workshop.build(kind, sequences=kind).statistics["records"]
    one.write_text("bal del .\nfim gor .\n\nkun .\n")
    for seed in range(3):
        lines: list[str] = []
        settings = {"seed": seed, "held_out": 0.4, "log": lines.append}
        report = workshop.build(f"out{seed}", **settings)
        assert report.statistics["records"] >= 2
        assert report.statistics["held_out_records"] == 0
        folder = RecordFolder.open(workshop.folder / f"out{seed}")
        assert folder.num_records == report.statistics["records"]
        assert folder.num_held_out == 0
        assert "too few to hold out 40.0%" in " ".join(lines)
        assert lines[0].endswith("Pass `held_out`=0.5 for some.")


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


def test_a_line_of_many_characters(workshop: Workshop) -> None:
    with (workshop.folder / "b.txt").open("a") as file:
        file.write("\n\nbal .\n" + "bal " * 50_000 + "\n")
    number = len((workshop.folder / "b.txt").read_text().split("\n")) - 1
    place = f"b.txt, line {number}: one sentence of more than"
    with pytest.raises(UserError, match=f"{place}.*`long_lines`=cut") as caught:
        workshop.build()
    assert "50,000 tokens" in str(caught.value)
    assert "at most 45" in str(caught.value)
    assert not (workshop.folder / "out").exists()
    lines: list[str] = []
    report = workshop.build(log=lines.append, long_lines="cut")
    assert sum(place in line and "warning" in line for line in lines) == 1
    assert report.statistics["tokens_cut"] > 40_000


def test_the_tokenizer_config_beside_the_vocabulary(workshop: Workshop) -> None:
    """Accents kept, and a token added that spans two words."""
    tokens = list(VOCABULARY.tokens)
    config = workshop.vocab_file.parent / "tokenizer_config.json"
    decoder = {str(len(tokens)): {"content": "bal bam", "id": len(tokens)}}
    values = {"do_lower_case": True, "strip_accents": False}
    config.write_text(json.dumps({**values, "added_tokens_decoder": decoder}))
    (workshop.folder / "a.txt").write_text("bal bam bal .\nbál bal .\n\n" * 40)
    (workshop.folder / "b.txt").write_text("Bal Bam . bal\nbam\n\n" * 40)
    settings = {"held_out": 0.0, "short_seq_prob": 0.0}
    workshop.build(**settings)
    out = RecordFolder.open(workshop.folder / "out")
    assert out.tokenizer.config == TokenizerConfig.of(
        True, False, added_tokens=[AddedToken("bal bam")]
    )
    ids = {
        int(number)
        for file in out.training_files
        for row in parsed(file.path)
        for number in row["input_ids"]
    }
    expected = ("[CLS]", "[SEP]", "[UNK]", ".", "bal", "bam", "bal bam")
    assert ids == {out.vocabulary.ids[token] for token in expected}
    config.write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(UserError, match="strip_accents is False there and Tr"):
        workshop.build(**settings)


def test_case_that_contradicts_the_vocabulary(workshop: Workshop) -> None:
    config = workshop.vocab_file.parent / "tokenizer_config.json"
    config.write_text('{"do_lower_case": false}')
    with pytest.raises(UserError, match="pass `lower_case`=False"):
        workshop.build(lower_case=True)
    assert workshop.build().recipe.lower_case is False
    # As recipes state it that were written before this was the default.
    report = workshop.build(lower_case=False)
    assert report.seconds == 0
    config.unlink()
    tokens = workshop.vocab_file.read_text()
    workshop.vocab_file.write_text(tokens + "Capital\n")
    # Some folders of Hugging Face do not state the case.
    for content in (None, "{}"):
        if content:
            config.write_text(content)
        with pytest.raises(UserError, match="`lower_case`=False for a cased"):
            workshop.build("other", lower_case=True)
    assert workshop.build("other").recipe.lower_case is False


def test_a_report_says_how_to_train(workshop: Workshop) -> None:
    """The flags fit tokenizer and rows; the tokenizer decides on the case."""
    report = workshop.build()
    for name, sequences, flags in (
        ("bert", "sentence_pairs", ""),
        ("bert", "full_sentences", "masked_lm"),
        ("roberta", "sentence_pairs", "masked_lm"),
        ("modernbert", "document_sentences", "masked_lm"),
        ("xlm-roberta", "full_sentences", "masked_lm"),
        ("albert", "sentence_pairs", ""),
        ("albert", "sentence_order", "masked_lm_sentence_order"),
    ):
        has_mini = name not in ("albert", "modernbert")
        size = "--size=mini" if has_mini else "--size=base"
        expected = size if name == "bert" else f"--architecture={name} {size}"
        if flags:
            expected += f" --set=objective={flags}"
        tokenizer = report.tokenizer if name == "bert" else tokenizer_of(name)
        recipe = dataclasses.replace(report.recipe, sequences=sequences)
        changes = {"tokenizer": tokenizer, "recipe": recipe}
        changed = dataclasses.replace(report, **changes)
        last = str(changed).splitlines()[-1]
        assert last.endswith(f" --output_dir=DIR {expected}")
    for name in ("roberta", "albert"):
        data = tokenizer_of(name)
        data.save(workshop.folder / name)
        file = workshop.folder / name / data.FILES[0]
        other = Workshop(workshop.folder, file)
        found = other.build(f"of_{name}")
        assert found.recipe.lower_case is (name == "albert")
        assert found.tokenizer == data
        with pytest.raises(UserError, match="pass `lower_case`="):
            other.build("other", lower_case=name == "roberta")


def test_fields_added_later_keep_folders_and_runs_of_before(tmp_path) -> None:
    before = {
        "5d4e42abb17940ca982fd6f31f105f44dc42295801718bd22150711d7b3af12c": {},
        "b4e485dd774cf9c49f3d353a6563f36b70a731b461a4becf3d402301e24b68a1": {
            "max_seq_length": 64,
            "packing": True,
        },
    }
    state = tmp_path / ".work" / "state.json"
    state.parent.mkdir()
    for fingerprint, changes in before.items():
        recipe = RecordsRecipe(**changes)
        tokenizer = WordPiece(VOCABULARY, TokenizerConfig.of())
        plan = RecordsTask.of(recipe, tokenizer, ()).plan
        state.write_text(plan.to_json())
        assert digest(json.loads(state.read_text())["recipe"]) == fingerprint
        assert RecordsPlan.of_folder(tmp_path) == plan
        other = dataclasses.replace(plan.recipe, random_next_prob=0.0)
        assert RecordsRecipe.from_dict(other.to_dict(), "x") == other
        pair = plan, dataclasses.replace(plan, recipe=other)
        for now, there in (pair, pair[::-1]):
            assert now.difference(there) == (
                f"random_next_prob is {there.recipe.random_next_prob} there "
                f"and {now.recipe.random_next_prob} now"
            )


def test_recipe_warns_of_predictions_that_do_not_fit_the_share() -> None:
    assert RecordsRecipe().warnings() == []
    assert "masks only 3.9%" in RecordsRecipe(max_seq_length=512).warnings()[0]
    never = RecordsRecipe(max_predictions_per_seq=76).warnings()
    assert "is never reached" in never[0]
