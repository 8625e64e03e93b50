import gzip
import multiprocessing
import pathlib

import pytest

from bert_tf.errors import UserError
from bert_tf.files import (
    decode_line,
    expand_inputs,
    locked,
    open_bytes,
    write_text,
    written_beside,
)


def test_globs_are_sorted_and_counted_once(tmp_path):
    for name in ("b.txt", "a.txt", "c.gz"):
        (tmp_path / name).write_text("x")
    found = expand_inputs(f"{tmp_path}/*.txt, {tmp_path}/a.txt,{tmp_path}/c.gz")
    assert [f.name for f in found] == ["a.txt", "b.txt", "c.gz"]


def test_inputs_that_cannot_be_read(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for patterns, message in (
        ("", "give one or more files"),
        (" , ", "give one or more files"),
        (f"{tmp_path}/none-*.txt", r"`inputs`=.*none-\*.txt: no such file"),
        (str(tmp_path), "is a directory; name its files"),
        (f"{tmp_path}/empty.txt", "the files are empty"),
    ):
        with pytest.raises(UserError, match=message):
            expand_inputs(patterns)


def test_a_file_without_permission(tmp_path, monkeypatch):
    # Root may read everything, so the system's answer is put in its place.
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(UserError, match="cannot be read"):
        expand_inputs(f"{tmp_path}/a.txt")


def test_bytes_that_are_not_utf8_name_file_and_line(tmp_path):
    line = b"caf\xe9"
    with pytest.raises(UserError) as caught:
        decode_line(line, "latin.txt", 2)
    assert str(caught.value) == (
        "latin.txt, line 2: byte 4 (0xe9) is not UTF-8; convert the file or "
        "pass `encoding_errors`=replace."
    )
    assert decode_line(line, "latin.txt", 2, "replace") == "caf\ufffd"
    assert decode_line(b"a", "latin.txt", 1) == "a"


def test_gzip_is_opened_as_text_is(tmp_path):
    for name, write in (("a.txt", bytes), ("a.gz", gzip.compress)):
        (tmp_path / name).write_bytes(write(b"one\ntwo"))
        with open_bytes(tmp_path / name) as file:
            assert list(file) == [b"one\n", b"two"]


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "first\n")

    def fail_half_way():
        with written_beside(path) as beside:
            beside.write_text("seco")
            raise OSError(28, "full")

    with pytest.raises(OSError, match="full") as caught:
        fail_half_way()
    assert caught.value.filename == str(path)
    assert path.read_text() == "first\n"
    write_text(path, "second\n")
    assert path.read_text() == "second\n"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_a_folder_is_never_replaced_by_a_file(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "folder", "text")
    assert (tmp_path / "folder" / "mine.txt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_replaces_a_folder(tmp_path):
    for text in ("one", "two"):
        with written_beside(tmp_path / "folder") as beside:
            beside.mkdir()
            (beside / text).write_text(text)
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["two"]


def _hold(path: pathlib.Path, held, release) -> None:
    with locked(path, path.parent):
        held.set()
        release.wait(30)


def test_a_lock_ends_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    lock = tmp_path / "lock"
    process = context.Process(target=_hold, args=(lock, held, release))
    process.start()
    assert held.wait(30)
    with pytest.raises(UserError, match="another run is writing there"):
        with locked(lock, tmp_path):
            pass
    process.kill()
    process.join()
    with locked(lock, tmp_path):
        pass
