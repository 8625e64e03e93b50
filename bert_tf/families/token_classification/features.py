"""A tagger of two bidirectional LSTM layers on features of a frozen encoder.

Devlin et al. 2019, section 5.3. The features are computed once and stored in a
file, from which a batch reads its words: the features of CoNLL-2003's training
words take more than a gigabyte.
"""

import dataclasses
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.checkpoints import POOLER, Checkpoint, read_arrays, write_arrays
from bert_tf.checkpoints.layout import encoder_shapes
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError
from bert_tf.families.rows import batches_by_length
from bert_tf.families.task import RunSplit
from bert_tf.families.task_model import TaskModel
from bert_tf.families.token_classification.config import FeatureTaggingConfig
from bert_tf.families.token_classification.entities import sentence_of_words
from bert_tf.families.token_classification.recipe import (
    CONCAT_LAST_FOUR,
    EMBEDDINGS,
    LAST,
    SECOND_TO_LAST,
    TAGGER_FILE,
    WEIGHTED_SUM_ALL,
    WEIGHTED_SUM_LAST_FOUR,
)
from bert_tf.families.token_classification.windows import WordRows
from bert_tf.features import ENCODER_INPUTS, INPUT_MASK
from bert_tf.files import written_beside
from bert_tf.layers.initialization import assigned_later
from bert_tf.models import model_arrays, restore
from bert_tf.progress import Progress
from bert_tf.text.layout import EncodedRows, ragged_range

WORD_FEATURES = "word_features"
_DTYPE = np.float16


def layers_of(features: str, num_blocks: int) -> tuple[int, ...]:
    """Returns the layers of one of `FEATURES`; the embeddings are layer 0.

    Raises:
      UserError: the encoder has fewer.
    """
    last = num_blocks
    last_four = tuple(range(last - 3, last + 1))
    layers = {
        EMBEDDINGS: (0,),
        SECOND_TO_LAST: (last - 1,),
        LAST: (last,),
        WEIGHTED_SUM_LAST_FOUR: last_four,
        CONCAT_LAST_FOUR: last_four,
        WEIGHTED_SUM_ALL: tuple(range(1, last + 1)),
    }[features]
    if features != EMBEDDINGS and layers[0] < 1:
        raise UserError(
            f"features={features}: the encoder has {last} layers, which are "
            "too few; choose others, or a deeper model."
        )
    return layers


@dataclasses.dataclass(frozen=True)
class FeatureRows:
    """N sentences as rows of the features of their W words; see `Rows`.

    Attributes:
      windows: rows of token ids, without tags, to compute the features from.
      run: has the encoder, and the folder and name of the file.
      layers: K layers of the encoder whose outputs are the features.
    """

    windows: WordRows
    run: RunSplit
    layers: tuple[int, ...]

    @functools.cached_property
    def key(self) -> str:
        """A fingerprint of the features."""
        source, precision = self.run.source, self.run.recipe.precision
        config = source.config
        digest = hashlib.sha256(
            repr((self.layers, precision, config.to_dict())).encode()
        )
        arrays = map(source.arrays.__getitem__, encoder_shapes(config))
        for array in itertools.chain(arrays, self.windows.arrays):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The first word of each sentence, and W, int64 [N + 1]."""
        assert isinstance(self.windows.rows, EncodedRows)
        sentence = self.windows.rows.example.numpy()[self.windows.row]
        return np.searchsorted(sentence, np.arange(sentence[-1] + 2))

    @functools.cached_property
    def vectors(self) -> np.ndarray:
        """The features, float16 [W, K, H], computed on first use."""
        name = f"{self.run.name}-{self.key[:16]}.npy"
        path = self.run.output_dir / "features" / name
        if not path.is_file():
            self.write(path)
        return np.load(path, mmap_mode="r")

    def write(self, path: pathlib.Path) -> None:
        """Computes the features of all words and writes a .npy file."""
        windows, compute = self.windows, self._encoder()
        source, batch_size = self.run.source, self.run.recipe.eval_batch_size
        width = source.config.hidden_size
        shape = (len(windows.row), len(self.layers), width)
        with (
            written_beside(path) as partial,
            Progress("features", shape[0], 0, " words") as progress,
        ):
            stored = np.lib.format.open_memmap(partial, "w+", _DTYPE, shape)
            lengths = np.asarray(windows.lengths)
            for chosen in batches_by_length(lengths, batch_size):
                row, position, word = windows.words(chosen)
                indices = tf.stack([row, position], 1)
                vectors = compute(windows.batch(chosen), indices).numpy()
                if not np.isfinite(vectors).all():
                    raise UserError(
                        f"{source.source}: outputs of the encoder "
                        "are not finite; its weights are broken, or it needs "
                        "precision=float32."
                    )
                stored[word.numpy()] = vectors
                progress.update(len(word))
            stored.flush()

    def _encoder(self) -> Callable[..., tf.Tensor]:
        """Maps a batch and indices, int32 [words, 2], to [words, K, H]."""
        with assigned_later():
            source, precision = self.run.source, self.run.recipe.precision
            encoder = encoder_class(source.config)(
                source.config, dtype=precision
            )
            # The features do not depend on the pooler.
            restore(encoder, source, [POOLER])
        specs = {
            feature.name: tf.TensorSpec([None, None], tf.int32)
            for feature in ENCODER_INPUTS
        }
        signature = [specs, tf.TensorSpec([None, 2], tf.int32)]

        # Graphs of different static shapes would round differently.
        @tf.function(input_signature=signature, autograph=False)
        def vectors(
            batch: dict[str, tf.Tensor], indices: tf.Tensor
        ) -> tf.Tensor:
            outputs = encoder(
                batch, training=False, return_all_layers=True, unpadded=True
            )
            hidden = (
                outputs["embedding_output"],
                *outputs["all_encoder_layers"],
            )
            chosen = [tf.gather_nd(hidden[n], indices) for n in self.layers]
            return tf.cast(tf.stack(chosen, axis=1), _DTYPE)

        return vectors

    def labelled(self, tags: np.ndarray | None) -> WordRows:
        """Returns the words of these rows with their tags, if known."""
        row = sentence_of_words(self.starts)
        position = ragged_range(self.lengths)[1].numpy()
        return WordRows(rows=self, row=row, position=position, tags=tags)

    @property
    def lengths(self) -> np.ndarray:
        """Words of each sentence, int64 [N]."""
        return np.diff(self.starts)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What determines every batch, for digests."""
        return (np.frombuffer(self.key.encode(), np.uint8),)

    def batch(self, chosen: Any, width: Any = 0) -> dict[str, tf.Tensor]:
        """Makes a padded batch of some sentences; see `Rows.batch`.

        It holds word_features, float32 [B, S, K, H], and input_mask, int32
        [B, S], 1 = word, 0 = padding.
        """
        lengths = tf.gather(self.lengths.astype(np.int32), chosen)
        longest = tf.reduce_max(lengths)
        shape = [tf.size(lengths), tf.where(tf.equal(width, 0), longest, width)]
        row, position = ragged_range(lengths)
        indices = tf.stack([row, position], 1)
        starts = tf.gather(self.starts.astype(np.int32), chosen)
        # Computed eagerly on first use, even while this is traced.
        with tf.init_scope():
            stored = self.vectors
        # The file may be larger than memory.
        vectors = tf.numpy_function(
            lambda words: stored[words].astype(np.float32),
            [tf.gather(starts, row) + position],
            tf.float32,
        )
        of_word = stored.shape[1:]
        vectors = tf.ensure_shape(vectors, [None, *of_word])
        mask = tf.scatter_nd(indices, tf.ones_like(row), shape)
        shape = [*shape, *of_word]
        return {
            WORD_FEATURES: tf.scatter_nd(indices, vectors, shape),
            INPUT_MASK.name: mask,
        }

    def __len__(self) -> int:
        return len(self.starts) - 1


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMix(keras.layers.Layer):
    """Sums K layers with learned weights.

    The weights are a softmax of K scores, initially equal.
    """

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the K scores."""
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
    config: FeatureTaggingConfig,
    dtype: Any = None,
) -> keras.Model:
    """Builds a two-layer BiLSTM and a classification layer on features.

    Devlin et al. 2019, section 5.3: a randomly initialised two-layer 768-unit
    BiLSTM before the classification layer.

    Args:
      num_layers: K, the layers of the encoder that are features.
      hidden_size: H.
      config: has the C labels, and the size of the tagger.
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
    if config.features in (WEIGHTED_SUM_LAST_FOUR, WEIGHTED_SUM_ALL):
        hidden = LayerMix(name="layer_mix", dtype=dtype)(hidden)
    else:
        flat = keras.layers.Reshape((-1, num_layers * hidden_size), name="flat")
        hidden = flat(hidden)
    mask = ops.not_equal(inputs[INPUT_MASK.name], 0)
    for number in range(2):
        hidden = keras.layers.Dropout(
            config.tagger_dropout, name=f"dropout_{number}", dtype=dtype
        )(hidden)
        # A fixed name, so that weights have the same names in every process.
        lstm = keras.layers.LSTM(
            config.lstm_units, return_sequences=True, name="lstm", dtype=dtype
        )
        hidden = keras.layers.Bidirectional(
            lstm, name=f"lstm_{number}", dtype=dtype
        )(hidden, mask=mask)
    dropout = config.tagger_dropout
    hidden = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)(hidden)
    classes = len(config.labels)
    dense = keras.layers.Dense(classes, dtype="float32", name="tags")
    return keras.Model(inputs, dense(hidden), name="bilstm_tagger")


@keras.saving.register_keras_serializable(package="bert_tf")
class FeatureTagger(TaskModel):
    """A tagger and the frozen encoder that computes its features.

    A checkpoint holds the encoder; a separate file holds the tagger.
    """

    in_checkpoint: ClassVar[bool] = False

    def __init__(
        self, network: keras.Model, name: str, encoder: BertEncoder
    ) -> None:
        encoder.trainable = False
        super().__init__(network, name, encoder)

    def restore(self, source: Checkpoint, fresh: Sequence[str] = ()) -> None:
        """Restores the encoder's weights."""
        restore(self.encoder, source, fresh)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the encoder's weights."""
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
          UserError: the file is missing, or its shapes do not match.
        """
        path = folder / TAGGER_FILE
        arrays = read_arrays(path)
        found = {name: array.shape for name, array in arrays.items()}
        expected = {w.path: tuple(w.shape) for w in self.network.weights}
        for name in sorted(found.keys() | expected.keys()):
            if found.get(name) != expected.get(name):
                raise UserError(
                    f"{path}: {name} is {found.get(name)} where the model has "
                    f"{expected.get(name)}; it is of another model."
                )
        for weight in self.network.weights:
            weight.assign(arrays[weight.path])
