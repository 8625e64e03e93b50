"""ELECTRA (Clark et al. 2020): a BERT whose embeddings may be narrower."""

from typing import Any

import keras

from bert_tf.architectures.electra import ElectraConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import Embeddings, GlorotDense
from bert_tf.layers.part_weights import PartWeights


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraEmbeddings(Embeddings):
    """Embeddings of width E, and a dense layer to H if E is not H.

    Source: google-research/electra, modeling.py, BertModel.
    """

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
            self.project_to_hidden = GlorotDense(
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


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraEncoder(BertEncoder):
    """The discriminator's or generator's encoder of Clark et al. 2020.

    A `BertEncoder` of an `ElectraConfig`: embeddings and word_embeddings have
    its embedding_size, and pooled_output is dropout and a dense layer with GELU
    on the first token, as in transformers' classifiers. A pre-trained ELECTRA
    has none; it is initialized randomly.
    """

    config_class = ElectraConfig
    embeddings_class = ElectraEmbeddings
