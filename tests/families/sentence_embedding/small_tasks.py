"""Tasks of sentence embeddings without files."""

from typing import Any

from bert_tf.families.sentence_embedding.files import EmbeddingFiles
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe
from bert_tf.families.sentence_embedding.task import EmbeddingTask


def embedding_task(
    target: str = "", **settings: Any
) -> tuple[EmbeddingTask, EmbeddingRecipe]:
    """A task of pairs and its recipe."""
    task = EmbeddingTask(
        name="embedding",
        data=EmbeddingFiles(),
        losses=("multiple_negatives",),
        target=target,
        main_metric="mrr@10",
    )
    return task, EmbeddingRecipe(task="embedding", **settings)
