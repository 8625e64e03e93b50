"""A plain BERT over few operations, from which files are written.

Converting the graph of the Keras model gives worse files: tf2onnx 1.17 takes
sixteen seconds for six layers, takes layer normalisation and GELU apart, which
runtimes have kernels for, and miscounts sizes that are known at run time only;
LiteRT has no error function, which the exact GELU is traced to. So the model is
said once more, in the operations that both formats have, from arrays by their
names in a checkpoint. Whoever writes a file compares it with the Keras model.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints import (
    POOLER,
    SPAN,
    TASK_HEADS,
    TOKEN_CLASSIFIER,
    head_shapes,
)
from bert_tf.checkpoints.sentence_modules import SentenceModules
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.layers.attention import MASKED_SCORE
from bert_tf.runtimes.operations import Operations, hiding, last_token, number
from bert_tf.runtimes.sentence_vectors import sentence_vector

_READ_TOKENS = (SPAN, TOKEN_CLASSIFIER)


def check_model(config: BertConfig, source: str) -> None:
    """Refuses a model that is not made of these operations.

    Raises:
      UserError: it has a BiLSTM.
    """
    if config.bilstm:
        raise UserError(
            f"{source}: has a BiLSTM, a loop over positions that is written "
            "as a SavedModel alone; give `file_format` saved_model."
        )


class PlainBert:
    """The forward of a model over the operations of a format.

    Args:
      operations: of the format.
      config: the architecture; see `check_model`.
      arrays: the weights by their names in Google's TF1 checkpoints, low-rank
        updates merged.
      modules: what makes one vector a text, of a pre-trained model.
    """

    def __init__(
        self,
        operations: Operations,
        config: BertConfig,
        arrays: Mapping[str, np.ndarray],
        modules: SentenceModules | None = None,
    ):
        self._ops = operations
        self._modules = modules
        self._config = config
        self._arrays = arrays
        heads = [
            head
            for head, shapes in head_shapes(config).items()
            if all(name in arrays for name in shapes)
        ]
        self._has_pooler = POOLER in heads
        # A model has one, or is a pre-trained one.
        self._head = next((h for h in heads if h in TASK_HEADS), None)

    def output_axes(self) -> dict[str, tuple[str | int, ...]]:
        """The outputs' names and axes: batch, length, or a size."""
        tokens, hidden = ("batch", "length"), self._config.hidden_size
        if self._head is None:
            found: dict[str, tuple[str | int, ...]] = {
                "sequence_output": (*tokens, hidden)
            }
            if self._has_pooler:
                found["pooled_output"] = ("batch", hidden)
            if self._modules is not None:
                width = self._modules.width(hidden)
                found["embedding"] = ("batch", width)
            return found
        if self._head == SPAN:
            return {"start_logits": tokens, "end_logits": tokens}
        _, bias = head_shapes(self._config)[self._head]
        reads_tokens = self._head in _READ_TOKENS
        size = self._arrays[bias].shape[0]
        return {"logits": (*(tokens if reads_tokens else tokens[:1]), size)}

    def __call__(
        self, input_ids: Any, input_mask: Any, segment_ids: Any
    ) -> dict[str, Any]:
        """The outputs of a batch.

        Args:
          input_ids: int32 [B, S].
          input_mask: int32 [B, S], 1 = token, 0 = padding.
          segment_ids: int32 [B, S].

        Returns:
          logits, [B, C] of a classifier, [B, S, C] of a token classifier and
          [B, 1] of choices, each a row of its own; start_logits and end_logits
          [B, S] of a span labeler; sequence_output [B, S, H] of a pre-trained
          model, pooled_output [B, H] if it has a pooler, and embedding [B, D]
          if it has modules.
        """
        ops, config = self._ops, self._config
        head = self._head
        pooled_only = head is not None and head not in _READ_TOKENS
        positions = ops.positions(input_ids)
        kept = ops.to_float(input_mask)
        # [B, 1, 1, S]: what hides padding from every token.
        padding = hiding(ops, ops.reshape(kept, (0, 1, 1, -1)))
        adder = padding
        if config.causal:
            place = ops.to_float(positions)
            later = ops.less(
                ops.reshape(place, (-1, 1)), ops.reshape(place, (1, -1))
            )
            hidden_later = ops.multiply(
                ops.to_float(later), number(ops, MASKED_SCORE)
            )
            # Where both hold, the sum is as good as either.
            adder = ops.add(padding, hidden_later)
        hidden = self._embed(input_ids, segment_ids, positions)
        for layer in range(config.num_hidden_layers):
            queries, seen = hidden, adder
            if pooled_only and layer == config.num_hidden_layers - 1:
                # The last token sees all others, so only padding is hidden.
                queries, seen = self._pooled_token(hidden, kept), padding
            hidden = self._block(layer, queries, hidden, seen)
        if head is None:
            outputs = {"sequence_output": hidden}
            if self._has_pooler:
                token = self._pooled_token(hidden, kept)
                outputs["pooled_output"] = self._pool(token)
            if self._modules is not None:
                outputs["embedding"] = sentence_vector(
                    ops, self._modules, hidden, kept
                )
            return outputs
        if pooled_only:
            hidden = self._pool(hidden)
        logits = self._score(head, hidden)
        if head != SPAN:
            return {"logits": logits}
        return {
            name: ops.reshape(ops.part(logits, 2, at, at + 1), (0, -1))
            for at, name in enumerate(("start_logits", "end_logits"))
        }

    def _constant(self, name: str) -> Any:
        return self._ops.constant(np.asarray(self._arrays[name]), name)

    def _embed(self, input_ids: Any, segment_ids: Any, positions: Any) -> Any:
        ops = self._ops
        parts = [
            ops.rows(self._constant(f"bert/embeddings/{table}"), ids)
            for table, ids in (
                ("word_embeddings", input_ids),
                ("token_type_embeddings", segment_ids),
                ("position_embeddings", positions),
            )
            if ids is not segment_ids or self._config.type_vocab_size
        ]
        embedded = functools.reduce(ops.add, parts)
        embedded = self._normalise(embedded, "bert/embeddings/LayerNorm")
        if self._config.embedding_size != self._config.hidden_size:
            embedded = self._dense(embedded, "bert/embeddings_project")
        return embedded

    def _normalise(self, values: Any, name: str) -> Any:
        return self._ops.normalise(
            values,
            self._constant(f"{name}/gamma"),
            self._constant(f"{name}/beta"),
            self._config.layer_norm_eps,
        )

    def _dense(self, values: Any, name: str) -> Any:
        ops = self._ops
        product = ops.matmul(values, self._constant(f"{name}/kernel"))
        return ops.add(product, self._constant(f"{name}/bias"))

    def _block(self, layer: int, queries: Any, hidden: Any, adder: Any) -> Any:
        """A block's output at the places of `queries`."""
        ops, at = self._ops, f"bert/encoder/layer_{layer}"
        # That of all heads, side by side.
        width = self._arrays[f"{at}/attention/self/value/bias"].shape[0]
        size = width // self._config.num_attention_heads

        def split(values: Any, part: str, order: tuple[int, ...]) -> Any:
            dense = self._dense(values, f"{at}/attention/self/{part}")
            return ops.transpose(ops.reshape(dense, (0, 0, -1, size)), order)

        query = split(queries, "query", (0, 2, 1, 3))
        key = split(hidden, "key", (0, 2, 3, 1))
        value = split(hidden, "value", (0, 2, 1, 3))
        scale = number(ops, size**-0.5)
        scores = ops.multiply(ops.matmul(query, key), scale)
        shares = ops.softmax(ops.add(scores, adder))
        context = ops.transpose(ops.matmul(shares, value), (0, 2, 1, 3))
        context = ops.reshape(context, (0, 0, width))
        attended = self._dense(context, f"{at}/attention/output/dense")
        attended = self._normalise(
            ops.add(attended, queries), f"{at}/attention/output/LayerNorm"
        )
        inner = ops.activate(
            self._config.hidden_act,
            self._dense(attended, f"{at}/intermediate/dense"),
        )
        output = self._dense(inner, f"{at}/output/dense")
        return self._normalise(
            ops.add(output, attended), f"{at}/output/LayerNorm"
        )

    def _pooled_token(self, hidden: Any, kept: Any) -> Any:
        """The token that is pooled, [B, 1, H]: the first, or the last."""
        if not self._config.causal:
            return self._ops.part(hidden, 1, 0, 1)
        return last_token(self._ops, hidden, kept)

    def _pool(self, token: Any) -> Any:
        pooled = self._dense(token, "bert/pooler/dense")
        pooled = self._ops.activate(self._config.pooler_act, pooled)
        return self._ops.reshape(pooled, (0, -1))

    def _score(self, head: str, hidden: Any) -> Any:
        """The logits of a head, whose weights are stored transposed."""
        ops = self._ops
        weights, bias = head_shapes(self._config)[head]
        kernel = np.ascontiguousarray(np.asarray(self._arrays[weights]).T)
        product = ops.matmul(hidden, ops.constant(kernel, weights))
        return ops.add(product, self._constant(bias))
