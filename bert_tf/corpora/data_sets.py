"""Text out of TensorFlow Datasets."""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from absl import logging

from bert_tf.corpora.streams import Position, RawDocument
from bert_tf.errors import UserError, excerpt
from bert_tf.recipe import read_json_object

PREFIX = "tfds:"
_DEFAULT_SPLIT = "train"
# Where TensorFlow Datasets keeps what it has prepared.
_SOURCE = "https://storage.googleapis.com/tfds-data/"
_SECONDS_TO_ANSWER = 10
# How features.json names a class, in its three versions.
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")


@dataclasses.dataclass(frozen=True)
class Description:
    """A split of a data set on this machine; its name says the version too."""

    name: str
    rows: int
    size: int


def _parse(path: str) -> tuple[str, str]:
    """The data set and the split that `tfds:NAME@SPLIT` names."""
    name, _, split = path.removeprefix(PREFIX).partition("@")
    if not name:
        raise UserError(
            f"`inputs`={path}: names no data set; write for example "
            "tfds:wikipedia/20230601.en."
        )
    return name, split or _DEFAULT_SPLIT


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps back warnings that are for the authors of data sets."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _cannot(path: str, error: Exception | str) -> UserError:
    # What follows the first line is a list of all data sets, or a trace.
    reason = str(error).strip().split("\n")[0].rstrip(".")[:200]
    return UserError(
        f"`inputs`={path}: TensorFlow Datasets cannot give it ({reason}); "
        "prepare it where there is a connection, with `tfds build` or "
        "tfds.load, and set TFDS_DATA_DIR to its folder, or write "
        "tfds:FOLDER, the folder of the prepared version."
    )


def _class_names(value: Any) -> Iterator[str]:
    """The Python classes that a features.json names, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from _class_names(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in _CLASS_KEYS and isinstance(each, str):
                yield each
            yield from _class_names(each)
    # Files of early versions hold messages as text.
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            yield from _class_names(json.loads(value))


def _refuse_foreign_classes(folder: str, path: str) -> None:
    """Refuses a folder whose features are classes of other packages.

    TensorFlow Datasets imports the module of every class that features.json
    names, which runs whatever that module is.
    """
    file = pathlib.Path(folder, "features.json")
    if not file.exists():
        return
    for name in _class_names(read_json_object(file)):
        if not name.startswith("tensorflow_datasets."):
            raise UserError(
                f"`inputs`={path}: {file} names the Python class "
                f"{excerpt(name)}, which is not imported because a file names "
                "it; write the texts to JSON lines and give that file."
            )


@functools.cache
def _builder(name: str, path: str) -> Any:
    """The builder of a data set that is on this machine, prepared."""
    import requests
    import tensorflow_datasets as tfds

    try:
        with quiet():
            if pathlib.Path(name).is_dir():
                _refuse_foreign_classes(name, path)
                return tfds.builder_from_directory(name)
            builder = tfds.builder(name, try_gcs=False)
            if not builder.is_prepared():
                # The download itself takes minutes to give up.
                requests.head(_SOURCE, timeout=_SECONDS_TO_ANSWER)
                builder.download_and_prepare()
            return builder
    except requests.RequestException:
        raise _cannot(path, f"{_SOURCE} does not answer") from None
    except UserError:
        raise
    # Each library below it has errors of its own.
    except Exception as error:
        raise _cannot(path, error) from None


def describe(path: str) -> Description:
    """Describes `tfds:NAME@SPLIT`, and prepares it if need be."""
    name, split = _parse(path)
    builder = _builder(name, path)
    there = list(builder.info.splits)
    if split not in there:
        raise UserError(
            f"`inputs`={path}: has no split {split!r}; its splits: "
            f"{', '.join(there)}."
        )
    info = builder.info.splits[split]
    rows, size = int(info.num_examples), int(info.num_bytes)
    return Description(f"{builder.info.full_name}@{split}", rows, size)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A split of a data set; a line end in a text ends a paragraph."""

    path: str
    text_field: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """See `DocumentReader`; rows are entered by their number."""
        import tensorflow_datasets as tfds

        described = describe(self.path)
        name, split = _parse(self.path)
        builder = _builder(name, self.path)
        self._check_field(builder.info.features)
        # Of one file after the other, in one order.
        order = tfds.ReadConfig(interleave_cycle_length=1)
        rest = f"{split}[{start.offset}:]" if start.offset else split
        try:
            rows = builder.as_dataset(
                split=rest,
                shuffle_files=False,
                read_config=order,
                decoders=tfds.decode.PartialDecoding({self.text_field: True}),
            )
            for row, values in enumerate(
                rows.as_numpy_iterator(), start=start.offset + 1
            ):
                yield RawDocument(
                    values[self.text_field],
                    row,
                    Position(start.file, row, row),
                    described.size * row // max(described.rows, 1),
                )
        except (OSError, ValueError) as error:
            raise _cannot(self.path, error) from None

    def _check_field(self, features: Any) -> None:
        import tensorflow as tf

        there = dict(features) if hasattr(features, "keys") else {}
        texts = [
            name
            for name, feature in there.items()
            if feature.shape == () and feature.tf_dtype == tf.string
        ]
        if self.text_field not in texts:
            raise UserError(
                f"`inputs`={self.path}: has no text feature "
                f"{self.text_field!r} (its texts: {', '.join(texts) or 'none'})"
                "; pass one as `text_field`."
            )

    def paragraphs(self, document: RawDocument) -> list[str]:
        """See `DocumentReader`."""
        try:
            text = document.content.decode("utf-8", self.encoding_errors)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.path}, row {document.line}: byte {error.start + 1} is "
                "not UTF-8; pass `encoding_errors`=replace."
            ) from None
        return text.split("\n")
