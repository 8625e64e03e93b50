"""The variables of google-research's TF1 checkpoints, as named arrays."""

import pathlib

from bert_tf.checkpoints.recognition import find_prefix
from bert_tf.checkpoints.stored import without_prefix
from bert_tf.checkpoints.tensorflow_reader import open_checkpoint
from bert_tf.lazy_arrays import LazyArrays

_WORDS = tuple(
    f"{body}/embeddings/word_embeddings" for body in ("bert", "electra")
)


def open_variables(folder: pathlib.Path) -> tuple[LazyArrays, str]:
    """The variables of a folder by name, and the path of the checkpoint."""
    prefix = find_prefix(folder, object_based=False)
    found = without_prefix(open_checkpoint(prefix), _WORDS, str(prefix))
    return found, str(prefix)
