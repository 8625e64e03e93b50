"""Exports a Keras classifier and its packer as a SavedModel."""

import os
import pathlib
from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.requests import (
    Request,
    Tensors,
    requests_of,
    sample_texts,
)
from bert_tf.families.text_classification.answers import (
    class_answers,
    plain_answers,
    with_labels,
)
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    Answer,
    Arrays,
    InputRows,
    TextModel,
    check_outputs,
)
from bert_tf.inference.saving import write_version
from bert_tf.inference.text_classifier import TextClassifier
from bert_tf.progress import log
from bert_tf.text.layout import SentencePacker


class PackedClassifier(TextModel):
    """A Keras classifier with the packer that it was trained with.

    Unlike `SentenceModel`, it accepts any Keras model, whose outputs may have
    no names, and pads rows to the packer's length. Its signatures are described
    at `export_saved_model`.

    Args:
      model: maps the encoder's inputs to logits [B, C].
      pack: tokenizes and packs text as in training.
      labels: names of the C outputs; may be empty.

    Raises:
      UserError: see `TextModel`.
    """

    task = "text classification"
    needs_encoder = False

    def __init__(
        self,
        model: keras.Model,
        pack: SentencePacker,
        labels: Sequence[str] = (),
    ):
        super().__init__(model, pack.tokenizer, pack.seq_length, labels)
        self.pack = pack

    def requests(self) -> list[Request]:
        """Texts of several lengths, one by one and as a batch."""
        texts = [text for (text,) in sample_texts(self.max_seq_length, 1)]
        return requests_of(SERVING_DEFAULT, text=texts)

    def answers(self, text: tf.Tensor) -> Tensors:
        """Computes serving_default; see `export_saved_model`."""
        return self.answer_tokens(self.pack(text))

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """Returns labels with probabilities, or logits without labels."""
        if self.labels:
            return plain_answers(outputs, self.labels)
        return [{"logits": row} for row in outputs["logits"].tolist()]

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """Computes logits and, for two or more classes, probabilities."""
        logits = tf.cast(self.forward(inputs), tf.float32)
        if self.labels:
            check_outputs(logits.shape[-1], self.labels)
            return with_labels(class_answers(logits, self.labels), self.labels)
        if logits.shape[-1] == 1:
            return {"logits": logits}
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}


def export_saved_model(
    model: keras.Model,
    export_dir: str | os.PathLike,
    text_input: SentencePacker | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Writes a classifier as a SavedModel that takes text.

    The counterpart of `bert-tf export` for a model in memory. It writes
    the SavedModel and, in assets.extra, model.json, the warm-up requests of
    TensorFlow Serving and, with `labels`, labels.json. The folder appears after
    a fresh process without bert_tf has loaded it and computed the same outputs
    as the model in memory.

    Signatures:
      serving_default: text string [B] -> logits and, for two or more classes,
        probabilities, float32 [B, classes]; with `labels` also label, string
        [B], the most likely label, and labels, string [B, classes].
      tokens: input_ids, input_mask, segment_ids int32 [B, S] -> the same.

    Loading it requires TensorFlow Text's ops (`import tensorflow_text`), which
    are built into TensorFlow Serving.

    Args:
      model: maps a dict of the encoder's inputs to logits [B, classes].
      export_dir: the version folder to write, such as "export/sst2/1".
      text_input: tokenizes and packs text as in training; a `TextClassifier`
        has its own.
      labels: names of the classes, in the order of the logits; by default
        those of a `TextClassifier`.

    Raises:
      UserError: `export_dir` exists, the model takes pairs or has no
        `text_input`, the number of `labels` differs from the number of logits,
        or the written model computes other outputs.
    """
    if isinstance(model, TextClassifier):
        if model.pairs:
            raise UserError(
                "`model`: takes pairs of texts; write it with its "
                "save_checkpoint, and that folder with bert_tf.export."
            )
        text_input = text_input or model.pack
        labels = model.labels if labels is None else labels
    if text_input is None:
        raise UserError(
            "`text_input`: give the SentencePacker of the training, which only "
            "a TextClassifier has itself."
        )
    folder = pathlib.Path(export_dir)
    if folder.exists():
        raise UserError(
            f"`export_dir`={folder}: exists already; export to a new version, "
            "TF Serving takes the highest number."
        )
    log(f"{folder}: appears once a fresh process has checked its answers")
    served = PackedClassifier(model, text_input, labels or ())
    write_version(served, folder, argument="export_dir")
