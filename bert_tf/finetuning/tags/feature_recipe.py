"""The settings of taggers on the features of a frozen encoder."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.finetuning.tags.tag_recipe import TagRecipe
from bert_tf.recipe import setting

# Where the tagger is kept, in the folder of a model.
TAGGER_FILE = "tagger.safetensors"
# Devlin et al. 2019, table 7, in its order.
EMBEDDINGS, SECOND_TO_LAST, LAST = "embeddings", "second_to_last", "last"
WEIGHTED_SUM_LAST_FOUR = "weighted_sum_last_four"
CONCAT_LAST_FOUR = "concat_last_four"
WEIGHTED_SUM_ALL = "weighted_sum_all"
FEATURES = (
    EMBEDDINGS,
    SECOND_TO_LAST,
    LAST,
    WEIGHTED_SUM_LAST_FOUR,
    CONCAT_LAST_FOUR,
    WEIGHTED_SUM_ALL,
)


@dataclasses.dataclass(frozen=True)
class FeatureRecipe(TagRecipe):
    """What taggers on a frozen encoder add.

    The paper tells the tagger's form alone; rate, epochs and dropout are what
    such taggers are usually trained with.
    """

    learning_rate: float = setting(1e-3, "peak learning rate")
    num_train_epochs: float = setting(10.0, "passes over the training examples")
    features: str = setting(
        CONCAT_LAST_FOUR,
        f"what the tagger is given of each word: {', '.join(FEATURES)}",
    )
    lstm_units: int = setting(768, "width of each direction of both layers")
    tagger_dropout: float = setting(
        0.5, "dropout of what goes into each layer of the tagger"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("features", self.features in FEATURES, FEATURES)
        self._check("lstm_units", self.lstm_units >= 1, "1 or more")
        good = 0 <= self.tagger_dropout < 1
        self._check("tagger_dropout", good, "0 up to below 1")
        unused = ("freeze_layers", "layer_decay", "ensemble", "rematerialize")
        for name in unused:
            value = getattr(self, name)
            if value != getattr(FeatureRecipe, name):
                raise UserError(
                    f"{name}={value}: is of no use with features of a frozen "
                    "encoder; leave it out."
                )
