"""Model folders of every family: reading and writing named arrays."""

from bert_tf.architectures.parts import (
    BILSTM,
    CLASSIFIER,
    HEADS_ON_POOLER,
    LABELLED_HEADS,
    LORA,
    MASKED_LM,
    MULTIPLE_CHOICE,
    NEXT_SENTENCE,
    POOLER,
    REPLACED_TOKENS,
    SPAN,
    TASK_HEADS,
    TOKEN_CLASSIFIER,
)
from bert_tf.checkpoints.array_file import (
    open_arrays,
    read_arrays,
    write_arrays,
)
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.folder import (
    load_checkpoint,
    save_adapter,
    save_checkpoint,
)
from bert_tf.checkpoints.labels import place_labels
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.checkpoints.recognition import recognise
from bert_tf.checkpoints.tokenizers import load_tokenizer

__all__ = [
    "BILSTM",
    "CLASSIFIER",
    "HEADS_ON_POOLER",
    "LABELLED_HEADS",
    "LORA",
    "MASKED_LM",
    "MULTIPLE_CHOICE",
    "NEXT_SENTENCE",
    "POOLER",
    "REPLACED_TOKENS",
    "SPAN",
    "TASK_HEADS",
    "TOKEN_CLASSIFIER",
    "Checkpoint",
    "head_shapes",
    "load_checkpoint",
    "load_tokenizer",
    "open_arrays",
    "place_labels",
    "read_arrays",
    "recognise",
    "save_adapter",
    "save_checkpoint",
    "write_arrays",
]
