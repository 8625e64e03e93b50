"""Texts and labels as a program has them, as batches for a Keras model."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, excerpt, first_few
from bert_tf.text.given_texts import Text, text_columns
from bert_tf.text.layout import SentencePacker

_BATCH_SIZE = 32


class TextBatches:
    """Makes batches of tokens, and of numbers of labels, in tf.data.

    Args:
      pack: makes rows of texts.
      labels: the names of C labels.
      pairs: whether a row has two texts.
    """

    def __init__(
        self, pack: SentencePacker, labels: Sequence[str], pairs: bool
    ):
        self.pack = pack
        self.labels = tuple(labels)
        self.pairs = pairs

    def make(
        self,
        name: str,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        labelled: bool = True,
    ) -> Any:
        """The batches that the model computes, of texts as the user has them.

        Args:
          name: the argument that the texts are from, for errors.
          x: texts, or batches of them: a data set, a generator or a
            PyDataset.
          y: their labels, if they are in no data set.
          sample_weight: how much each counts, likewise.
          batch_size: B; None for 32.
          shuffle: whether to draw a new order in each epoch.
          labelled: whether labels are needed.
        """
        x = _batches_or_texts(x) if y is None else x
        if isinstance(x, _Batches | keras.utils.PyDataset):
            if not (y is None and sample_weight is None and not batch_size):
                raise _holds_labels(name)

            def packed(batch: Any) -> tuple[Any, ...]:
                return self._batch(name, batch, labelled)

            if isinstance(x, _Batches):
                # Keras takes no other iterators.
                return (packed(batch) for batch in x.batches)
            return _PackedBatches(x, packed)
        if not isinstance(x, tf.data.Dataset):
            rows = self._rows(name, x, y, sample_weight)
            data = tf.data.Dataset.from_tensor_slices(rows)
            if shuffle:
                data = data.shuffle(len(data))
            data = data.batch(batch_size or _BATCH_SIZE)
        elif y is None and sample_weight is None and not batch_size:
            data = x
        else:
            raise _holds_labels(name)
        found = data.element_spec
        if labelled and not (isinstance(found, tuple) and len(found) > 1):
            raise UserError(
                f"`{name}`: comes without labels; give each text one."
            )
        texts = found[0] if isinstance(found, tuple) else found
        if isinstance(texts, Mapping):
            return data
        self._check_texts(texts if isinstance(texts, tuple) else (texts,), name)
        options = tf.data.Options()
        # Its own tuning competes with training for a small machine's cores.
        options.autotune.enabled = False
        data = data.map(self._packed, num_parallel_calls=2).prefetch(4)
        return data.with_options(options)

    def _rows(
        self, name: str, x: Iterable[Text], y: Any, sample_weight: Any
    ) -> tuple[Any, ...]:
        """Texts, and numbers of labels and weights where there are such."""
        columns = self.columns(x, name)
        rows: tuple[Any, ...] = (tuple(columns),)
        if y is None:
            return rows
        place = "`y`" if name == "x" else f"labels of `{name}`"
        targets = np.asarray(y, object)
        if targets.ndim == 1:
            numbers = [
                self.number(label, f"{place}[{number}]")
                for number, label in enumerate(targets)
            ]
            targets = np.array(numbers, np.int32)
        rows += (targets.astype("float32" if targets.ndim > 1 else "int32"),)
        if sample_weight is not None:
            rows += (np.asarray(sample_weight, np.float32),)
        for values in rows[1:]:
            if values.shape[:1] != (len(columns[0]),):
                raise UserError(
                    f"`{name}`: has {len(columns[0])} texts, and there are "
                    f"{values.size} labels or weights; give each text one."
                )
        return rows

    def _batch(self, name: str, batch: Any, labelled: bool) -> tuple[Any, ...]:
        """A batch of a generator or a PyDataset as the model takes it."""
        parts = batch if isinstance(batch, tuple) else (batch,)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(parts)
        if labelled and y is None:
            raise UserError(
                f"`{name}`: gives {excerpt(batch)}; give batches (texts, "
                "labels), or with weights behind them."
            )
        if isinstance(x, Mapping):
            return parts
        columns, *rest = self._rows(name, x, y, sample_weight)
        return (self.pack(*columns), *rest)

    def columns(self, texts: Any, name: str) -> list[list[str]]:
        """The first texts of rows and, of pairs, the second ones."""
        columns = text_columns(texts, f"`{name}`")
        self._check_count(len(columns), name)
        return columns

    def _check_texts(self, specs: Sequence[Any], name: str) -> None:
        """Raises `UserError` unless a data set has batches of texts."""
        for spec in specs:
            is_text = getattr(spec, "dtype", None) == tf.string
            if not is_text or spec.shape.rank != 1:
                raise UserError(
                    f"`{name}`: its elements have {spec} for texts; give "
                    "batches of strings [B], as .batch(32) makes them."
                )
        self._check_count(len(specs), name)

    def _check_count(self, count: int, name: str) -> None:
        """Raises `UserError` for pairs where the model takes single texts."""
        if count != 1 + self.pairs:
            raise UserError(
                f"`{name}`: has {count} text(s) a row, and the model takes "
                f"{1 + self.pairs}; make it with `pairs`={count == 2}."
            )

    def number(self, label: Any, place: str) -> int:
        """The number of a label that is given by its name or number."""
        count = len(self.labels)
        if isinstance(label, str) and label in self.labels:
            return self.labels.index(label)
        if isinstance(label, int | np.integer) and 0 <= label < count:
            return int(label)
        raise UserError(
            f"{place} is {excerpt(label)}; give the name of a label, which are "
            f"{first_few(self.labels)}, or its number from 0 to {count - 1}."
        )

    @tf.autograph.experimental.do_not_convert
    def _packed(self, texts: Any, y: Any = None, sample_weight: Any = None):
        """A batch of texts as the model takes it, in the graph."""
        inputs = self.pack(*(texts if isinstance(texts, tuple) else (texts,)))
        if y is not None and y.shape.rank == 1:
            y = self._numbers(y)
        return keras.utils.pack_x_y_sample_weight(inputs, y, sample_weight)

    def _numbers(self, y: tf.Tensor) -> tf.Tensor:
        """Labels, string or whole numbers [B], as numbers that are checked."""
        known: Any = self.labels
        if y.dtype != tf.string:
            known = tf.cast(tf.range(len(self.labels)), y.dtype)
        matches = tf.equal(y[:, tf.newaxis], known)
        check = tf.debugging.Assert(
            tf.reduce_all(tf.reduce_any(matches, -1)),
            ["a label is neither a name nor a number of the model's", y],
        )
        with tf.control_dependencies([check]):
            return tf.argmax(tf.cast(matches, tf.int32), -1, tf.int32)


@dataclasses.dataclass(frozen=True)
class _Batches:
    """Batches that come one after the other, as from a generator."""

    batches: Iterator[Any]


def _batches_or_texts(x: Any) -> Any:
    """`_Batches` of an iterator that gives such; other things as they are."""
    if not isinstance(x, Iterator):
        return x
    first = list(itertools.islice(x, 1))
    every = itertools.chain(first, x)
    # A text is a string or a pair of strings.
    is_text = not first or isinstance(first[0], str)
    if not is_text and isinstance(first[0], tuple | list) and len(first[0]):
        is_text = isinstance(first[0], tuple) and isinstance(first[0][0], str)
    return every if is_text else _Batches(every)


class _PackedBatches(keras.utils.PyDataset):
    """A PyDataset whose batches of texts are packed where they are made."""

    def __init__(
        self,
        batches: keras.utils.PyDataset,
        packed: Callable[[Any], tuple[Any, ...]],
    ):
        super().__init__(
            workers=batches.workers,
            use_multiprocessing=batches.use_multiprocessing,
            max_queue_size=batches.max_queue_size,
        )
        self._batches = batches
        self._packed = packed

    @property
    def num_batches(self) -> int | None:
        """How many there are; None for no end."""
        return self._batches.num_batches

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._packed(self._batches[index])

    def on_epoch_begin(self) -> None:
        """Keras' notice of an epoch."""
        self._batches.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Keras' notice of the end of an epoch."""
        self._batches.on_epoch_end()


def num_batches(data: Any) -> int | None:
    """How many batches `TextBatches.make` has made; None if that is unknown."""
    if isinstance(data, tf.data.Dataset):
        count = int(data.cardinality())
        return count if count >= 0 else None
    return getattr(data, "num_batches", None)


def _holds_labels(name: str) -> UserError:
    return UserError(
        f"`{name}`: gives batches, which hold the labels and weights; leave "
        "out `y`, `sample_weight` and `batch_size`."
    )


def split_rows(
    rows: tuple[Any, ...], share: float
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first texts, labels and weights, and the last ones for validation."""
    batches = tf.data.Dataset | keras.utils.PyDataset | Iterator
    if isinstance(rows[0], batches):
        raise UserError(
            f"`validation_split`={share}: is for texts in memory; beside "
            "batches give `validation_data`."
        )
    lists = [None if part is None else list(part) for part in rows]
    count = len(lists[0] or ())
    first = math.floor(count * (1 - share))
    if not 0 < first < count:
        raise UserError(
            f"`validation_split`={share}: leaves none of {count} texts for one "
            "of both; give more texts or another share."
        )
    return (
        tuple(part and part[:first] for part in lists),
        tuple(part and part[first:] for part in lists),
    )
