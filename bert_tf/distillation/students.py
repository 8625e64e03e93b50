"""The student of a distillation, before it has learnt anything."""

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
    """A student for a teacher, with the teacher's vocabulary.

    Args:
      settings: how large it is.
      teacher: what it is to learn from.
      seed: of new weights.

    Raises:
      UserError: the settings say nothing, layers that the teacher lacks, or an
        architecture that the teacher's layers do not fit.
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
    """A BERT as a DistilBERT, which computes the same of a first segment.

    The row of that segment is added to every position. The pooler, whose
    activation is another one, is left out with the heads on it.
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
