"""A text classifier with the training API of Keras."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import (
    CLASSIFIER,
    Checkpoint,
    load_checkpoint,
    place_labels,
)
from bert_tf.checkpoints.checkpoint import (
    REGRESSION,
    SINGLE_LABEL,
    check_labels,
    num_labels,
)
from bert_tf.checkpoints.labels import default_labels
from bert_tf.checkpoints.tokenizers import kind_named, tokenizer_kind
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError, excerpt, whole_number
from bert_tf.families.config import check_segments
from bert_tf.families.model_folder import save_model
from bert_tf.families.task_model import TaskModel
from bert_tf.families.text_classification.answers import (
    class_answers,
    plain_answers,
)
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.layers.initialization import assigned_later
from bert_tf.models import bert_classifier, restore
from bert_tf.optimization import AdamW, LinearWarmupDecay, warmup_steps
from bert_tf.progress import log
from bert_tf.text.layout import SentencePacker
from bert_tf.text.text_batches import TextBatches, num_batches, split_rows
from bert_tf.text.tokenizer_protocol import Tokenizer

# Name that marks optimizers created by `fit`, also in .keras files.
_OF_FIT = "adamw_of_fit"
_WARMUP = 0.1
# Key of the tokenizer's class where it is not the architecture's own.
_TOKENIZER_KIND = "tokenizer_kind"


@keras.saving.register_keras_serializable(package="bert_tf")
class TextClassifier(keras.Model):
    """A Keras classifier whose `fit`, `evaluate` and `predict` take texts.

        classifier = bert_tf.TextClassifier.from_checkpoint(
            folder, labels=["negative", "positive"]
        )
        classifier.fit(texts, labels, epochs=3)
        classifier.answer("A lovely film.")["label"]
        logits = classifier.predict(["A lovely film."])

    The model is `bert_classifier` with a tokenizer. If it is not compiled,
    `fit` and `evaluate` compile it with cross-entropy and accuracy, and each
    `fit` creates an AdamW with warm-up over a tenth of the steps and linear
    decay. Texts are tokenized in tf.data, parallel to the training, and the
    model computes on tokens without padding, and therefore without XLA. A
    .keras file includes the vocabulary.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      tokenizer: the encoder's tokenizer.
      labels: names of the C classes, in the order of the logits.
      max_seq_length: longest input in tokens; longer texts are truncated.
      pairs: whether an input is a pair of texts.
      dropout: dropout rate of the pooled output; None is the architecture's
        rate, for a BERT 0.1.
      learning_rate: peak learning rate of the AdamW that `fit` creates.
      name: name of the model.

    Arguments of `fit`, `evaluate` and `predict`:
      x: a sequence of texts or pairs of texts; or a tf.data.Dataset of batches
        (texts, labels) or (texts, labels, weights), with texts of type string
        [B] or, for pairs, a tuple of two; or a generator or
        keras.utils.PyDataset of batches with lists of texts.
      y: names or indices of labels, or the targets of another loss, such as
        one-hot rows.
      Other arguments are those of Keras; `class_weight` may be keyed by name.

    Call arguments:
      inputs: texts as above, or one string; or the result of `pack`: a dict of
        input_ids, input_mask and segment_ids, int32 [B, S], which
        `train_on_batch` and the like take too.

    Returns:
      Logits, float32 [B, C], or [N, C] from `predict`; [C] for one string.
      Their softmax is the probabilities.

    Raises:
      UserError: an argument does not fit the others, a text is no string, or a
        label is not in `labels`.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_seq_length: int = 128,
        pairs: bool = False,
        dropout: float | None = None,
        learning_rate: float = 5e-5,
        name: str = "text_classifier",
    ):
        names = _checked_labels(labels)
        network = bert_classifier(encoder, len(names), dropout, unpadded=True)
        config, packing = encoder.config, tokenizer.packing
        least = packing.num_special(1 + pairs) + 1
        longest = config.longest_input
        why = "longest_input"
        whole_number("max_seq_length", max_seq_length, least, longest, why)
        if pairs:
            check_segments("`pairs`=True", config, packing)
        super().__init__(network.input, network.output, name=name)
        self.encoder = encoder
        self.labels = names
        self.pairs = pairs
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.pack = SentencePacker(tokenizer, max_seq_length)
        self._data = TextBatches(self.pack, names, pairs)
        # XLA would compile each number of tokens.
        self.supports_jit = False

    @classmethod
    def from_checkpoint(
        cls,
        source: str | os.PathLike,
        labels: Sequence[str] | None = None,
        max_seq_length: int = 128,
        pairs: bool = False,
        dropout: float | None = None,
        learning_rate: float = 5e-5,
        dtype: Any = None,
    ) -> Self:
        """Creates a classifier from a model folder.

        Args:
          source: a model folder of any family, or a model on a hub; see
            `bert_tf.load_checkpoint`.
          labels: names of the classes. An existing head is reordered by name;
            a head with other names is not read, with a log line. None keeps the
            names of the source.
          max_seq_length, pairs, dropout, learning_rate: see the class.
          dtype: a Keras dtype policy, or None for the global one.

        Raises:
          UserError: the source is no model or has no vocabulary; or `labels` is
            None, and it has no head of a single-label classifier.
        """
        checkpoint = load_checkpoint(source)
        if labels is None:
            labels = _classes_of(checkpoint)
        with assigned_later():
            model = cls(
                encoder_class(checkpoint.config)(
                    checkpoint.config, dtype=dtype
                ),
                checkpoint.make_tokenizer(),
                labels,
                max_seq_length,
                pairs,
                dropout,
                learning_rate,
            )
            reordered: Checkpoint | None = checkpoint
            if CLASSIFIER in checkpoint.heads:
                reordered = place_labels(
                    checkpoint, CLASSIFIER, model.labels, SINGLE_LABEL
                )
            fresh = () if reordered else (CLASSIFIER,)
            restore(model, reordered or checkpoint, fresh)
        return model

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.pack.tokenizer

    @property
    def max_seq_length(self) -> int:
        """The longest input in tokens."""
        return self.pack.seq_length

    def __repr__(self) -> str:
        size = self.encoder.config.in_words(w.shape for w in self.weights)
        labels = f"labels={list(self.labels)}"
        return f"<TextClassifier name={self.name}, {labels}, {size}>"

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model on texts or tokens; see the class."""
        if isinstance(inputs, str):
            return self([inputs], *args, **kwargs)[0]
        if not isinstance(inputs, Mapping):
            inputs = self.pack(*self._data.columns(inputs, "inputs"))
        return super().__call__(inputs, *args, **kwargs)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[str | int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> keras.callbacks.History:
        """Trains on texts; see the class, and `keras.Model.fit`."""
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split_rows(
                (x, y, sample_weight), validation_split
            )
        data = self._data.make("x", x, y, sample_weight, batch_size, shuffle)
        if validation_data is not None:
            texts, labels, weights = keras.utils.unpack_x_y_sample_weight(
                validation_data
            )
            size = validation_batch_size
            batches = tf.data.Dataset | keras.utils.PyDataset | Iterator
            if not isinstance(texts, batches):
                size = size or batch_size
            validation_data = self._data.make(
                "validation_data", texts, labels, weights, size
            )
        if class_weight is not None:
            class_weight = {
                self._data.number(key, "`class_weight`"): weight
                for key, weight in class_weight.items()
            }
        optimizer = getattr(self, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if optimizer is None or optimizer.name == _OF_FIT:
            steps = steps_per_epoch or num_batches(data) or -1
            self._compile_for_classes(
                self._optimizer(steps * max(epochs - initial_epoch, 1))
            )
        # Creating variables in the first step would slow it by a fifth.
        if not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().fit(
            data,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            # Datasets are shuffled already, and Keras would warn.
            shuffle=shuffle and isinstance(data, keras.utils.PyDataset),
            class_weight=class_weight,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Scores texts; see the class, and `keras.Model.evaluate`."""
        if not self.compiled:
            self._compile_for_classes(None)
        return super().evaluate(
            self._data.make("x", x, y, sample_weight, batch_size),
            verbose=verbose,
            steps=steps,
            callbacks=callbacks,
            return_dict=return_dict,
            # Keras' `fit` passes a private argument to `evaluate`.
            **kwargs,
        )

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> np.ndarray:
        """Returns logits, float32 [N, C]; see `keras.Model.predict`.

        One string gives [C].
        """
        if isinstance(x, str):
            return self.predict([x], batch_size, verbose, steps, callbacks)[0]
        data = self._data.make("x", x, batch_size=batch_size, labelled=False)
        return super().predict(
            data, verbose=verbose, steps=steps, callbacks=callbacks
        )

    def answer(self, texts: Any) -> dict[str, Any] | list[dict[str, Any]]:
        """Returns label, probability and probabilities as `bert_tf.load` does.

        Args:
          texts: a text or, for pairs, a tuple of two; or a list of them.

        Returns:
          A dict, or a list of dicts for a list.
        """
        is_single = isinstance(texts, tuple if self.pairs else str)
        rows = [texts] if is_single else texts
        logits = tf.constant(self.predict(rows, verbose=0))
        outputs = {
            name: value.numpy()
            for name, value in class_answers(logits, self.labels).items()
        }
        answers = plain_answers(outputs, self.labels)
        return answers[0] if is_single else answers

    def save_checkpoint(self, folder: str | os.PathLike) -> None:
        """Writes a model folder for `bert_tf.load` and all tools."""
        config = TextClassificationConfig(
            task="sentence",
            labels=self.labels,
            max_seq_length=self.max_seq_length,
            label_kind="classes",
            num_outputs=len(self.labels),
            num_texts=1 + self.pairs,
            text_columns="text,text_b" if self.pairs else "text",
            label_separator=",",
            long_inputs="cut",
            doc_stride=64,
            threshold=0.5,
        )
        save_model(folder, TaskModel(self), self.tokenizer, config)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments as plain data."""
        kind = type(self.tokenizer.data)
        # A BERT may have XLM-R's tokenizer.
        other = kind is not tokenizer_kind(self.encoder.config)
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            **({_TOKENIZER_KIND: kind.__name__} if other else {}),
            **self.tokenizer.data.to_dict(),
            "split_special_tokens": self.tokenizer.split_special_tokens,
            "labels": list(self.labels),
            "max_seq_length": self.max_seq_length,
            "pairs": self.pairs,
            "dropout": self.dropout,
            "learning_rate": self.learning_rate,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        """Creates a model from the result of `get_config`."""
        config = dict(config)
        encoder = keras.saving.deserialize_keras_object(config.pop("encoder"))
        name = config.pop(_TOKENIZER_KIND, "")
        kind = kind_named(name) if name else tokenizer_kind(encoder.config)
        data = kind.from_dict(config)
        tokenizer = data.tokenizer(config.pop("split_special_tokens"))
        return cls(encoder, tokenizer, **config)

    def _compile_for_classes(
        self, optimizer: keras.optimizers.Optimizer | None
    ) -> None:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.compile(optimizer, loss, metrics=["accuracy"])

    def _optimizer(self, total_steps: int) -> AdamW:
        """Creates an AdamW; `total_steps` is below 1 if it is unknown."""
        rate: Any = self.learning_rate
        if total_steps < 1:
            log(
                "`x`: the number of batches is unknown, so the learning rate "
                f"stays at {rate:g}; pass `steps_per_epoch` for warm-up and "
                "decay."
            )
        else:
            warmup = warmup_steps(_WARMUP, total_steps)
            multiplied = self.encoder.config.warmup_times_decay
            rate = LinearWarmupDecay(rate, total_steps, warmup, multiplied)
        return AdamW(rate, name=_OF_FIT)


def _classes_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Returns the names of a checkpoint's classes."""
    source = checkpoint.source
    if CLASSIFIER not in checkpoint.heads:
        raise UserError(
            f"`labels`: {source} has no classifier; name the classes, for "
            "example labels=['negative', 'positive']."
        )
    rows = num_labels(checkpoint, CLASSIFIER)
    kind = checkpoint.problem_type or (REGRESSION if rows == 1 else "")
    if kind not in ("", SINGLE_LABEL):
        raise UserError(
            f"`source`={source}: its classifier was trained as {kind}, and a "
            "TextClassifier chooses one of several classes; answer texts with "
            "bert_tf.load, or name the classes of a new training as `labels`."
        )
    return checkpoint.labels or default_labels(rows)


def _checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns names of at least two classes, or raises `UserError`."""
    names = () if isinstance(labels, str) else tuple(labels)
    if len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"`labels` is {excerpt(labels)}; name two classes or more, for "
            "example labels=['negative', 'positive']."
        )
    check_labels(names, "`labels`")
    return names
