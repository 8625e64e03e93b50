"""Files on a disk or in remote storage: gs://, s3://, hdfs://."""

import contextlib
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from bert_tf.corpora.data_sets import PREFIX
from bert_tf.corpora.sources import CorpusFile
from bert_tf.errors import UserError
from bert_tf.files import expand_inputs
from bert_tf.records.folder import WORK_FOLDER, InputFile

_RAW = CompressionTypes.UNCOMPRESSED
_Result = TypeVar("_Result")


def is_remote(path: str | pathlib.Path) -> bool:
    """Returns whether a path is a URL that only Beam can open."""
    return "://" in str(path) and not str(path).startswith(PREFIX)


def _matches(pattern: str, argument: str) -> list[tuple[str, int, float]]:
    """Returns path, bytes and time of the files of a remote path or glob."""
    try:
        (matches,) = FileSystems.match([pattern])
    # A ValueError if the library of the scheme is not installed.
    except (BeamIOError, ValueError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise UserError(f"`{argument}`={pattern}: {reason}.") from None
    return sorted(
        (str(file.path), file.size_in_bytes, file.last_updated_in_seconds)
        for file in matches.metadata_list
    )


def expand(patterns: str) -> list[str | pathlib.Path]:
    """Expands comma-separated paths, URLs and globs; see `expand_inputs`.

    Raises:
      UserError: a pattern matches nothing, or only empty files.
    """
    every = [p.strip() for p in patterns.split(",") if p.strip()]
    local = [pattern for pattern in every if not is_remote(pattern)]
    files: list[str | pathlib.Path] = []
    if local:
        files += expand_inputs(",".join(local))
    for pattern in filter(is_remote, every):
        matches = _matches(pattern, "inputs")
        if not matches:
            raise UserError(f"`inputs`={pattern}: no such file.")
        if not any(size for _, size, _ in matches):
            raise UserError(f"`inputs`={pattern}: the files are empty.")
        files += [path for path, _, _ in matches if path not in files]
    return files


def describe(file: CorpusFile) -> InputFile:
    """Reads size and time of modification of a local or remote file."""
    if not is_remote(file.path):
        return InputFile.of(file)
    ((_, size, modified),) = _matches(file.path, "inputs")
    return InputFile(
        file.path, size, int(modified * 1e9), file.corpus, file.weight
    )


def size_of(path: str) -> int | None:
    """Returns the bytes of a file, or None if it does not exist."""
    if not is_remote(path):
        file = pathlib.Path(path)
        return file.stat().st_size if file.is_file() else None
    matches = _matches(path, "output_dir")
    return matches[0][1] if matches else None


def read_bytes(path: str) -> bytes:
    """Reads a file."""
    with FileSystems.open(path, compression_type=_RAW) as file:
        return file.read()


@contextlib.contextmanager
def local_copies(paths: Sequence[str]) -> Iterator[list[str]]:
    """Copies remote files to a temporary folder.

    A `UserError` raised inside names the remote file instead of its copy.

    Yields:
      The paths of the copies, and of the local files as they are.
    """
    copies = list(paths)
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as folder:
        for number, path in enumerate(paths):
            if is_remote(path):
                copy = pathlib.Path(folder, str(number), path.split("/")[-1])
                copy.parent.mkdir()
                with (
                    FileSystems.open(path, compression_type=_RAW) as source,
                    open(copy, "wb") as target,
                ):
                    shutil.copyfileobj(source, target, 1 << 20)
                copies[number] = str(copy)
        try:
            yield copies
        except UserError as error:
            text = str(error)
            for path, local in zip(paths, copies, strict=True):
                text = text.replace(local, path)
            raise UserError(text) from None


def write_whole(
    folder: str, name: str, write: Callable[[BinaryIO], _Result]
) -> _Result:
    """Writes a file of a folder of records, atomically.

    Several workers may write the same file at the same time.

    Args:
      folder: the folder of the records.
      name: the name of the file.
      write: writes the content.

    Returns:
      The result of `write`.
    """
    target = join(folder, name)
    # In the same folder: files are not renamed across file systems.
    partial = join(folder, WORK_FOLDER, f"{uuid.uuid4().hex}.partial")
    try:
        if is_remote(folder):
            with FileSystems.create(partial, compression_type=_RAW) as file:
                result = write(file)
            # Not every file system overwrites a file by renaming.
            if FileSystems.exists(target):
                FileSystems.delete([target])
            FileSystems.rename([partial], [target])
        else:
            os.makedirs(os.path.dirname(partial), exist_ok=True)
            with open(partial, "wb", buffering=1 << 20) as file:
                result = write(file)
                file.flush()
                os.fsync(file.fileno())
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError, BeamIOError):
            remove(partial)
        raise
    return result


def join(folder: str, *names: str) -> str:
    """Joins a folder, which may be a URL, and names."""
    return "/".join([folder.rstrip("/"), *names])


def remove(path: str) -> None:
    """Removes a file if it exists."""
    if not is_remote(path):
        pathlib.Path(path).unlink(missing_ok=True)
    elif FileSystems.exists(path):
        FileSystems.delete([path])


def remove_work_folder(folder: str) -> None:
    """Removes the remote folder of unfinished work."""
    work = join(folder, WORK_FOLDER)
    left = [path for path, _, _ in _matches(f"{work}/*", "output_dir")]
    if left:
        FileSystems.delete(left)
    # Some file systems have folders, not only prefixes of names.
    remove(work)
