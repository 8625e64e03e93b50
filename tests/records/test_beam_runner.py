"""Records of the Beam pipeline equal those of this machine, byte for byte."""

import dataclasses
import importlib.util
import os
import pathlib
import re
from typing import Any

import pytest
from records_corpus import SETTINGS, Workshop, text

from bert_tf.corpora.sources import parse_inputs
from bert_tf.errors import UserError
from bert_tf.records.beam.options import parse_options
from bert_tf.records.folder import RecordFolder
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.report import RecordsReport

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None,
    reason="apache-beam is not installed: pip install -r requirements-beam.txt",
)


def beam_records(
    inputs: str,
    vocab_file: object,
    output_dir: object,
    recipe: RecordsRecipe,
    options: str = "",
    **settings: Any,
) -> RecordsReport:
    parsed = parse_options(options)
    from bert_tf.records.beam.files import expand
    from bert_tf.records.beam.runner import create_records_with_beam

    return create_records_with_beam(
        parse_inputs(inputs, recipe, expand=expand),
        str(vocab_file),
        str(output_dir),
        recipe,
        parsed,
        **settings,
    )


def with_beam(
    workshop: Workshop,
    inputs: str = "",
    options: str = "",
    overwrite: bool = False,
    log: Any = lambda line: None,
    **changes: Any,
) -> RecordsReport:
    """Makes records with Beam, in the folder beam."""
    return beam_records(
        inputs or f"{workshop.folder}/*.txt",
        workshop.vocab_file,
        workshop.folder / "beam",
        RecordsRecipe(**(SETTINGS | changes)),
        options,
        overwrite=overwrite,
        log=log,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--projet=x", "'--projet' is no option.*did you mean --project"),
        ("--direct_num_workers=two", "invalid int value: 'two'"),
        ("--direct_running_mode=fast", "invalid choice: 'fast'"),
        ("words", "'words' is no option"),
        ("--project='x", "no closing quotation"),
    ],
)
def test_bad_options_are_told(options: str, message: str) -> None:
    with pytest.raises(
        UserError, match=f"`beam_options`=.*{message}"
    ) as caught:
        parse_options(options)
    assert "\n" not in str(caught.value)


def test_options_are_taken_as_a_shell_takes_them() -> None:
    from apache_beam.options.pipeline_options import (
        GoogleCloudOptions,
        StandardOptions,
    )

    options = parse_options("--runner=FlinkRunner --job_name='two words'")
    assert options.view_as(StandardOptions).runner == "FlinkRunner"
    assert options.view_as(GoogleCloudOptions).job_name == "two words"
    assert parse_options("").view_as(StandardOptions).runner == "FnApiRunner"


@pytest.mark.parametrize(
    ("runner", "message"),
    [("NoRunner", "NoRunner"), ("DataflowRunner", "project|apache.beam.gcp")],
)
def test_a_runner_that_cannot_be_is_told(
    workshop: Workshop, runner: str, message: str
) -> None:
    with pytest.raises(UserError, match=f"--runner={runner}.*({message})"):
        with_beam(workshop, options=f"--runner={runner}")
    assert not (workshop.folder / "beam").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"static_masking": True, "dupe_factor": 3, "whole_word_mask": True},
        # Files that borrow documents of others, and empty ones.
        {"num_shards": 60, "packing": True},
        # Too few can be held out; the first file gets them.
        {"held_out": 0.01, "seed": 3, "sequences": "sentence_order"},
        {"sequences": "full_sentences"},
        None,
    ],
    ids=["static", "borrowing", "returned", "sentences", "mixed"],
)
def test_the_files_are_the_same(
    workshop: Workshop, changes: dict[str, object] | None
) -> None:
    """Near-duplicates of mixed corpora are dropped."""
    inputs, settings = (
        workshop.mixed_inputs() if changes is None else ("", changes)
    )
    on_this_machine = workshop.build("here", 1, inputs, **settings)
    by_beam = with_beam(workshop, inputs, **settings)
    assert workshop.digests("here") == workshop.digests("beam")
    assert on_this_machine.manifest == by_beam.manifest
    expected = 7 if changes is None else 0
    assert by_beam.statistics["near_duplicates"] == expected
    folder = RecordFolder.open(workshop.folder / "beam")
    assert folder.num_records == by_beam.statistics["records"] > 0


@pytest.mark.parametrize(
    "options",
    [
        # Falls back to an engine of Beam if nothing can be downloaded.
        "--runner=DirectRunner --prism_location=/nowhere",
        "--direct_running_mode=multi_threading --direct_num_workers=2",
        "--direct_running_mode=multi_processing --direct_num_workers=2",
    ],
)
def test_the_files_do_not_depend_on_the_workers(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    # Other processes know nothing of small blocks.
    monkeypatch.undo()
    workshop.build("here")
    with_beam(workshop, options=options)
    assert workshop.digests("here") == workshop.digests("beam")


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (b"bal .\nfim .\n\nd\xe9l .\n", {}),
        (b"bal .\nfim .\n", {}),
        (b"bal .\n\n" + b"fim " * 5000 + b"\n", {}),
    ],
    ids=["reading", "allocation", "tokenisation"],
)
def test_mistakes_are_told_as_on_this_machine(
    workshop: Workshop, content: bytes, changes: dict[str, object]
) -> None:
    path = workshop.folder / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UserError) as on_this_machine:
        workshop.build("here", 1, str(path), **changes)
    with pytest.raises(UserError) as by_beam:
        with_beam(workshop, str(path), **changes)
    assert str(by_beam.value) == str(on_this_machine.value)
    assert str(path) in str(by_beam.value)
    assert not (workshop.folder / "beam").exists()


def test_warnings_are_told_as_on_this_machine(workshop: Workshop) -> None:
    path = workshop.write("long.txt", text(9) + "\n\n" + "fim " * 5000)
    lines: list[str] = []
    settings = {"long_lines": "cut", "held_out": 0.01}
    workshop.build("here", 1, path, **settings)
    with_beam(workshop, path, log=lines.append, **settings)
    log = "\n".join(lines)
    assert f"warning: {path}, line" in log
    assert "one sentence of more than 10,000 characters" in log
    assert "too few to hold out 1.0%" in log
    assert workshop.digests("here") == workshop.digests("beam")


def test_a_folder_is_left_unfinished_finished_or_replaced(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: object, records: object) -> None:
        file.write(b"half a shard")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bert_tf.records.beam.pipeline.write_frames", full)
        with pytest.raises(
            OSError, match="pipeline of Apache Beam failed.*No space left"
        ):
            with_beam(workshop)
    left = [path.name for path in (workshop.folder / "beam").rglob("*")]
    assert not [name for name in left if "tfrecord" in name]
    assert not [name for name in left if "partial" in name]
    with pytest.raises(UserError, match="the records are unfinished; run"):
        RecordFolder.open(workshop.folder / "beam")
    with_beam(workshop)
    workshop.build("here")
    assert workshop.digests("beam") == workshop.digests("here")
    lines: list[str] = []
    report = with_beam(workshop, log=lines.append)
    assert "all records are there already" in " ".join(lines)
    assert report.statistics["records"] > 0
    with pytest.raises(UserError, match="seed is 12345 there and 9 now"):
        with_beam(workshop, seed=9)
    with_beam(workshop, seed=9, overwrite=True)
    workshop.build("here", seed=9, overwrite=True)
    assert workshop.digests("beam") == workshop.digests("here")


@pytest.fixture(scope="module")
def bucket_system() -> Any:
    """A file system of Beam for bucket://, which lies in its `root`."""
    from apache_beam.io.localfilesystem import LocalFileSystem

    def place(path: str) -> str:
        return str(path).replace("bucket://", f"{Bucket.root}/")

    class Bucket(LocalFileSystem):
        """Like a cloud's store: names that are no paths of this machine."""

        root: pathlib.Path

        @classmethod
        def scheme(cls) -> str:
            return "bucket"

        def match(self, patterns: Any, limits: Any = None) -> Any:
            found = super().match([place(p) for p in patterns], limits)
            for result in found:
                for file in result.metadata_list:
                    file.path = file.path.replace(
                        f"{Bucket.root}/", "bucket://"
                    )
            return found

        def create(self, path: str, *arguments: Any, **settings: Any) -> Any:
            os.makedirs(os.path.dirname(place(path)), exist_ok=True)
            return super().create(place(path), *arguments, **settings)

        def open(self, path: str, *arguments: Any, **settings: Any) -> Any:
            return super().open(place(path), *arguments, **settings)

        def exists(self, path: str) -> bool:
            return super().exists(place(path))

        def rename(self, sources: Any, targets: Any) -> None:
            assert not self.exists(targets[0])
            super().rename(list(map(place, sources)), list(map(place, targets)))

        def delete(self, paths: Any) -> None:
            for path in map(pathlib.Path, map(place, paths)):
                path.rmdir() if path.is_dir() else path.unlink()

    return Bucket


@pytest.fixture
def bucket(tmp_path: pathlib.Path, bucket_system: Any) -> pathlib.Path:
    """An empty folder that Beam reaches as bucket://."""
    bucket_system.root = tmp_path / "bucket"
    bucket_system.root.mkdir()
    return bucket_system.root


def test_all_paths_may_be_remote(
    workshop: Workshop, bucket: pathlib.Path
) -> None:
    for name in ("a.txt", "b.txt"):
        (bucket / name).write_bytes((workshop.folder / name).read_bytes())
    (bucket / "v").mkdir()
    (bucket / "v" / "vocab.txt").write_bytes(workshop.vocab_file.read_bytes())
    config = '{"do_lower_case": true}'
    (bucket / "v" / "tokenizer_config.json").write_text(config)
    workshop.build("here", 1, f"{workshop.folder}/?.txt")
    recipe = RecordsRecipe(**SETTINGS)
    arguments = (
        "bucket://?.txt",
        "bucket://v/vocab.txt",
        "bucket://out/records",
    )
    report = beam_records(*arguments, recipe)
    assert "copy bucket://out/records" in str(report)
    out = bucket / "out" / "records"
    found = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    local = {
        p.name: p.read_bytes() for p in (workshop.folder / "here").iterdir()
    }
    # The manifest names the input files.
    assert b"bucket://a.txt" in found.pop("records.json")
    assert local.pop("records.json")
    assert found == local
    assert not list(out.rglob("*.partial"))
    assert RecordFolder.open(out).num_records == report.statistics["records"]
    with pytest.raises(UserError, match=r"holds a records\.json already"):
        beam_records(*arguments, recipe)
    with pytest.raises(UserError, match="`overwrite`: nothing is removed"):
        beam_records(*arguments, recipe, overwrite=True)
    cased = RecordsRecipe(**SETTINGS, lower_case=False)
    with pytest.raises(
        UserError, match=r"^bucket://v/tokenizer_config\.json: do_"
    ):
        beam_records(*arguments[:2], "bucket://cased", cased)


def test_mistakes_in_remote_files_name_them(
    workshop: Workshop, bucket: pathlib.Path
) -> None:
    from bert_tf.records.beam.files import is_remote

    # TensorFlow Datasets opens its prepared data sets itself.
    assert not is_remote("tfds:gs://bucket/mine/1.0.0")
    (bucket / "bad.txt").write_bytes(b"bal .\n\nd\xe9l .\n")
    recipe = RecordsRecipe(**SETTINGS)
    for inputs, message in (
        ("bucket://bad.txt", r"bucket://bad\.txt, line 3: .* is not UTF-8"),
        ("bucket://none*.txt", r"`inputs`=bucket://none\*\.txt: no such file"),
        ("nothing://a.txt", "`inputs`=nothing://a.txt: Unable to get filesys"),
    ):
        with pytest.raises(UserError, match=message):
            beam_records(inputs, workshop.vocab_file, "bucket://out", recipe)
    assert not (bucket / "out" / ".work" / "state.json").exists()
    with pytest.raises(UserError, match="no such vocabulary file"):
        beam_records(
            str(workshop.folder / "a.txt"),
            "bucket://none",
            "bucket://o",
            recipe,
        )


def test_a_remote_run_that_failed_is_known_and_done_again(
    workshop: Workshop, bucket: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = str(workshop.folder / "a.txt")
    recipe = RecordsRecipe(**SETTINGS)

    def run(recipe: RecordsRecipe) -> RecordsReport:
        return beam_records(inputs, workshop.vocab_file, "bucket://out", recipe)

    def fail(file: object, records: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        target = "bert_tf.records.beam.pipeline.write_frames"
        broken.setattr(target, fail)
        with pytest.raises(OSError, match="pipeline of Apache Beam failed"):
            run(recipe)
    with pytest.raises(UserError, match="are unfinished"):
        RecordFolder.open(bucket / "out")
    with pytest.raises(UserError, match="holds unfinished records of another"):
        run(dataclasses.replace(recipe, seed=9))
    run(recipe)
    assert RecordFolder.open(bucket / "out").num_records
    # Folders of something else stay as they are.
    (bucket / "model").mkdir()
    (bucket / "model" / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match=r"holds a recipe\.json already"):
        beam_records(inputs, workshop.vocab_file, "bucket://model", recipe)


def test_beam_takes_the_options_that_its_page_shows() -> None:
    page = (ROOT / "docs" / "beam.md").read_text()
    shown = re.findall(r"--beam_options='([^']*)'", page)
    assert len(shown) >= 4
    for options in shown:
        parse_options(options)
