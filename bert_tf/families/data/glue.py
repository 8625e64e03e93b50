"""GLUE from its official files or TensorFlow Datasets."""

import dataclasses
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.errors import UserError
from bert_tf.families.data.examples import Example, ParseLabel, examples_of
from bert_tf.families.data.folders import FolderFiles
from bert_tf.families.data.user_files import ReadRows
from bert_tf.tables.table import Dialect, Row, Table

if TYPE_CHECKING:
    from bert_tf.families.recipe import FinetuningRecipe, TableRecipe

# The server that TensorFlow Datasets downloads GLUE from.
_SOURCE = "https://dl.fbaipublicfiles.com/"
_SECONDS_TO_ANSWER = 15
_ROWS_AT_A_TIME = 1024

# Devlin et al. 2019, section 4.1: batches of 32 and 3 epochs, the recipe's
# defaults, and the best of 5e-5, 4e-5, 3e-5 and 2e-5 on the dev set. The paper
# does not say which that is; the README of google-research/bert uses 2e-5.
PAPER_RECIPE = {"learning_rate": 2e-5}


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A task in TensorFlow Datasets.

    Attributes:
      name: NAME of glue/NAME.
      texts: its text features.
      labels: the task's labels in the order of its classes; empty for a
        regression.
    """

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class GlueFile:
    """A file of a task, and its rows in TensorFlow Datasets.

    Attributes:
      name: the name of the file in the task's folder.
      texts: its text columns, by name, or by number without a header.
      label: the column of the label; None if there is none.
      data_set: the data set of these rows in TensorFlow Datasets.
      data_split: their split in that data set.
      header: whether the first row names the columns.
      folder: the file's folder, if it is not the task's.
    """

    name: str
    texts: tuple[str, ...]
    label: str | None
    data_set: DataSet
    data_split: str
    header: bool = True
    folder: str = ""


def train_dev_test(
    texts: tuple[str, ...], label: str, data_set: DataSet
) -> dict[str, GlueFile]:
    """Returns the files of a task with one dev and one test set.

    They have text columns and a label column, which the test file lacks.
    """
    return {
        "train": GlueFile("train.tsv", texts, label, data_set, "train"),
        "dev": GlueFile("dev.tsv", texts, label, data_set, "validation"),
        "test": GlueFile("test.tsv", texts, None, data_set, "test"),
    }


@dataclasses.dataclass(frozen=True)
class GlueData(FolderFiles):
    """The data of a task, in its official files or TensorFlow Datasets.

    Attributes:
      folder: the task's folder in the official layout.
      files: split to its file.
    """

    files: Mapping[str, GlueFile]

    def candidates(self, split: str) -> list[str]:
        """See `FolderFiles`."""
        file = self.files[split]
        if not file.folder:
            return [f"{self.folder}/{file.name}", file.name]
        inside = f"{file.folder}/{file.name}"
        return [inside, f"../{inside}", file.name]

    def present(
        self, splits: Sequence[str], recipe: "FinetuningRecipe"
    ) -> tuple[str, ...]:
        """See `FolderFiles`; TensorFlow Datasets has all of them."""
        return (
            super().present(splits, recipe) if recipe.data_dir else (*splits,)
        )

    def read(
        self, split: str, recipe: "FinetuningRecipe", read_rows: ReadRows
    ) -> list[Example]:
        """Reads a split; see `UserFiles`."""
        file = self.files[split]
        path = self.path(split, recipe) if recipe.data_dir else _place(file)
        return read_rows(path, recipe, file.label is not None)

    def read_file(
        self,
        path: str,
        recipe: "TableRecipe",
        parse_label: ParseLabel,
        label_needed: bool = True,
    ) -> Iterator[Example]:
        """Reads the rows of a file.

        Args:
          path: the file, or what `read` calls a split of TensorFlow Datasets. A
            file without an official name has the format of the dev file.
          recipe: describes the handling of bad rows and empty texts.
          parse_label: parses the cells of labels.
          label_needed: whether the column of labels must exist; official files
            decide that themselves.
        """
        del label_needed
        files = self.files.values()
        name = pathlib.Path(path).name.removesuffix(".gz")
        file = next(
            (each for each in files if path == _place(each)),
            next((each for each in files if name == each.name), None),
        ) or next(f for split, f in self.files.items() if "dev" in split)
        rows: Iterable[Row]
        if path == _place(file):
            rows = _read_data_set(file)
        else:
            dialect = Dialect(
                format="tsv",
                header=file.header,
                encoding_errors=recipe.encoding_errors,
                bad_rows=recipe.bad_rows,
            )
            label = [] if file.label is None else [file.label]
            rows = Table(path, dialect).rows([*file.texts, *label])
        return examples_of(path, rows, file.texts, recipe, parse_label)


def _place(file: GlueFile) -> str:
    """The name of a split of TensorFlow Datasets in errors."""
    return f"glue/{file.data_set.name}, split {file.data_split}"


def _read_data_set(file: GlueFile) -> list[Row]:
    """Reads the rows of a file from TensorFlow Datasets."""
    # Official files do not need it.
    from bert_tf.corpora.data_sets import quiet

    data_set = file.data_set
    with quiet():
        batches = _batches(f"glue/{data_set.name}", file.data_split)
    rows, path = [], _place(file)
    for batch in batches:
        texts = [batch[feature] for feature in data_set.texts]
        for number, index in enumerate(batch["idx"]):
            cells = [text[number].decode("utf-8") for text in texts]
            if file.label is not None:
                label = batch["label"][number]
                # Labels as in the official files.
                names = data_set.labels
                cells.append(names[int(label)] if names else str(label))
            row = Row(int(index) + 1, int(index), tuple(cells), path=path)
            rows.append(row)
    return sorted(rows)


def _batches(name: str, split: str) -> list[dict[str, Any]]:
    """Reads a split in batches of NumPy arrays."""
    import tensorflow_datasets as tfds

    builder = tfds.builder(name)
    if not builder.is_prepared():
        _demand_connection(name)
    try:
        builder.download_and_prepare()
        rows = builder.as_dataset(split=split, shuffle_files=False)
        return list(tfds.as_numpy(rows.batch(_ROWS_AT_A_TIME)))
    # A download raises exceptions of many libraries.
    except Exception as error:
        raise _cannot(name, error) from None


def _demand_connection(name: str) -> None:
    """Raises `UserError` if the server cannot be reached.

    TensorFlow Datasets itself takes minutes to give up.
    """
    request = urllib.request.Request(_SOURCE, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:
        # The server answers.
        return
    except OSError as error:
        raise _cannot(name, error) from None


def _cannot(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split()).rstrip(".")[:200]
    return UserError(
        f"TensorFlow Datasets cannot give {name} ({reason}); download GLUE "
        "elsewhere and pass `data_dir`=FOLDER, the folder with its files."
    )
