"""GLUE's data: the official files, or TensorFlow Datasets."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.data.glue_datasets import DataSet, read_data_set
from bert_tf.finetuning.data.reading import handle_empty_texts, read_examples
from bert_tf.finetuning.data.table_formats import TSV
from bert_tf.finetuning.data.tables import Dialect
from bert_tf.finetuning.kinds.text_data import Labelled
from bert_tf.finetuning.recipe import FinetuningRecipe, TableRecipe
from bert_tf.progress import notice

# Devlin et al. 2019, section 4.1: batches of 32 and 3 epochs, as the recipe has
# them, and the best of 5e-5, 4e-5, 3e-5 and 2e-5 on the dev set. Which one that
# was is not told; this is what the README of google-research/bert runs.
PAPER_RECIPE = {"learning_rate": 2e-5}


@dataclasses.dataclass(frozen=True)
class GlueFile:
    """One file of a task, and the same rows in TensorFlow Datasets.

    Attributes:
      name: the file in the task's folder.
      texts: its text columns, by name, or by number without a header.
      label: the column of the label, None where it has none.
      data_set: where TensorFlow Datasets has these rows.
      data_split: the split that they are there.
      header: whether the first row names the columns.
      folder: the file's folder, where it is not the task's.
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
    """The files of a task with one dev set and one test set, with headers.

    Args:
      texts: the text columns.
      label: the label's column, which the test file does not have.
      data_set: where TensorFlow Datasets has the rows.
    """
    return {
        "train": GlueFile("train.tsv", texts, label, data_set, "train"),
        "dev": GlueFile("dev.tsv", texts, label, data_set, "validation"),
        "test": GlueFile("test.tsv", texts, None, data_set, "test"),
    }


@dataclasses.dataclass(frozen=True)
class GlueData:
    """The rows of one task; see `TaskData`.

    Attributes:
      folder: the task's folder in the official layout.
      files: split to its file.
    """

    folder: str
    files: Mapping[str, GlueFile]

    def present(
        self, splits: Sequence[str], recipe: FinetuningRecipe
    ) -> tuple[str, ...]:
        """The splits that are there; says in a line which are not."""
        if not recipe.data_dir:
            return tuple(splits)
        found = {split: self._path(split, recipe) for split in splits}
        there = tuple(split for split in splits if found[split])
        if not there:
            raise self._missing(splits[0], recipe)
        for split in splits:
            if split not in there:
                notice(
                    f"{recipe.data_dir}: has no {self.files[split].name}; "
                    f"going on with {', '.join(there)} alone."
                )
        return there

    def read(
        self, split: str, recipe: TableRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a split; see `TaskData`."""
        file = self.files[split]
        if recipe.data_dir:
            path = self._path(split, recipe)
            if path is None:
                raise self._missing(split, recipe)
            examples = self._rows(str(path), file, recipe)
        else:
            examples = handle_empty_texts(
                read_data_set(
                    file.data_set, file.data_split, file.label is not None
                ),
                file.texts,
                recipe.empty_text,
            )
        return [labelled(example) for example in examples]

    def read_file(
        self, path: str, recipe: TableRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a file that is laid out as the dev file is."""
        file = next(f for split, f in self.files.items() if "dev" in split)
        return [labelled(e) for e in self._rows(path, file, recipe)]

    def _rows(
        self, path: str, file: GlueFile, recipe: TableRecipe
    ) -> list[Example]:
        dialect = Dialect(
            format=TSV,
            header=file.header,
            encoding_errors=recipe.encoding_errors,
            skip_bad_rows=recipe.bad_rows == "skip",
        )
        return read_examples(
            path, file.texts, file.label, recipe.empty_text, dialect
        )

    def _places(self, split: str, recipe: FinetuningRecipe) -> list[str]:
        """Where a file may lie: data_dir is the task's folder or holds it."""
        file = self.files[split]
        if file.folder:
            return [
                f"{file.folder}/{file.name}",
                f"../{file.folder}/{file.name}",
                file.name,
            ]
        return [f"{self.folder}/{file.name}", file.name]

    def _path(
        self, split: str, recipe: FinetuningRecipe
    ) -> pathlib.Path | None:
        for place in self._places(split, recipe):
            for suffix in ("", ".gz"):
                path = pathlib.Path(recipe.data_dir) / f"{place}{suffix}"
                if path.is_file():
                    return path
        return None

    def _missing(self, split: str, recipe: FinetuningRecipe) -> UserError:
        folder = pathlib.Path(recipe.data_dir)
        if not folder.is_dir():
            return UserError(f"`data_dir`={folder}: no such folder.")
        places = " nor ".join(self._places(split, recipe))
        return UserError(
            f"`data_dir`={folder}: has neither {places}; give the task's "
            "folder in the layout of gluebenchmark.com, or the one above it."
        )
