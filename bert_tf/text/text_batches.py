"""Converts texts and labels of programs to batches for a Keras model."""

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
    """Makes batches of tokens and label numbers, in tf.data.

    Args:
      pack: packs texts into rows.
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
        """Converts the arguments of `fit` and the like to batches.

        Args:
          name: the argument of the texts, for errors.
          x: texts, or batches of texts: a data set, a generator or a
            PyDataset.
          y: the labels of texts; None if `x` has batches.
          sample_weight: the weights of texts; None if `x` has batches.
          batch_size: B; None means 32.
          shuffle: whether to shuffle in each epoch.
          labelled: whether labels are required.
        """
        x = _batches_or_texts(x) if y is None else x
        if isinstance(x, _Batches | keras.utils.PyDataset):
            if not (y is None and sample_weight is None and not batch_size):
                raise _holds_labels(name)

            def packed(batch: Any) -> tuple[Any, ...]:
                return self._batch(name, batch, labelled)

            if isinstance(x, _Batches):
                # Keras accepts no other iterators.
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
        spec = data.element_spec
        if labelled and not (isinstance(spec, tuple) and len(spec) > 1):
            raise UserError(
                f"`{name}`: comes without labels; give each text one."
            )
        texts = spec[0] if isinstance(spec, tuple) else spec
        if isinstance(texts, Mapping):
            return data
        self._check_texts(texts if isinstance(texts, tuple) else (texts,), name)
        options = tf.data.Options()
        # Autotuning competes with training for the cores of small machines.
        options.autotune.enabled = False
        data = data.map(self._packed, num_parallel_calls=2).prefetch(4)
        return data.with_options(options)

    def _rows(
        self, name: str, x: Iterable[Text], y: Any, sample_weight: Any
    ) -> tuple[Any, ...]:
        """The columns of texts, and label numbers and weights if given."""
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
                    f"{values.size} labels or weights; pass one for each text."
                )
        return rows

    def _batch(self, name: str, batch: Any, labelled: bool) -> tuple[Any, ...]:
        """Converts a batch of a generator or a PyDataset."""
        parts = batch if isinstance(batch, tuple) else (batch,)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(parts)
        if labelled and y is None:
            raise UserError(
                f"`{name}`: yields {excerpt(batch)}; yield batches (texts, "
                "labels) or (texts, labels, weights)."
            )
        if isinstance(x, Mapping):
            return parts
        columns, *rest = self._rows(name, x, y, sample_weight)
        return (self.pack(*columns), *rest)

    def columns(self, texts: Any, name: str) -> list[list[str]]:
        """Checks texts and splits them into columns; see `text_columns`."""
        columns = text_columns(texts, f"`{name}`")
        self._check_count(len(columns), name)
        return columns

    def _check_texts(self, specs: Sequence[Any], name: str) -> None:
        """Checks that a data set has batches of texts."""
        for spec in specs:
            is_text = getattr(spec, "dtype", None) == tf.string
            if not is_text or spec.shape.rank != 1:
                raise UserError(
                    f"`{name}`: its elements have {spec} for texts; give "
                    "batches of strings [B], as .batch(32) makes them."
                )
        self._check_count(len(specs), name)

    def _check_count(self, count: int, name: str) -> None:
        """Checks the number of texts per row."""
        if count != 1 + self.pairs:
            raise UserError(
                f"`{name}`: has {count} text(s) a row, and the model takes "
                f"{1 + self.pairs}; make it with `pairs`={count == 2}."
            )

    def number(self, label: Any, place: str) -> int:
        """Converts the name or number of a label to its number."""
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
        """Converts a batch of texts, in the graph."""
        inputs = self.pack(*(texts if isinstance(texts, tuple) else (texts,)))
        if y is not None and y.shape.rank == 1:
            y = self._numbers(y)
        return keras.utils.pack_x_y_sample_weight(inputs, y, sample_weight)

    def _numbers(self, y: tf.Tensor) -> tf.Tensor:
        """Converts labels, string or integers [B], to numbers, and checks."""
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
    """An iterator of batches."""

    batches: Iterator[Any]


def _batches_or_texts(x: Any) -> Any:
    """Wraps an iterator of batches in `_Batches`; returns others as is."""
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
    """A PyDataset that packs the batches of texts of another one."""

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
        """The number of batches; None if infinite."""
        return self._batches.num_batches

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._packed(self._batches[index])

    def on_epoch_begin(self) -> None:
        """Forwards the event to the other one."""
        self._batches.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Forwards the event to the other one."""
        self._batches.on_epoch_end()


def num_batches(data: Any) -> int | None:
    """The number of batches of `TextBatches.make`; None if unknown."""
    if isinstance(data, tf.data.Dataset):
        count = int(data.cardinality())
        return count if count >= 0 else None
    return getattr(data, "num_batches", None)


def _holds_labels(name: str) -> UserError:
    return UserError(
        f"`{name}`: has batches, which contain labels and weights; leave out "
        "`y`, `sample_weight` and `batch_size`."
    )


def split_rows(
    rows: tuple[Any, ...], share: float
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Splits texts, labels and weights into training and validation."""
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
            "of both; pass more texts or another fraction."
        )
    return (
        tuple(part and part[:first] for part in lists),
        tuple(part and part[first:] for part in lists),
    )
