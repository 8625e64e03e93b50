"""A plain BERT over few operations, from which files are written.

Converting the graph of the Keras model gives worse files: tf2onnx 1.17 takes
sixteen seconds for six layers, takes layer normalisation and GELU apart, which
runtimes have kernels for, and miscounts sizes that are known at run time only;
LiteRT has no error function, which the exact GELU is traced to. So the model is
said once more, in the operations that both formats have, from arrays by their
names in a checkpoint. Whoever writes a file compares it with the Keras model.
"""

import abc
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
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.layers.attention import MASKED_SCORE

_READ_TOKENS = (SPAN, TOKEN_CLASSIFIER)


class Operations(abc.ABC):
    """The operations of a format on its own kind of tensors.

    Tensors are float32 where nothing else is said.
    """

    @abc.abstractmethod
    def constant(self, array: np.ndarray, name: str) -> Any:
        """A tensor of an array, float32 or int32, under a name of its own."""

    @abc.abstractmethod
    def positions(self, row: Any) -> Any:
        """0 to S-1 for a tensor [B, S]: int32 [S]."""

    @abc.abstractmethod
    def rows(self, table: Any, ids: Any) -> Any:
        """The rows of a table [R, H] for int32 ids [...]: [..., H]."""

    @abc.abstractmethod
    def to_float(self, values: Any) -> Any:
        """Whole numbers, or booleans as 0 and 1, as float32."""

    @abc.abstractmethod
    def less(self, left: Any, right: Any) -> Any:
        """left < right, bool."""

    @abc.abstractmethod
    def add(self, left: Any, right: Any) -> Any:
        """left + right."""

    @abc.abstractmethod
    def multiply(self, left: Any, right: Any) -> Any:
        """left * right, element by element."""

    @abc.abstractmethod
    def largest(self, values: Any) -> Any:
        """The largest along the last axis, which stays."""

    @abc.abstractmethod
    def matmul(self, left: Any, right: Any) -> Any:
        """The products of the matrices in the last two axes."""

    @abc.abstractmethod
    def reshape(self, values: Any, shape: tuple[int, ...]) -> Any:
        """Another shape; 0 keeps the size of the axis, -1 takes the rest."""

    @abc.abstractmethod
    def transpose(self, values: Any, order: tuple[int, ...]) -> Any:
        """The axes in another order."""

    @abc.abstractmethod
    def part(self, values: Any, axis: int, begin: int, end: int) -> Any:
        """Places `begin` to `end` of an axis, which stays."""

    @abc.abstractmethod
    def normalise(
        self, values: Any, gamma: Any, beta: Any, epsilon: float
    ) -> Any:
        """Layer normalisation over the last axis."""

    @abc.abstractmethod
    def softmax(self, values: Any) -> Any:
        """Softmax over the last axis."""

    @abc.abstractmethod
    def activate(self, hidden_act: str, values: Any) -> Any:
        """An activation of `bert_tf.config.ACTIVATIONS`."""


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
    """

    def __init__(
        self,
        operations: Operations,
        config: BertConfig,
        arrays: Mapping[str, np.ndarray],
    ):
        self._ops = operations
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
          model, and pooled_output [B, H] if it has a pooler.
        """
        ops, config = self._ops, self._config
        head = self._head
        pooled_only = head is not None and head not in _READ_TOKENS
        positions = ops.positions(input_ids)
        kept = ops.to_float(input_mask)
        # [B, 1, 1, S]: what hides padding from every token.
        padding = self._hiding(ops.reshape(kept, (0, 1, 1, -1)))
        adder = padding
        if config.causal:
            place = ops.to_float(positions)
            later = ops.less(
                ops.reshape(place, (-1, 1)), ops.reshape(place, (1, -1))
            )
            hidden_later = ops.multiply(
                ops.to_float(later), self._number(MASKED_SCORE)
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

    def _number(self, value: float) -> Any:
        return self._ops.constant(
            np.array(value, np.float32), f"number_{value}"
        )

    def _hiding(self, kept: Any) -> Any:
        """0 where `kept` is 1, `MASKED_SCORE` where it is 0."""
        ops = self._ops
        minus = ops.multiply(kept, self._number(-MASKED_SCORE))
        return ops.add(minus, self._number(MASKED_SCORE))

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
        scale = self._number(size**-0.5)
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
        ops = self._ops
        if not self._config.causal:
            return ops.part(hidden, 1, 0, 1)
        place = ops.to_float(ops.positions(kept))
        last = ops.largest(ops.multiply(kept, place))
        elsewhere = ops.add(
            ops.to_float(ops.less(place, last)),
            ops.to_float(ops.less(last, place)),
        )
        chosen = ops.add(
            ops.multiply(elsewhere, self._number(-1.0)), self._number(1.0)
        )
        # A product with ones and zeros, exact.
        return ops.matmul(ops.reshape(chosen, (0, 1, -1)), hidden)

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
