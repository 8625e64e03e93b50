"""The model that is trained: an encoder and the modules of its folder."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from bert_tf.checkpoints import POOLER, Checkpoint
from bert_tf.checkpoints.sentence_files import write_sentence_modules
from bert_tf.families.sentence_embedding.config import EmbeddingConfig
from bert_tf.families.sentence_embedding.objective import VECTORS
from bert_tf.families.sentence_vectors import SentenceVectors
from bert_tf.families.task_model import TaskModel
from bert_tf.features import INPUT_MASK

# A key of batches: the tokens of each text's prompt, int32 [B, K].
PROMPT_LENGTHS = "prompt_lengths"


class EmbeddingModel(TaskModel):
    """Computes the vectors of K texts in each row, float32 [B, K, D].

    Args:
      network: from the encoder's inputs, int32 [R, S], to vectors of tokens.
      config: changes the modules of the folder that is restored.
    """

    in_checkpoint: ClassVar[bool] = False
    layout: ClassVar[str] = "hugging_face"

    def __init__(self, network: keras.Model, config: EmbeddingConfig):
        super().__init__(network, "embedding_model")
        self.config = config

    def call(
        self,
        batch: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
    ) -> dict[str, Any]:
        """Runs the model on a batch of inputs [B, K, S]; see the class."""
        del return_all_layers
        shape = tf.shape(batch[INPUT_MASK.name])
        rows = {
            name: tf.reshape(batch[name], [-1, shape[2]])
            for name in self.network.input
        }
        vectors = self.sentence_vectors(
            self.network(rows, training=training),
            rows[INPUT_MASK.name],
            prompt_length=tf.reshape(batch[PROMPT_LENGTHS], [-1]),
        )
        counts = batch[INPUT_MASK.name].shape[:2]
        size = [shape[n] if c is None else c for n, c in enumerate(counts)]
        return {VECTORS: tf.reshape(vectors, [*size, vectors.shape[1]])}

    def restore(self, source: Checkpoint, fresh: Sequence[str] = ()) -> None:
        """Assigns the encoder's weights, and builds the modules."""
        # No vector depends on the pooler.
        unread = () if POOLER in source.heads else (POOLER,)
        super().restore(source, (*fresh, *unread))
        self.sentence_vectors = SentenceVectors(self.config.modules(source))

    def save_beside(self, folder: pathlib.Path) -> None:
        """Writes the modules as sentence-transformers does."""
        write_sentence_modules(
            folder,
            self.sentence_vectors.trained_modules,
            self.encoder.config.hidden_size,
        )
