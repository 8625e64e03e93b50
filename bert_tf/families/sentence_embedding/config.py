"""`EmbeddingConfig`, the task.json of sentence embeddings."""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bert_tf.checkpoints import Checkpoint
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.checkpoints.sentence_modules import (
    Dense,
    Normalize,
    SentenceModules,
    Step,
)
from bert_tf.config import MEAN, POOLINGS
from bert_tf.errors import UserError, check_choice
from bert_tf.families.config import HeadInFolder, TaskConfig
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe

if TYPE_CHECKING:
    import keras

    from bert_tf.encoders import BertEncoder


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig(TaskConfig):
    """The content of task.json: how the modules of `init_from` were changed.

    Attributes:
      loss: the loss of the training.
      seed: the seed of new weights.
      pooling, dense_size, dense_activation, normalize, query_prompt,
        document_prompt: see `EmbeddingRecipe`.
    """

    loss: str
    seed: int
    pooling: str
    dense_size: int
    dense_activation: str
    normalize: bool
    query_prompt: str
    document_prompt: str

    pipeline_tag: ClassVar[str] = "sentence-similarity"
    # The modules are in files of sentence-transformers.
    head: ClassVar[str] = ""

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Describes any model, whose modules are not changed."""
        modules = read_sentence_modules(head.checkpoint)
        length = modules.max_seq_length if modules else head.length(1, 1)
        recipe = EmbeddingRecipe(max_seq_length=length)
        return cls.of_recipe(recipe, task="embedding", labels=())

    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """Builds a model from the encoder's inputs to vectors of tokens."""
        import keras

        from bert_tf.features import ENCODER_INPUTS

        inputs = {
            each.name: keras.Input([None], dtype=each.dtype, name=each.name)
            for each in ENCODER_INPUTS
        }
        outputs = encoder(inputs, unpadded=unpadded)
        return keras.Model(inputs, outputs["sequence_output"])

    def sample(self) -> dict[str, Any]:
        """A text."""
        return {"text": "A calm sea."}

    def summary(self) -> dict[str, Any]:
        """The loss."""
        return {"loss": self.loss}

    def modules(self, source: Checkpoint) -> SentenceModules:
        """Returns the modules of a model, changed by the settings.

        Those of a trained model are not changed again.

        Raises:
          UserError: the folder's modules do not make one vector of a text, or
            a pooling is unknown.
        """
        found = read_sentence_modules(source)
        hidden_size = source.config.hidden_size
        if found is None:
            # As sentence-transformers.
            found = SentenceModules(
                pooling=(MEAN,),
                include_prompt=True,
                steps=(),
                max_seq_length=self.max_seq_length,
                prompts={"query": "", "document": ""},
            )
        if not isinstance(found, SentenceModules):
            raise UserError(
                f"`init_from`={source.source}: has {found}, which makes more "
                "than one vector of a text, and is not trained here; choose a "
                "model with one."
            )
        pooling = found.pooling
        if self.pooling:
            pooling = tuple(map(str.strip, self.pooling.split(",")))
            for mode in pooling:
                check_choice("`pooling`", mode, POOLINGS)
        steps: list[Step] = list(found.steps)
        width = len(pooling) * hidden_size
        if steps and pooling != found.pooling:
            # A dense layer takes vectors of the old pooling.
            steps = [s for s in steps if not isinstance(s, Dense)]
        dense = [step for step in steps if isinstance(step, Dense)]
        size = self.dense_size
        if size and not (dense and dense[-1].kernel.shape[1] == size):
            if dense:
                width = dense[-1].kernel.shape[1]
            # As torch.nn.Linear.
            reach = 1 / np.sqrt(width)
            random = np.random.default_rng(self.seed)
            new = Dense(
                random.uniform(-reach, reach, (width, size)).astype("float32"),
                random.uniform(-reach, reach, size).astype("float32"),
                self.dense_activation,
            )
            place = steps.index(Normalize()) if Normalize() in steps else None
            steps.insert(len(steps) if place is None else place, new)
        if self.normalize and Normalize() not in steps:
            steps.append(Normalize())
        prompts = {"query": self.query_prompt, "document": self.document_prompt}
        return dataclasses.replace(
            found,
            pooling=pooling,
            steps=tuple(steps),
            max_seq_length=self.max_seq_length,
            prompts={
                **found.prompts,
                **{name: text for name, text in prompts.items() if text},
            },
        )
