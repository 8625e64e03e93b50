"""GLUE out of TensorFlow Datasets."""

import dataclasses
import urllib.error
import urllib.request
from typing import Any

from bert_tf.corpora.data_sets import quiet
from bert_tf.errors import UserError
from bert_tf.finetuning.data.examples import Example

# Where TensorFlow Datasets gets GLUE from.
_SOURCE = "https://dl.fbaipublicfiles.com/"
_SECONDS_TO_ANSWER = 15
_ROWS_AT_A_TIME = 1024


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A task in TensorFlow Datasets.

    Attributes:
      name: of the data set, as in glue/NAME.
      texts: its text features.
      labels: the task's labels in the order of its classes; empty where the
        label is a number.
    """

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


def read_data_set(
    data_set: DataSet, split: str, with_labels: bool
) -> list[Example]:
    """Reads a split, made by TensorFlow Datasets when first asked for.

    Args:
      data_set: what to read.
      split: as it is called there.
      with_labels: whether the split has labels.

    Returns:
      Examples in the order of the official file.

    Raises:
      UserError: it cannot be downloaded or made.
    """
    name = f"glue/{data_set.name}"
    with quiet():
        batches = _batches(name, split)
    examples = []
    for batch in batches:
        texts = [batch[feature] for feature in data_set.texts]
        for place, index in enumerate(batch["idx"]):
            pair = [text[place].decode("utf-8") for text in texts]
            label = batch["label"][place]
            examples.append(
                Example(
                    text_a=pair[0],
                    text_b=pair[1] if len(pair) == 2 else None,
                    label=_cell(label, data_set) if with_labels else None,
                    identifier=str(index),
                    row=int(index) + 1,
                    path=f"{name}, split {split}",
                )
            )
    return sorted(examples, key=lambda example: example.row)


def _batches(name: str, split: str) -> list[dict[str, Any]]:
    """The rows of a split, in NumPy arrays."""
    import tensorflow_datasets as tfds

    builder = tfds.builder(name)
    if not builder.is_prepared():
        _demand_connection(name)
    try:
        builder.download_and_prepare()
        rows = builder.as_dataset(split=split, shuffle_files=False)
        return list(tfds.as_numpy(rows.batch(_ROWS_AT_A_TIME)))
    # A download fails in as many ways as there are libraries below it.
    except Exception as error:
        raise _cannot(name, error) from None


def _cell(label: Any, data_set: DataSet) -> str:
    """A label as the official file has it."""
    return data_set.labels[int(label)] if data_set.labels else str(label)


def _demand_connection(name: str) -> None:
    """Asks the source for a sign of life.

    TensorFlow Datasets itself takes minutes to give up without a connection.
    """
    request = urllib.request.Request(_SOURCE, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:
        # An answer, if only to say that there is no such page.
        return
    except OSError as error:
        raise _cannot(name, error) from None


def _cannot(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split()).rstrip(".")[:200]
    return UserError(
        f"TensorFlow Datasets cannot give {name} ({reason}); download GLUE "
        "elsewhere and pass `data_dir`=FOLDER, the folder with its files."
    )
