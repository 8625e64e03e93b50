"""Sum of word, segment and position embeddings."""

from typing import Any

import keras
from keras import ops

from bert_tf.compat import take_rows
from bert_tf.layers.base import ConfiguredLayer, Dense, LayerNorm
from bert_tf.layers.part_weights import PartWeights, part_of


def lookup(table: Any, ids: Any) -> Any:
    """Gathers rows of a table so that the table's gradient is dense.

    On TensorFlow the gradient of a gather is IndexedSlices, which Keras'
    clipping and optimizers square row by row although rows repeat; a reshape
    to the same shape makes it a tensor.

    Args:
      table: float [V, H].
      ids: int32 [B, S].

    Returns:
      float [B, S, H].
    """
    return take_rows(ops.reshape(table, table.shape), ids)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(ConfiguredLayer):
    """Sums word, segment and position embeddings; layer norm and dropout.

    Devlin et al. 2019, figure 2. The sum is computed in float32.
    """

    # Whether positions are embedded.
    has_positions = True

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the tables [V, E], [types, E] if any, and [positions, E]."""
        config = self.config
        width = config.embedding_size
        self.word_table = self.add_kernel(
            "word_embeddings", (config.vocab_size, width)
        )
        if config.type_vocab_size:
            self.type_table = self.add_kernel(
                "token_type_embeddings", (config.type_vocab_size, width)
            )
        if self.has_positions:
            self.position_table = self.add_kernel(
                "position_embeddings", (config.max_position_embeddings, width)
            )
        self.layer_norm = LayerNorm(
            config, name="layer_norm", dtype=self.dtype_policy
        )
        self.layer_norm.build((None, None, width))
        self.dropout = self.make_dropout(config.hidden_dropout_prob)

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        position_ids: Any = None,
        training: bool | None = None,
        word_embeddings: Any = None,
    ) -> Any:
        """Embeds a batch.

        Args:
          input_ids: int32 [B, S].
          segment_ids: int32 [B, S].
          position_ids: int32 [B, S]; None means 0..S-1 in every row.
          training: whether dropout is active.
          word_embeddings: float [B, S, E], instead of rows of the word table.

        Returns:
          float [B, S, E] in the compute dtype; E is embedding_size, which is
          H in a BERT.
        """
        if word_embeddings is None:
            word_embeddings = lookup(self.word_table, input_ids)
        embedded = ops.cast(word_embeddings, "float32")
        if self.config.type_vocab_size:
            # A one-hot product: the gradient of a gather from so few rows is
            # a scatter in which all tokens collide.
            segments = ops.one_hot(
                segment_ids, self.config.type_vocab_size, dtype="float32"
            )
            types = ops.cast(self.type_table, "float32")
            embedded = embedded + ops.matmul(segments, types)
        if self.has_positions:
            positions = self._positions(input_ids, position_ids)
            embedded = embedded + ops.cast(positions, "float32")
        normalised = self.layer_norm(embedded)
        return self.compute(self.dropout(normalised, training=training))

    def _positions(self, input_ids: Any, position_ids: Any) -> Any:
        first = self.config.first_position
        if position_ids is not None:
            return lookup(self.position_table, position_ids + first)
        end = first + ops.shape(input_ids)[1]
        return ops.convert_to_tensor(self.position_table)[first:end]

    def part_weights(self) -> list[PartWeights]:
        """The weights of all parts."""
        tables = [self.word_table]
        if self.config.type_vocab_size:
            tables.append(self.type_table)
        if self.has_positions:
            tables.append(self.position_table)
        return [*map(part_of, tables), *self.layer_norm.part_weights()]


@keras.saving.register_keras_serializable(package="bert_tf")
class FactorizedEmbeddings(Embeddings):
    """Embeddings of width E, and a dense layer to H if E is not H.

    Lan et al. 2020, section 3.1.
    """

    # Initializes the dense layer.
    project_class: type[Dense] = Dense

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the tables, and the kernel [E, H] and the bias [H]."""
        super().build(input_shape)
        self._build_project()

    def build_sharing(self, other: Embeddings) -> None:
        """Shares the tables and layer norm of other embeddings.

        For a generator, which shares those of its discriminator.

        Args:
          other: embeddings of the same sizes, except for H.
        """
        self.word_table = other.word_table
        self.type_table = other.type_table
        self.position_table = other.position_table
        self.layer_norm = other.layer_norm
        self.dropout = self.make_dropout(self.config.hidden_dropout_prob)
        self._build_project()
        self.built = True

    def _build_project(self) -> None:
        # Only blocks have low-rank updates.
        config, self.project_to_hidden = self.config.without_lora(), None
        if config.embedding_size != config.hidden_size:
            self.project_to_hidden = self.project_class(
                config,
                config.hidden_size,
                name="embeddings_project",
                dtype=self.dtype_policy,
            )
            self.project_to_hidden.build((None, None, config.embedding_size))

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        position_ids: Any = None,
        training: bool | None = None,
        word_embeddings: Any = None,
    ) -> Any:
        """Embeds a batch as `Embeddings` does: float [B, S, H]."""
        embedded = super().call(
            input_ids, segment_ids, position_ids, training, word_embeddings
        )
        if self.project_to_hidden is None:
            return embedded
        return self.project_to_hidden(embedded, training=training)

    def part_weights(self) -> list[PartWeights]:
        """The weights of all parts."""
        parts = super().part_weights()
        if self.project_to_hidden is not None:
            parts += self.project_to_hidden.part_weights()
        return parts
