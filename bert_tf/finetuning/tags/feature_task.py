"""Tagging with features of a frozen encoder, as Devlin et al. 2019, 5.3."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, ClassVar

from bert_tf.checkpoints import Checkpoint
from bert_tf.finetuning.tags.conll_file import TaggedWords
from bert_tf.finetuning.tags.feature_recipe import (
    TAGGER_FILE,
    WEIGHTED_SUM_ALL,
    WEIGHTED_SUM_LAST_FOUR,
    FeatureRecipe,
)
from bert_tf.finetuning.tags.tag_recipe import TagRecipe
from bert_tf.finetuning.tags.tag_task import TagFacts, TagTask
from bert_tf.finetuning.task import Split
from bert_tf.progress import notice

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.task_model import TaskModel

_FOLDER = "features"


@dataclasses.dataclass(frozen=True)
class FeatureFacts(TagFacts):
    """What task.json holds of a tagger on features; see `FeatureRecipe`.

    Attributes:
      features: what the tagger is given of each word.
      lstm_units: width of each direction of both layers.
      tagger_dropout: dropout of what goes into each layer.
    """

    features: str
    lstm_units: int
    tagger_dropout: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTask(TagTask):
    """A `TagTask` whose encoder stays as it is, and is run once.

    Only the tagger is trained. The vectors of the words are kept in the
    folder `features` of the run, which may be deleted afterwards.
    """

    recipe_type: ClassVar[type[FeatureRecipe]] = FeatureRecipe
    facts_type: ClassVar[type[FeatureFacts]] = FeatureFacts
    # An LSTM computes padding too: three times as many words as there are.
    like_lengths: ClassVar[bool] = True
    # None that a checkpoint has.
    head: ClassVar[str] = ""
    own_files: ClassVar[tuple[str, ...]] = (TAGGER_FILE,)

    def facts_of(
        self, recipe: TagRecipe, examples: TaggedWords
    ) -> FeatureFacts:
        """See `Task.facts_of`."""
        assert isinstance(recipe, FeatureRecipe)
        return FeatureFacts(
            **dataclasses.asdict(super().facts_of(recipe, examples)),
            features=recipe.features,
            lstm_units=recipe.lstm_units,
            tagger_dropout=recipe.tagger_dropout,
        )

    def check_model(
        self, initial: Checkpoint, recipe: FeatureRecipe, facts: FeatureFacts
    ) -> None:
        """Refuses encoders of too few layers; tells of a tagger not read."""
        from bert_tf.finetuning.tags.word_features import layers_of

        layers_of(facts.features, initial.config.num_hidden_layers)
        if pathlib.Path(recipe.init_from, TAGGER_FILE).exists():
            notice(
                f"{recipe.init_from}: its tagger is not read; a fresh one is "
                "trained on features of its encoder."
            )

    def shown(
        self,
        name: str,
        split: Split,
        source: Checkpoint,
        facts: FeatureFacts,
        recipe: FeatureRecipe,
        output_dir: pathlib.Path,
    ) -> Split:
        """The sentences as rows of vectors, which are computed later."""
        from bert_tf.finetuning.tags.word_features import (
            FeatureRows,
            FeatureSource,
            layers_of,
        )

        layers = layers_of(facts.features, source.config.num_hidden_layers)
        features = FeatureSource(
            checkpoint=source,
            layers=layers,
            precision=recipe.precision,
            batch_size=recipe.eval_batch_size,
            folder=output_dir / _FOLDER,
        )
        starts = split.examples.sentence_starts
        rows = FeatureRows(features, split.rows, starts, name)
        return dataclasses.replace(split, rows=rows)

    def make_network(self, encoder: Any, facts: TagFacts) -> Any:
        """See `bilstm_tagger`."""
        from bert_tf.finetuning.tags.feature_tagger import bilstm_tagger
        from bert_tf.finetuning.tags.word_features import layers_of

        assert isinstance(facts, FeatureFacts)
        config = encoder.config
        return bilstm_tagger(
            num_layers=len(layers_of(facts.features, config.num_hidden_layers)),
            hidden_size=config.hidden_size,
            num_classes=len(facts.labels),
            weighted=facts.features
            in (WEIGHTED_SUM_LAST_FOUR, WEIGHTED_SUM_ALL),
            units=facts.lstm_units,
            dropout=facts.tagger_dropout,
            dtype=encoder.dtype_policy,
        )

    def make_model(self, encoder: Any, facts: FeatureFacts) -> "TaskModel":
        """See `FeatureTagger`."""
        from bert_tf.finetuning.tags.feature_tagger import FeatureTagger

        network = self.make_network(encoder, facts)
        return FeatureTagger(network, "feature_tagger", encoder)
