"""The pooler and the pre-training heads."""

from typing import Any

import keras
from keras import ops

from bert_tf.compat import take_rows
from bert_tf.layers.base import ConfiguredLayer, Dense, GlorotDense, LayerNorm
from bert_tf.layers.part_weights import PartWeights, part_of
from bert_tf.layers.products import table_product


def at_positions(sequence_output: Any, positions: Any) -> Any:
    """Gathers tokens of each row.

    Args:
      sequence_output: float [B, S, H].
      positions: int32 [B, P], each in 0..S-1.

    Returns:
      float [B, P, H].
    """
    batch, length, hidden = ops.shape(sequence_output)
    starts = ops.arange(batch, dtype=positions.dtype)[:, None] * length
    rows = ops.reshape(sequence_output, (-1, hidden))
    tokens = take_rows(rows, ops.reshape(positions + starts, (-1,)))
    return ops.reshape(tokens, (*ops.shape(positions), hidden))


def first_tokens(sequence_output: Any, positions: Any = None) -> Any:
    """Takes the pooled tokens of each row.

    Args:
      sequence_output: float [B, S, H].
      positions: int32 [B, K]; None means the first token of each row.

    Returns:
      float [B, H], with positions [B, K, H].
    """
    if positions is None:
        return sequence_output[:, 0]
    return at_positions(sequence_output, positions)


def sequence_tokens(
    input_mask: Any, sequence_ids: Any = None, starts: Any = None
) -> Any:
    """Computes which tokens sequences consist of.

    Args:
      input_mask: int32 [B, S], 1 = token, 0 = padding.
      sequence_ids: int32 [B, S], 0 = padding, 1..k = sequence of the row;
        None: a row is one sequence.
      starts: int32 [B, K], the first positions of the sequences; None means
        the first sequence of each row, K = 1.

    Returns:
      bool [B, K, S].
    """
    inside = ops.not_equal(input_mask, 0)[:, None]
    if sequence_ids is None:
        if starts is None:
            return inside
        return ops.repeat(inside, ops.shape(starts)[1], axis=1)
    if starts is None:
        starts = ops.zeros_like(sequence_ids[:, :1])
    numbers = at_positions(sequence_ids[:, :, None], starts)
    same = ops.equal(sequence_ids[:, None], numbers)
    return ops.logical_and(inside, same)


def last_positions(
    input_mask: Any, sequence_ids: Any = None, starts: Any = None
) -> Any:
    """Computes the position of the last token of sequences.

    Args:
      input_mask, sequence_ids, starts: see `sequence_tokens`.

    Returns:
      int32 [B, K], each in 0..S-1.
    """
    inside = sequence_tokens(input_mask, sequence_ids, starts)
    positions = ops.arange(ops.shape(input_mask)[1], dtype="int32")
    return ops.max(ops.where(inside, positions, 0), axis=2)


def sequence_means(
    hidden: Any, input_mask: Any, sequence_ids: Any = None, starts: Any = None
) -> Any:
    """Averages the tokens of sequences, in float32.

    Args:
      hidden: float [B, S, H].
      input_mask, sequence_ids, starts: see `sequence_tokens`.

    Returns:
      [B, K, H] in the dtype of `hidden`.
    """
    inside = sequence_tokens(input_mask, sequence_ids, starts)
    weights = ops.cast(inside, "float32")
    total = ops.sum(weights, axis=-1, keepdims=True)
    sums = ops.matmul(weights, ops.cast(hidden, "float32"))
    return ops.cast(sums / ops.maximum(total, 1.0), hidden.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(ConfiguredLayer):
    """Dense layer on the first token of a sequence ([CLS]), tanh in a BERT.

    Source: google-research/bert, modeling.py, BertModel. In a causal model
    [CLS] attends only to itself, so `BertEncoder` passes the last token.
    Dropout at the rate pooler_dropout precedes the layer.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the kernel [H, H] and the bias [H]."""
        hidden = self.config.hidden_size
        self.kernel = self.add_kernel("kernel", (hidden, hidden))
        self.bias = self.add_bias("bias", hidden)
        self.dropout = self.make_dropout(self.config.pooler_dropout)

    def call(
        self,
        sequence_output: Any,
        positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Pools one token of each sequence.

        Args:
          sequence_output: float [B, S, H].
          positions: int32 [B, K], the pooled tokens; None means the first
            token of each row.
          training: whether dropout is active.

        Returns:
          float [B, H], with positions [B, K, H], in the compute dtype.
        """
        first = first_tokens(sequence_output, positions)
        first = self.dropout(first, training=training)
        act = self.config.pooler_act
        return self.project(first, self.kernel, self.bias, act)

    def part_weights(self) -> list[PartWeights]:
        """The weights of its one part."""
        return [part_of(self.kernel, self.bias)]


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(ConfiguredLayer):
    """Computes vocabulary logits at the masked positions.

    Dense with the configuration's activation, layer normalisation (the
    configuration may override both for this head), then a product with the
    transposed word table (tied weights) and a bias. Source:
    google-research/bert, run_pretraining.py, get_masked_lm_output.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the transform [H, E] and the output bias [V]."""
        config = self.config.of_masked_lm_head()
        self.transform = Dense(
            config,
            config.embedding_size,
            config.hidden_act,
            name="transform",
            dtype=self.dtype_policy,
        )
        self.transform.build((None, None, config.hidden_size))
        self.layer_norm = LayerNorm(
            config, name="layer_norm", dtype=self.dtype_policy
        )
        self.layer_norm.build((None, None, config.embedding_size))
        self.output_bias = self.add_bias("output_bias", config.vocab_size)

    def call(self, sequence_output: Any, positions: Any, words: Any) -> Any:
        """Computes the logits of every word at each position.

        Args:
          sequence_output: float [B, S, H].
          positions: int32 [B, P], each in 0..S-1.
          words: float [V, E], the encoder's word table; E is H in a BERT.

        Returns:
          Logits float32 [B, P, V].
        """
        rows = at_positions(sequence_output, positions)
        rows = ops.reshape(rows, (-1, self.config.hidden_size))
        rows = self.layer_norm(self.transform(rows))
        logits = table_product(rows, self.compute(words))
        logits = ops.cast(logits, "float32") + ops.cast(
            self.output_bias, "float32"
        )
        return ops.reshape(
            logits, (*ops.shape(positions), self.config.vocab_size)
        )

    def part_weights(self) -> list[PartWeights]:
        """The weights of all parts."""
        return [
            *self.transform.part_weights(),
            *self.layer_norm.part_weights(),
            part_of(self.output_bias),
        ]


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(ConfiguredLayer):
    """Two logits from the pooled output: 0 = B follows A, 1 = B is random.

    Source: google-research/bert, run_pretraining.py,
    get_next_sentence_output; its weights are [2, H], used transposed.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the output weights [2, H] and the output bias [2]."""
        self.output_weights = self.add_kernel(
            "output_weights", (2, self.config.hidden_size)
        )
        self.output_bias = self.add_bias("output_bias", 2)

    def call(self, pooled_output: Any) -> Any:
        """Maps float [..., H] to logits float32 [..., 2]."""
        logits = self.project(
            pooled_output, ops.transpose(self.output_weights), self.output_bias
        )
        return ops.cast(logits, "float32")

    def part_weights(self) -> list[PartWeights]:
        """The weights of its one part."""
        return [part_of(self.output_weights, self.output_bias)]


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokensHead(ConfiguredLayer):
    """Computes for each token the logit that a generator replaced it.

    Clark et al. 2020, section 2. Dense with the configuration's activation,
    then a projection to one logit. Source: google-research/electra,
    run_pretraining.py, _get_discriminator_output, which initializes only the
    second kernel as `GlorotDense` does.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the kernels [H, H] and [H, 1] and their biases."""
        config, policy = self.config.without_lora(), self.dtype_policy
        wide = (None, None, config.hidden_size)
        self.transform = Dense(
            config,
            config.hidden_size,
            config.hidden_act,
            name="transform",
            dtype=policy,
        )
        self.transform.build(wide)
        self.score = GlorotDense(config, 1, name="score", dtype=policy)
        self.score.build(wide)

    def call(self, sequence_output: Any, training: bool | None = None) -> Any:
        """Maps float [B, S, H] to logits float32 [B, S]."""
        hidden = self.transform(sequence_output, training=training)
        return ops.cast(self.score(hidden)[..., 0], "float32")

    def part_weights(self) -> list[PartWeights]:
        """The weights of both parts."""
        return [*self.transform.part_weights(), *self.score.part_weights()]
