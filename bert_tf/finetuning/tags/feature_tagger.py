"""A tagger of two bidirectional LSTM layers on vectors of words."""

import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints import (
    Checkpoint,
    read_arrays,
    write_arrays,
)
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.features import INPUT_MASK
from bert_tf.finetuning.tags.feature_recipe import TAGGER_FILE
from bert_tf.finetuning.tags.word_features import WORD_FEATURES
from bert_tf.finetuning.task_model import TaskModel
from bert_tf.models import model_arrays, restore

_LAYERS = 2


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMix(keras.layers.Layer):
    """The sum of K layers, each times a learned weight.

    The weights are a softmax, so they stay positive and add up to 1; at first
    all are alike.
    """

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the K weights."""
        self.scores = self.add_weight(
            name="scores", shape=(input_shape[2],), initializer="zeros"
        )

    def call(self, layers: Any) -> Any:
        """Maps [B, S, K, H] to [B, S, H]."""
        shares = ops.cast(ops.softmax(self.scores), layers.dtype)
        return ops.sum(layers * shares[:, None], axis=2)


def bilstm_tagger(
    num_layers: int,
    hidden_size: int,
    num_classes: int,
    weighted: bool,
    units: int,
    dropout: float,
    dtype: Any = None,
) -> keras.Model:
    """Puts a two-layer BiLSTM and a classification layer on words.

    Devlin et al. 2019, section 5.3: a randomly initialised two-layer 768-unit
    BiLSTM before the classification layer.

    Args:
      num_layers: K, the layers of the encoder that a word has vectors of.
      hidden_size: H.
      num_classes: number of tags C.
      weighted: whether the K vectors are summed with learned weights; else
        they are put end to end.
      units: width of each direction.
      dropout: of what goes into each layer.
      dtype: Keras dtype policy or its name.

    Returns:
      A Keras model from a dict of word_features float32 [B, S, K, H] and
      input_mask int32 [B, S] to logits float32 [B, S, C].
    """
    inputs = {
        WORD_FEATURES: keras.Input(
            (None, num_layers, hidden_size), name=WORD_FEATURES
        ),
        INPUT_MASK.name: keras.Input(
            (None,), dtype="int32", name=INPUT_MASK.name
        ),
    }
    hidden = inputs[WORD_FEATURES]
    if weighted:
        hidden = LayerMix(name="layer_mix", dtype=dtype)(hidden)
    else:
        flat = keras.layers.Reshape((-1, num_layers * hidden_size), name="flat")
        hidden = flat(hidden)
    mask = ops.not_equal(inputs[INPUT_MASK.name], 0)
    for number in range(_LAYERS):
        hidden = keras.layers.Dropout(
            dropout, name=f"dropout_{number}", dtype=dtype
        )(hidden)
        # By a name of its own, so that weights are called alike everywhere.
        lstm = keras.layers.LSTM(
            units, return_sequences=True, name="lstm", dtype=dtype
        )
        hidden = keras.layers.Bidirectional(
            lstm, name=f"lstm_{number}", dtype=dtype
        )(hidden, mask=mask)
    hidden = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)(hidden)
    dense = keras.layers.Dense(num_classes, dtype="float32", name="tags")
    return keras.Model(inputs, dense(hidden), name="bilstm_tagger")


@keras.saving.register_keras_serializable(package="bert_tf")
class FeatureTagger(TaskModel):
    """A tagger with the frozen encoder that its vectors come from.

    A checkpoint holds the encoder; the tagger is in a file beside it.
    """

    in_checkpoint: ClassVar[bool] = False

    def __init__(
        self, network: keras.Model, name: str, encoder: BertEncoder
    ) -> None:
        encoder.trainable = False
        super().__init__(network, name, encoder)

    def restore(self, source: Checkpoint, fresh: Sequence[str] = ()) -> None:
        """Assigns the encoder's weights."""
        restore(self.encoder, source, fresh)

    def arrays(self) -> dict[str, np.ndarray]:
        """The encoder's weights."""
        return model_arrays(self.encoder)

    def save_beside(self, folder: pathlib.Path) -> None:
        """Writes the tagger."""
        arrays = {
            weight.path: ops.convert_to_numpy(weight).astype(np.float32)
            for weight in self.network.weights
        }
        write_arrays(folder / TAGGER_FILE, arrays)

    def load_beside(self, folder: pathlib.Path) -> None:
        """Reads the tagger.

        Raises:
          UserError: there is none, or it is of another form.
        """
        path = folder / TAGGER_FILE
        arrays = read_arrays(path)
        shapes = {name: array.shape for name, array in arrays.items()}
        wanted = {w.path: tuple(w.shape) for w in self.network.weights}
        if shapes != wanted:
            different = sorted(
                name
                for name in shapes.keys() | wanted.keys()
                if shapes.get(name) != wanted.get(name)
            )
            raise UserError(
                f"{path}: {different[0]} is {shapes.get(different[0])} where "
                f"the model has {wanted.get(different[0])}; it is of another "
                "model."
            )
        for weight in self.network.weights:
            weight.assign(arrays[weight.path])
