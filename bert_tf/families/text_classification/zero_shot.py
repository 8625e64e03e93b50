"""Zero-shot classification by a model of natural language inference (NLI).

Yin et al. 2019, "Benchmarking zero-shot text classification": the text is the
premise, a template with a label is the hypothesis, and the label holds if the
premise entails the hypothesis.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import check_labels
from bert_tf.errors import UserError, excerpt, first_few
from bert_tf.families.requests import (
    Request,
    Tensors,
    equal_rows,
    requests_of,
    sample_texts,
    unless,
)
from bert_tf.families.text_classification.answers import (
    SentenceModel,
    plain_answers,
)
from bert_tf.families.text_classification.config import entailment_of
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    Answer,
    Arrays,
    InputRows,
    TextModel,
)
from bert_tf.families.usage_options import ZERO_SHOT_TEMPLATE, pair_task
from bert_tf.text.layout import HOST, TokenIds, take, tokenize

# Where the label goes in a template.
_SLOT = "{}"
# A label of several holds if its probability is larger.
_THRESHOLD = 0.5


def label_shares(
    model: SentenceModel,
    text: tf.Tensor,
    number: tf.Tensor,
    hypotheses: TokenIds,
) -> Tensors:
    """Computes the probabilities of labels of texts.

    All pairs of text and label are rows of one computation, in which each text
    and each hypothesis is tokenized once. Of rows that are too long the text is
    truncated, as in transformers' pipeline zero-shot-classification, and never
    the hypothesis.

    Args:
      model: a model of NLI.
      text: string [B].
      number: int32 [B, C], the hypothesis of each label of a text; -1 for
        padding.
      hypotheses: the tokens of all hypotheses.

    Returns:
      probabilities, float32 [B, C], of labels that exclude each other: the
      softmax over the labels of the logits of entailment; of a single label its
      score. scores, float32 [B, C], of each label by itself: the softmax over
      entailment and contradiction. 0 for padding.
    """
    with tf.device(HOST):
        indices = tf.where(number >= 0)
        packing = model.tokenizer.packing
        room = model.max_seq_length - packing.num_special(2)
        chosen = tf.gather_nd(number, indices)
        count = tf.minimum(tf.gather(hypotheses.count, chosen), room)
        second = take(hypotheses, chosen, count=count)
        texts = tokenize(model.tokenizer, text)
        chosen = tf.cast(indices[:, 0], tf.int32)
        count = tf.minimum(tf.gather(texts.count, chosen), room - count)
        first = take(texts, chosen, count=count)
    logits = model.compute(
        first,
        second,
        lambda inputs, chosen: {"logits": model.forward(inputs)},
        {"logits": (len(model.labels),)},
    )["logits"]
    with tf.device(HOST):
        logits = logits / model.calibration_temperature
        entailment, contradiction = (
            logits[:, label] for label in entailment_of(model.labels)
        )

        def by_text(values: tf.Tensor, fill: float) -> tf.Tensor:
            filled = tf.fill(tf.shape(number), fill)
            return tf.tensor_scatter_nd_update(filled, indices, values)

        scores = by_text(tf.sigmoid(entailment - contradiction), 0.0)
        shares = tf.nn.softmax(by_text(entailment, -float("inf")))
        is_single = tf.math.count_nonzero(number >= 0, 1, keepdims=True) == 1
        return {
            "probabilities": tf.where(is_single, scores, shares),
            "scores": scores,
        }


def served_shares(
    model: SentenceModel,
    text: tf.Tensor,
    labels: tf.Tensor,
    template: tf.Tensor,
) -> Tensors:
    """Classifies texts by the labels of a request; see `SentenceModel`."""
    with tf.device(HOST):
        text, labels = equal_rows(text=text, labels=labels)
        text, template = equal_rows(text=text, template=template)
        labels = unless(
            tf.reduce_all(labels == "", 1),
            labels,
            "labels: row {} has none; give at least one that is not empty.",
        )
        template = tf.where(template == "", ZERO_SHOT_TEMPLATE, template)
        parts = tf.strings.split(template, _SLOT)
        around = unless(
            parts.row_lengths() != 2,
            parts.to_tensor(shape=[None, 2]),
            "template: row {} must have one pair of braces, for the label.",
        )
        every = around[:, :1] + labels + around[:, 1:]
        hypotheses, number = tf.unique(tf.reshape(every, [-1]))
        number = tf.reshape(number, tf.shape(labels))
        tokens = tokenize(model.tokenizer, hypotheses)
        number = tf.where(labels == "", -1, number)
    found = label_shares(model, text, number, tokens)
    with tf.device(HOST):
        best = tf.argmax(found["probabilities"], -1)
        label = tf.gather(labels, best, batch_dims=1)
        return {"label": label, "labels": labels, **found}


def check_candidates(labels: Iterable[Any], name: str) -> tuple[str, ...]:
    """Returns the labels to choose from.

    Args:
      labels: the labels.
      name: what the argument is called.

    Raises:
      UserError: there are none; or one is empty, no text or occurs twice.
    """
    found = tuple(labels)
    for number, label in enumerate(found):
        if not isinstance(label, str) or not label.strip():
            raise UserError(
                f"`{name}`: label {number} is {excerpt(label)}; give a text."
            )
    if not found:
        raise UserError(f"`{name}`: is empty; give at least one label.")
    check_labels(found, f"`{name}`")
    return found


class ZeroShotModel(TextModel):
    """A model of NLI as a classifier of texts by other labels than its own.

    Args:
      model: the model of NLI.
      labels: the labels; see `check_candidates`.
      template: turns a label into a hypothesis, at the place of {}.
      several: whether each label holds or not by itself; otherwise the labels
        exclude each other.
      place: names the model in errors.

    Raises:
      UserError: the model is none of NLI, or the template has no {} or several.
    """

    explains = False

    def __init__(
        self,
        model: TextModel,
        labels: tuple[str, ...],
        template: str,
        several: bool,
        place: str,
    ):
        if not isinstance(template, str) or template.count(_SLOT) != 1:
            raise UserError(
                f"`template`={excerpt(template)}: has {_SLOT} where the label "
                f"goes, once, as in {ZERO_SHOT_TEMPLATE!r}."
            )
        if not isinstance(model, SentenceModel) or not model.usage.is_nli:
            names = first_few(model.labels)
            of_labels = f" with the labels {names}" if names else ""
            pairs = pair_task(model.task)
            advice = "choose one that was trained on MNLI or the like."
            if pairs:
                advice = f"load it with `task`={pairs} if it has such labels."
            raise UserError(
                f"{place}: is a model of {model.task}{of_labels}; labels that "
                "it was not trained on take a model of natural language "
                "inference, which classifies pairs and has a label that begins "
                f"with entail; {advice}"
            )
        super().__init__(model.model, model.tokenizer, model.max_seq_length)
        self._model, self.labels = model, labels
        self.forward, self.runtime = model.forward, model.runtime
        self.weights = model.weights
        if several:
            self.threshold = _THRESHOLD
        self.task = f"zero-shot {'multi-label ' * several}classification"
        self._hypotheses = tokenize(
            self.tokenizer, [template.replace(_SLOT, label) for label in labels]
        )

    def requests(self) -> list[Request]:
        """Texts of several lengths, separately and in one batch."""
        texts = [text for (text,) in sample_texts(self.max_seq_length, 1)]
        return requests_of(SERVING_DEFAULT, text=texts)

    def answers(self, text: tf.Tensor) -> Tensors:
        """Computes label and probabilities, or scores and holds; string [B]."""
        number = tf.range(len(self.labels))
        number = tf.tile(number[tf.newaxis], [tf.size(text), 1])
        tokens = self._hypotheses
        found = self._model.label_shares(
            text, number, tokens.ids, tokens.begin, tokens.count
        )
        if self.threshold is not None:
            scores = found["scores"]
            return {"scores": scores, "holds": scores > self.threshold}
        shares = found["probabilities"]
        best = tf.argmax(shares, -1)
        label = tf.gather(tf.constant(self.labels), best)
        return {"label": label, "probabilities": shares}

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """See `plain_answers`."""
        return plain_answers(outputs, self.labels)
