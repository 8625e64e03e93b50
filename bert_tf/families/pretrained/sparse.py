"""Weights of terms from masked-LM logits (SPLADE)."""

from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import SparseModules
from bert_tf.config import MAX
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.requests import Tensors
from bert_tf.families.text_model import Answer, Arrays, InputRows, largest
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.layout import HOST

# Of the tokens of a batch, because each has V logits.
_SMALLER_BATCHES = 8


class SparseModel(PretrainedModel):
    """A masked LM whose logits are the weights of a text's terms.

    Signatures:
      embed, embed_with_prompt: see `PretrainedModel`; -> ids, int32 [B, K],
        tokens, string [B, K], and weights, float32 [B, K], of the terms with a
        weight, the largest first, padded with 0 and "".
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] ->
        sequence_output, float32 [B, S, H], and embedding, float32 [B, V].

    The arguments are those of `PretrainedModel`, with a BertPretrainer.
    """

    vector_kind = "sparse embeddings"
    reads_masks = False
    tokens_at_once = PretrainedModel.tokens_at_once // _SMALLER_BATCHES

    @property
    def batch_size(self) -> int:
        """See `PretrainedModel`."""
        return max(super().batch_size // _SMALLER_BATCHES, 1)

    def _build_vectors(self, modules: Any) -> Any:
        return SparseVectors(modules, self.model)

    def embedded(self, text: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """See the class: the weights of each row, the largest first."""
        dense = super().embedded(text, lengths)["embedding"]
        with tf.device(HOST):
            counts = tf.math.count_nonzero(dense, axis=1, dtype=tf.int32)
            weights, ids = tf.math.top_k(dense, largest(counts))
            is_term = weights > 0
            # Some models pad the vocabulary to a round number.
            is_known = is_term & (ids < len(self.tokenizer.vocabulary))
            tokens = self.tokenizer.id_to_token(tf.where(is_known, ids, 0))
            return {
                "ids": tf.where(is_term, ids, 0),
                "tokens": tf.where(is_known, tokens, ""),
                "weights": weights,
            }

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """See `TextModel`: the weights by token, the largest first."""
        del rows
        return [
            {
                "tokens": {
                    token.decode(): weight
                    for token, weight in zip(*row, strict=True)
                    if weight
                }
            }
            for row in zip(
                outputs["tokens"].tolist(),
                outputs["weights"].tolist(),
                strict=True,
            )
        ]


class SparseVectors:
    """Computes the weights of the terms of rows; see `SparseModules`.

    As sentence-transformers 6.2, sparse_encoder/modules/splade_pooling.py.

    Args:
      modules: the modules of the folder.
      model: the masked LM.

    Attributes:
      modules: the modules.
      weights: variables besides those of the model; none.
    """

    def __init__(self, modules: SparseModules, model: BertPretrainer):
        self.modules = modules
        self.weights: list[tf.Variable] = []
        self._model = model

    def __call__(
        self,
        hidden: tf.Tensor,
        input_mask: tf.Tensor,
        prompt_length: tf.Tensor | int,
    ) -> tf.Tensor:
        """Computes the weights of rows.

        Args:
          hidden: float [B, S, H], of the last layer.
          input_mask: int32 [B, S], 1 = token, 0 = padding.
          prompt_length: unused; prompts are weighed like other text.

        Returns:
          float32 [B, V].
        """
        del prompt_length
        logits = self._model.masked_lm(
            hidden,
            0 * input_mask + tf.range(tf.shape(input_mask)[1]),
            self._model.encoder.embeddings.word_table,
        )
        is_token = tf.not_equal(input_mask, 0)[:, :, tf.newaxis]
        weights = tf.where(is_token, tf.nn.relu(logits), 0.0)
        # The logarithm is monotonic.
        if self.modules.pooling == MAX:
            weights = self._damped(tf.reduce_max(weights, axis=1))
        else:
            weights = tf.reduce_sum(self._damped(weights), axis=1)
        most = self.modules.max_active_dims
        if most is not None and most < self.modules.vocab_size:
            least = tf.math.top_k(weights, most).values[:, -1:]
            weights = tf.where(weights < least, 0.0, weights)
        return weights

    def _damped(self, weights: tf.Tensor) -> tf.Tensor:
        for _ in range(1 + (self.modules.activation == "log1p_relu")):
            weights = tf.math.log1p(weights)
        return weights
