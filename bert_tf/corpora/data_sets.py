"""Documents from TensorFlow Datasets."""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from absl import logging

from bert_tf.corpora.streams import Document, Position
from bert_tf.errors import UserError, excerpt
from bert_tf.recipe import read_json_object

PREFIX = "tfds:"
_DEFAULT_SPLIT = "train"
# Where TensorFlow Datasets hosts prepared data sets.
_SOURCE = "https://storage.googleapis.com/tfds-data/"
_TIMEOUT_SECONDS = 10
# Keys under which the three versions of features.json name a class.
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")


@dataclasses.dataclass(frozen=True)
class Description:
    """A prepared split of a data set; `name` includes the version."""

    name: str
    rows: int
    size: int


def _parse(path: str) -> tuple[str, str]:
    """Returns the data set and the split of `tfds:NAME@SPLIT`."""
    name, _, split = path.removeprefix(PREFIX).partition("@")
    if not name:
        raise UserError(
            f"`inputs`={path}: names no data set; write for example "
            "tfds:wikipedia/20230601.en."
        )
    return name, split or _DEFAULT_SPLIT


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses absl warnings addressed to the authors of data sets."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _unavailable(path: str, error: Exception | str) -> UserError:
    # Later lines list all data sets, or are a traceback.
    reason = str(error).strip().split("\n")[0].rstrip(".")[:200]
    return UserError(
        f"`inputs`={path}: TensorFlow Datasets cannot load it ({reason}); "
        "prepare it where there is a connection, with `tfds build` or "
        "tfds.load, and set TFDS_DATA_DIR to its folder, or write "
        "tfds:FOLDER, the folder of the prepared version."
    )


def _class_names(value: Any) -> Iterator[str]:
    """Yields the Python classes named at any depth of a features.json."""
    if isinstance(value, list):
        for each in value:
            yield from _class_names(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in _CLASS_KEYS and isinstance(each, str):
                yield each
            yield from _class_names(each)
    # Early versions store nested messages as JSON strings.
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            yield from _class_names(json.loads(value))


def _refuse_foreign_classes(folder: str, path: str) -> None:
    """Raises `UserError` if features.json names classes of other packages.

    TensorFlow Datasets imports the module of every class that features.json
    names, which would execute arbitrary code.
    """
    file = pathlib.Path(folder, "features.json")
    for name in _class_names(read_json_object(file) if file.exists() else {}):
        if not name.startswith("tensorflow_datasets."):
            raise UserError(
                f"`inputs`={path}: {file} names the Python class "
                f"{excerpt(name)}, which is not imported because a file names "
                "it; write the texts to JSON lines and give that file."
            )


@functools.cache
def _builder(name: str, path: str) -> Any:
    """Returns the builder of a data set, downloaded and prepared if needed."""
    import requests
    import tensorflow_datasets as tfds

    try:
        with quiet():
            if pathlib.Path(name).is_dir():
                _refuse_foreign_classes(name, path)
                return tfds.builder_from_directory(name)
            builder = tfds.builder(name, try_gcs=False)
            if not builder.is_prepared():
                # Without a connection the download takes minutes to fail.
                requests.head(_SOURCE, timeout=_TIMEOUT_SECONDS)
                builder.download_and_prepare()
            return builder
    except requests.RequestException:
        raise _unavailable(path, f"{_SOURCE} does not answer") from None
    except UserError:
        raise
    # The libraries underneath raise many types of errors.
    except Exception as error:
        raise _unavailable(path, error) from None


def describe(path: str) -> Description:
    """Describes `tfds:NAME@SPLIT`; prepares the data set if needed."""
    name, split = _parse(path)
    builder = _builder(name, path)
    splits = builder.info.splits
    if split not in list(splits):
        raise UserError(
            f"`inputs`={path}: has no split {split!r}; its splits: "
            f"{', '.join(splits)}."
        )
    info = splits[split]
    rows, size = int(info.num_examples), int(info.num_bytes)
    return Description(f"{builder.info.full_name}@{split}", rows, size)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A split of a data set; a line end inside a text ends a paragraph."""

    path: str
    text_field: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[Document]:
        """See `DocumentReader`; a position is a row number."""
        import tensorflow_datasets as tfds

        described = describe(self.path)
        name, split = _parse(self.path)
        builder = _builder(name, self.path)
        self._check_field(builder.info.features)
        # Reads the files one after the other, in a fixed order.
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
                yield Document(
                    values[self.text_field],
                    row,
                    Position(start.file, row, row),
                    described.size * row // max(described.rows, 1),
                )
        except (OSError, ValueError) as error:
            raise _unavailable(self.path, error) from None

    def _check_field(self, features: Any) -> None:
        import tensorflow as tf

        columns = dict(features) if hasattr(features, "keys") else {}
        texts = [
            name
            for name, feature in columns.items()
            if feature.shape == () and feature.tf_dtype == tf.string
        ]
        if self.text_field not in texts:
            raise UserError(
                f"`inputs`={self.path}: has no text feature "
                f"{self.text_field!r} (its texts: {', '.join(texts) or 'none'})"
                "; pass one as `text_field`."
            )

    def paragraphs(self, document: Document) -> list[str]:
        """See `DocumentReader`."""
        try:
            text = document.content.decode("utf-8", self.encoding_errors)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.path}, row {document.line}: byte {error.start + 1} is "
                "not UTF-8; pass `encoding_errors`=replace."
            ) from None
        return text.split("\n")
