"""The losses of cross-encoders, as in sentence-transformers 6.2.

Labels are float32 [B, D], NaN where a row has fewer than D documents.
"""

import abc
from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.families.task_model import HIDDEN, ChoicesObjective
from bert_tf.families.text_classification.recipe import (
    BCE,
    LISTNET,
    MARGIN_MSE,
)


class RankingObjective(ChoicesObjective, abc.ABC):
    """Base of losses of the scores of a row's documents."""

    label_name = "document_labels"

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Computes the loss and the metric of each row; see the module."""
        labels = labels[:, : ops.shape(logits)[1]]
        is_document = ops.logical_not(ops.isnan(labels))
        return self.of_lists(
            ops.where(is_document, logits, HIDDEN),
            ops.where(is_document, labels, HIDDEN),
            ops.cast(is_document, "float32"),
        )

    @abc.abstractmethod
    def of_lists(
        self, logits: Any, labels: Any, is_document: Any
    ) -> tuple[Any, Any]:
        """Computes the loss and the metric of each row.

        Args:
          logits: float32 [B, D], -1e9 for padding.
          labels: float32 [B, D], likewise.
          is_document: float32 [B, D], 0 for padding and otherwise 1.
        """

    def divergence(self, logits: Any, targets: Any, temperature: float) -> Any:
        """Computes the squared error; the temperature has no effect."""
        del temperature
        is_document = ops.cast(logits > HIDDEN / 2, "float32")
        return _mean(ops.square(logits - targets), is_document)


class BinaryCrossEntropy(RankingObjective):
    """Binary cross-entropy of each document, with labels from 0 to 1."""

    def of_lists(
        self, logits: Any, labels: Any, is_document: Any
    ) -> tuple[Any, Any]:
        """Computes loss and accuracy, means over the documents of a row."""
        logits = ops.where(is_document > 0, logits, 0.0)
        # -log sigmoid in a form that does not overflow.
        loss = ops.relu(logits) - logits * labels
        loss = loss + ops.log1p(ops.exp(-ops.abs(logits)))
        correct = ops.cast(ops.equal(logits > 0, labels > 0.5), "float32")
        return _mean(loss, is_document), _mean(correct, is_document)


class ListNet(RankingObjective):
    """Cross-entropy of two softmaxes over the documents of a row.

    Cao et al. 2007, "Learning to rank: from pairwise approach to listwise
    approach", of the probabilities that a document is the best one.
    """

    def of_lists(
        self, logits: Any, labels: Any, is_document: Any
    ) -> tuple[Any, Any]:
        """Computes the loss, and whether a best document has the top score."""
        terms = ops.softmax(labels) * ops.log_softmax(logits) * is_document
        top = ops.max(logits, axis=-1, keepdims=True)
        best = ops.max(labels, axis=-1, keepdims=True)
        is_right = ops.logical_and(logits >= top, labels >= best)
        return -ops.sum(terms, -1), ops.cast(ops.any(is_right, -1), "float32")


class MarginMse(RankingObjective):
    """Squared error of the margins between the first document and the others.

    Hofstätter et al. 2020, "Improving efficient neural ranking models with
    cross-architecture knowledge distillation".
    """

    metric = "absolute_error"

    def of_lists(
        self, logits: Any, labels: Any, is_document: Any
    ) -> tuple[Any, Any]:
        """Computes the mean squared and absolute errors of a row's margins."""
        margins = logits[:, :1] - logits - labels[:, :1] + labels
        error = ops.where(is_document > 0, margins, 0.0)[:, 1:]
        others = is_document[:, 1:]
        return _mean(ops.square(error), others), _mean(ops.abs(error), others)


def _mean(values: Any, is_document: Any) -> Any:
    """Returns the mean over the documents of each row, [B]."""
    total = ops.sum(values * is_document, axis=-1)
    return total / ops.maximum(ops.sum(is_document, axis=-1), 1.0)


OBJECTIVES: Mapping[str, type[RankingObjective]] = {
    BCE: BinaryCrossEntropy,
    LISTNET: ListNet,
    MARGIN_MSE: MarginMse,
}
