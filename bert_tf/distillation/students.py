"""Creates the untrained student of a distillation."""

import dataclasses

import keras
import numpy as np

from bert_tf.architecture_list import find_architecture
from bert_tf.architectures.distilbert import DistilBertConfig
from bert_tf.checkpoints import (
    HEADS_ON_POOLER,
    POOLER,
    Checkpoint,
    head_shapes,
)
from bert_tf.checkpoints.pruned import keep_layers
from bert_tf.config import BertConfig
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.teacher_settings import StudentSettings, layer_numbers

_TYPES = "bert/embeddings/token_type_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"


def make_student(
    settings: StudentSettings, teacher: Checkpoint, seed: int
) -> Checkpoint:
    """Creates a student with the vocabulary of its teacher.

    Args:
      settings: its size, or the layers of the teacher that it copies.
      teacher: the teacher.
      seed: of new weights.

    Raises:
      UserError: empty settings, layers that the teacher does not have, or an
        architecture that does not fit the teacher's layers.
    """
    config = teacher.config
    kind = type(config)
    if settings.architecture:
        found = find_architecture(settings.architecture, "`architecture`")
        kind = found.config
    if settings.size:
        config = kind.from_size(settings.size, config.vocab_size)
        keras.utils.set_random_seed(seed)
        arrays = encoder_class(config)(config).to_arrays()
        return dataclasses.replace(
            teacher, config=config, arrays=arrays, labels=None
        )
    if not settings.layers:
        raise UserError(
            "give the student: `size`, `layers` of the teacher, or a model as "
            "`init_from`."
        )
    layers = layer_numbers("layers", settings.layers, config.num_hidden_layers)
    student = keep_layers(teacher, layers)
    if kind is type(config):
        return student
    if (type(config), kind) != (BertConfig, DistilBertConfig):
        raise UserError(
            f"`architecture`={settings.architecture}: the layers of a "
            f"{config.model_type} do not fit it; leave it out, or give `size`."
        )
    return _as_distilbert(student)


def _as_distilbert(checkpoint: Checkpoint) -> Checkpoint:
    """Converts a BERT to a DistilBERT with the same output for segment 0.

    The embedding of segment 0 is added to every position embedding. The pooler,
    which has another activation, and the heads on it are left out.
    """
    old, arrays = checkpoint.config, checkpoint.arrays
    config = DistilBertConfig(**{**vars(old), "type_vocab_size": 0})
    dropped = {_TYPES}
    for head in (POOLER, *HEADS_ON_POOLER):
        dropped.update(head_shapes(old)[head])

    def read(name: str) -> np.ndarray:
        if name == _POSITIONS:
            return arrays[name] + arrays[_TYPES][0]
        return arrays[name]

    shapes = shapes_of_arrays(arrays)
    kept = {name: s for name, s in shapes.items() if name not in dropped}
    return dataclasses.replace(
        checkpoint, config=config, arrays=LazyArrays(kept, read)
    )
