import errno
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time

import pytest

from bert_tf.errors import UserError
from bert_tf.files import (
    decode_line,
    expand_inputs,
    locked,
    new_folder,
    open_bytes,
    partial_path,
    read_lines,
    write_text,
    written_beside,
)
from tests.packing import PACK
from tests.user_errors import error_of

ROOT = pathlib.Path(__file__).resolve().parent.parent


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
    data = b"caf\xe9"
    with pytest.raises(UserError) as caught:
        decode_line(data, "latin.txt", 2)
    line = str(caught.value)
    assert line.startswith("latin.txt, line 2: byte 4 (0xe9) ")
    assert "`encoding_errors`=replace" in line
    assert decode_line(data, "latin.txt", 2, "replace") == "caf\ufffd"
    assert decode_line(b"a", "latin.txt", 1) == "a"


@pytest.mark.parametrize(
    ("ending", "kind"),
    [("gz", "gzip"), ("bz2", "bz2"), ("zst", "Zstandard")],
)
def test_compressed_files_are_opened_as_text_is(tmp_path, ending, kind):
    packed = PACK[ending](b"one\ntwo" * 9000)
    # The name tells, or else the first bytes.
    for name in (f"a.{ending}", f"A.{ending.upper()}", "a.txt"):
        path = tmp_path / name
        path.write_bytes(packed)
        with open_bytes(path) as file:
            assert b"".join(file) == b"one\ntwo" * 9000
        path.write_bytes(packed[:-9])
        line = error_of(list, read_lines(path, "strict"))
        assert line.startswith(f"{path}: damaged {kind} file (")
    path = tmp_path / f"b.{ending}"
    path.write_bytes(b"plain text")
    assert f"damaged {kind}" in error_of(list, read_lines(path, "strict"))


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


KILLED = """
import os, pathlib, signal, sys
from bert_tf.files import new_folder, written_beside
kind, path = sys.argv[1], pathlib.Path(sys.argv[2])
with (new_folder if kind == "new" else written_beside)(path) as beside:
    if kind == "folder":
        beside.mkdir()
    (beside if kind == "file" else beside / "part").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def start_writing(kind: str, path: pathlib.Path) -> subprocess.Popen:
    """A process in the middle of writing a file or a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, kind, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def write_again(kind: str, path: pathlib.Path) -> None:
    """Writes the same whole, as the next run does."""
    with (new_folder if kind == "new" else written_beside)(path) as beside:
        if kind == "folder":
            beside.mkdir()
        (beside if kind == "file" else beside / "part").write_text("whole")


@pytest.mark.parametrize("kind", ["file", "folder", "new"])
def test_what_a_killed_process_left_goes_with_the_next_write(kind, tmp_path):
    path = tmp_path / "out"
    process = start_writing(kind, path)
    (left,) = tmp_path.iterdir()
    assert str(process.pid) in left.name
    if kind != "new":
        write_again(kind, path)
        # It still runs, and what it writes is its own.
        assert {p.name for p in tmp_path.iterdir()} == {"out", left.name}
    process.kill()
    if kind == "new":
        # Killed and not yet asked after by its parent, it is dead all the same.
        while not _is_zombie(process.pid):
            time.sleep(0.01)
    else:
        process.wait()
    write_again(kind, path)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    process.communicate()


def _is_zombie(pid: int) -> bool:
    return ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text()


def partial(machine: str = "", process: int = 0, start: str = "") -> str:
    """A name as a process of this machine would give it, with changes."""
    with partial_path("out") as beside:
        own = beside.name.removeprefix(".out.").removesuffix(".partial")
    parts = own.split("-")
    parts[0] = machine or parts[0]
    parts[1] = str(process) if process else parts[1]
    parts[2] = start or parts[2]
    return f".out.{'-'.join(parts)}.partial"


@pytest.mark.parametrize(
    ("name", "hours", "stays"),
    [
        # A number that another process has now.
        ({"start": "123"}, 0, False),
        ({"process": 999_999_999}, 0, False),
        # Of another machine: only when nobody has written to it for a day.
        ({"machine": "0123abcd"}, 23, True),
        ({"machine": "0123abcd"}, 25, False),
        ({"machine": "0123abcd", "process": 999_999_999}, 0, True),
    ],
)
def test_partials_of_others(name, hours, stays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left = tmp_path / partial(**name)
    (left / "inner").mkdir(parents=True)
    then = time.time() - 3600 * hours
    for path in (left / "inner", left):
        os.utime(path, (then, then))
    write_text(tmp_path / "out", "text")
    assert left.exists() == stays


def test_names_of_earlier_versions_and_of_others(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    names = {
        f".out.{process.pid}.partial": False,
        f".out.{os.getpid()}.partial": True,
        # Of other files, or nothing of ours.
        f".out.txt.{process.pid}.partial": True,
        f"out.{process.pid}.partial": True,
        ".out.x.partial": True,
    }
    for name in names:
        (tmp_path / name).write_text("")
    write_text(tmp_path / "out", "text")
    assert {n: (tmp_path / n).exists() for n in names} == names


def test_reading_works_without_fcntl(tmp_path):
    """As on Windows: only a lock needs it, and says that it has none."""
    script = (
        "import sys; sys.modules['fcntl'] = None\n"
        "import bert_tf.config, bert_tf.checkpoints, bert_tf.text.vocabulary\n"
        "import bert_tf.text.corpus_tokenizer\n"
        "from bert_tf.files import locked\n"
        f"with locked(r'{tmp_path / 'lock'}', r'{tmp_path}'): print('inside')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    assert "has no fcntl to lock it with" in done.stderr
    assert done.stderr.count("\n") == 1


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


@pytest.mark.parametrize("is_there", [False, True])
def test_what_others_put_into_a_new_folder_is_kept(is_there, tmp_path):
    path = tmp_path / "out"
    if is_there:
        path.mkdir()

    def write() -> None:
        with new_folder(path) as beside:
            (beside / "file").write_text("ours")
            path.mkdir(exist_ok=True)
            (path / "notes.txt").write_text("precious")

    with pytest.raises(UserError, match="is not empty"):
        write()
    assert [p.name for p in path.iterdir()] == ["notes.txt"]


def test_an_empty_folder_stays_the_same_folder(tmp_path):
    path, link = tmp_path / "out", tmp_path / "link"
    path.mkdir()
    link.symlink_to(path)
    before = path.stat().st_ino
    with new_folder(link) as beside:
        (beside / "file").write_text("ours")
    assert path.stat().st_ino == before
    assert [p.name for p in path.iterdir()] == ["file"]


def test_parents_of_a_new_folder_that_fails_go_again(tmp_path):
    def write(path) -> None:
        with new_folder(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "new" / "newer" / "out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(UserError, match="is a file, no folder"):
            write(path)
