"""A table of static vectors as an encoder without layers."""

from typing import Any

import keras

from bert_tf.architectures.static import StaticConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import Embeddings
from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.embeddings import lookup
from bert_tf.layers.heads import first_tokens
from bert_tf.layers.part_weights import PartWeights, part_of


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenVectors(Embeddings):
    """The vectors of tokens, without positions and layer norm."""

    has_positions = False

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the table [V, H]."""
        config = self.config
        self.word_table = self.add_kernel(
            "word_embeddings", (config.vocab_size, config.hidden_size)
        )

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        position_ids: Any = None,
        training: bool | None = None,
        word_embeddings: Any = None,
    ) -> Any:
        """Looks a batch up; see `Embeddings`."""
        if word_embeddings is None:
            word_embeddings = lookup(self.word_table, input_ids)
        return self.compute(word_embeddings)

    def part_weights(self) -> list[PartWeights]:
        """The table."""
        return [part_of(self.word_table)]


@keras.saving.register_keras_serializable(package="bert_tf")
class MeanPooler(ConfiguredLayer):
    """Leaves the means of sequences as they are."""

    def call(
        self,
        sequence_output: Any,
        positions: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Pools; see `bert_tf.layers.Pooler`."""
        return first_tokens(sequence_output, positions)


@keras.saving.register_keras_serializable(package="bert_tf")
class StaticEncoder(BertEncoder):
    """A `BertEncoder` of a `StaticConfig`.

    sequence_output are the vectors of tokens, pooled_output their mean.
    """

    config: StaticConfig
    config_class = StaticConfig
    embeddings_class = TokenVectors
    pooler_class = MeanPooler
