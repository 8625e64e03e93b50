"""The losses of sentence embeddings, in TensorFlow.

Each takes the vectors of a batch, float32 [B, K, D], of K texts in each row,
and the targets of the rows, and returns one number. As sentence-transformers
6.2.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.families.sentence_embedding.recipe import (
    CONTRASTIVE,
    COSENT,
    KL_DIVERGENCE,
    MARGIN_MSE,
    MULTIPLE_NEGATIVES,
    ONLINE_CONTRASTIVE,
    SIMCSE,
    SYMMETRIC,
    TEACHER_COSINE,
    TEACHER_MSE,
    TRIPLET,
    EmbeddingRecipe,
)
from bert_tf.families.task_model import LOSS, Sums

VECTORS, TARGETS = "vectors", "targets"
# The square of torch.nn.functional.normalize, eps.
_LEAST_SQUARE = 1e-24
_CONTRASTIVE_MARGIN, _TRIPLET_MARGIN = 0.5, 5.0

Loss = Callable[[tf.Tensor, Any, EmbeddingRecipe], tf.Tensor]


def _unit(vectors: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=_LEAST_SQUARE)


def _cosines(vectors: tf.Tensor) -> tf.Tensor:
    """The similarity of both texts of each row, [B]."""
    unit = _unit(vectors)
    return tf.reduce_sum(unit[:, 0] * unit[:, 1], axis=-1)


def _dots(vectors: tf.Tensor) -> tf.Tensor:
    """The products of each row's first vector and the others, [B, K - 1]."""
    return tf.reduce_sum(vectors[:, :1] * vectors[:, 1:], axis=-1)


def _log_partition(logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_logsumexp(logits, axis=-1)


def _multiple_negatives(
    vectors: tf.Tensor, targets: Any, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """Cross-entropy of the own positive (van den Oord et al. 2018, equation 4).

    The candidates are the positives and negatives of all rows.
    """
    del targets
    unit = _unit(vectors)
    anchors, positives = unit[:, 0], unit[:, 1]
    candidates = tf.reshape(unit[:, 1:], [-1, unit.shape[2]])
    scale = recipe.similarity_scale
    logits = scale * tf.matmul(anchors, candidates, transpose_b=True)
    found = _log_partition(logits)
    if recipe.loss == SYMMETRIC:
        # Each positive selects its anchor, too.
        back = scale * tf.matmul(positives, anchors, transpose_b=True)
        found = (found + _log_partition(back)) / 2
    return tf.reduce_mean(
        found - scale * tf.reduce_sum(anchors * positives, axis=-1)
    )


def _cosent(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """log(1 + sum of exp(s_k - s_l)) of all pairs with targets k < l.

    Huang et al. 2024, "CoSENT: Consistent Sentence Embedding via Similarity
    Ranking".
    """
    order = tf.argsort(targets, stable=True)
    targets = tf.gather(targets, order)
    similarity = recipe.similarity_scale * tf.gather(_cosines(vectors), order)
    # Of this row and those after it.
    above = tf.math.cumulative_logsumexp(-similarity, reverse=True)
    above = tf.concat([above, [-float("inf")]], 0)
    first = tf.searchsorted(targets, targets, side="right")
    pairs = similarity + tf.gather(above, first)
    return tf.reduce_logsumexp(tf.concat([[0.0], pairs], 0))


def _contrastive(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """Half the squared distance, or shortfall (Hadsell et al. 2006)."""
    distance = 1 - _cosines(vectors)
    short = tf.nn.relu((recipe.margin or _CONTRASTIVE_MARGIN) - distance)
    losses = targets * distance**2 + (1 - targets) * short**2
    return 0.5 * tf.reduce_mean(losses)


def _online_contrastive(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """The sum over the pairs that are harder than one of the other kind."""
    distance, is_same = 1 - _cosines(vectors), targets > 0.5
    # Where all rows are of one kind, the mean replaces the other's extreme.
    mean = tf.reduce_mean(distance)
    nearest = tf.reduce_min(tf.where(is_same, float("inf"), distance))
    farthest = tf.reduce_max(tf.where(is_same, distance, -float("inf")))
    nearest = tf.where(tf.reduce_all(is_same), mean, nearest)
    farthest = tf.where(tf.reduce_any(is_same), farthest, mean)
    short = tf.nn.relu((recipe.margin or _CONTRASTIVE_MARGIN) - distance)
    same = tf.where(is_same & (distance > nearest), distance**2, 0.0)
    other = tf.where(~is_same & (distance < farthest), short**2, 0.0)
    return tf.reduce_sum(same + other)


def _triplet(
    vectors: tf.Tensor, targets: Any, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """The excess of the positive's distance (Hermans et al. 2017)."""
    del targets
    squares = tf.reduce_sum((vectors[:, :1] - vectors[:, 1:]) ** 2, axis=-1)
    distances = tf.sqrt(tf.maximum(squares, _LEAST_SQUARE))
    excess = distances[:, 0] - distances[:, 1]
    return tf.reduce_mean(
        tf.nn.relu(excess + (recipe.margin or _TRIPLET_MARGIN))
    )


def _teacher_cosine(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """1 - the similarity to the teacher's vector (Kim et al. 2023)."""
    del recipe
    products = _unit(vectors) * _unit(targets)[:, tf.newaxis]
    return tf.reduce_mean(1 - tf.reduce_sum(products, axis=-1))


def _teacher_mse(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """The squared error of the teacher's vector."""
    del recipe
    return tf.reduce_mean((vectors - targets[:, tf.newaxis]) ** 2)


def _margin_mse(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """The squared error of the teacher's margins (Hofstätter et al. 2020)."""
    del recipe
    scores = _dots(vectors)
    if targets.shape[1] == scores.shape[1]:
        targets = targets[:, :1] - targets[:, 1:]
    return tf.reduce_mean((scores[:, :1] - scores[:, 1:] - targets) ** 2)


def _kl_divergence(
    vectors: tf.Tensor, targets: tf.Tensor, recipe: EmbeddingRecipe
) -> tf.Tensor:
    """The divergence from the teacher's softmax (Lin et al. 2020)."""
    del recipe
    shares = tf.nn.softmax(targets)
    own = tf.nn.log_softmax(_dots(vectors))
    difference = tf.nn.log_softmax(targets) - own
    return tf.reduce_mean(tf.reduce_sum(shares * difference, axis=-1))


_LOSSES: dict[str, Loss] = {
    MULTIPLE_NEGATIVES: _multiple_negatives,
    SYMMETRIC: _multiple_negatives,
    COSENT: _cosent,
    CONTRASTIVE: _contrastive,
    ONLINE_CONTRASTIVE: _online_contrastive,
    TRIPLET: _triplet,
    # Gao et al. 2021, section 3: both texts are the same, with other dropout.
    SIMCSE: _multiple_negatives,
    TEACHER_COSINE: _teacher_cosine,
    TEACHER_MSE: _teacher_mse,
    MARGIN_MSE: _margin_mse,
    KL_DIVERGENCE: _kl_divergence,
}


class EmbeddingObjective:
    """A loss of the vectors of a batch; see `BatchObjective`.

    Args:
      recipe: names the loss and has its settings.
      has_targets: whether rows have targets.
    """

    def __init__(self, recipe: EmbeddingRecipe, has_targets: bool):
        self.recipe = recipe
        self.batch_labels = (TARGETS,) if has_targets else ()

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns 1, because a batch has one loss."""
        del batch
        return {LOSS: tf.ones([])}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Computes the loss; of Matryoshka the sum over all sizes.

        Kusupati et al. 2022, equation 1: of each size the first numbers of the
        vectors, scaled to length one.
        """
        vectors, targets = outputs[VECTORS], batch.get(TARGETS)
        recipe = self.recipe
        compute = _LOSSES[recipe.loss]
        if not recipe.dims:
            return {LOSS: compute(vectors, targets, recipe)}, {}
        losses = []
        for size in recipe.dims:
            own = targets
            if recipe.loss in (TEACHER_COSINE, TEACHER_MSE):
                own = _unit(batch[TARGETS][:, :size])
            losses.append(compute(_unit(vectors[..., :size]), own, recipe))
        return {LOSS: tf.add_n(losses)}, {}

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the loss."""
        return {LOSS: losses[LOSS] / weights[LOSS]}
