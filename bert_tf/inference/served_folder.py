"""What a model folder becomes when it is served."""

import dataclasses
import os
from typing import Any

import keras

from bert_tf.checkpoints import (
    CLASSIFIER,
    POOLER,
    Checkpoint,
    load_checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.sentence_files import (
    read_cross_encoder,
    read_sentence_modules,
)
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.families import part_of
from bert_tf.families.model_folder import (
    folder_tokenizer,
    restore_read_heads,
    task_of,
)
from bert_tf.families.text_model import TextModel
from bert_tf.families.usage import check_pretrained, usage_of
from bert_tf.families.usage_options import (
    EMBEDDINGS,
    NO_OPTIONS,
    UsageOptions,
)


def served_model(
    folder: str | os.PathLike,
    precision: str = "float32",
    merge: bool = True,
    options: UsageOptions = NO_OPTIONS,
) -> TextModel:
    """Opens a model folder as a model that takes text.

    Args:
      folder: what tools.run_finetuning left, a fine-tuned model of another
        program, or a pre-trained model of any family.
      precision: a Keras dtype policy. The encoder's weights are held in the
        dtype that it computes in.
      merge: see `load_checkpoint`.
      options: how the model is used, where its folder does not state it.

    Raises:
      UserError: the folder is no model, has no vocabulary, or asks for rules
        that `BertTokenizer` does not follow; or see `usage_of`.
    """
    checkpoint = load_checkpoint(folder, merge)
    if checkpoint.vocabulary is None:
        raise UserError(
            f"`folder`={folder}: holds no vocabulary; put the vocab.txt that "
            "it was trained with into the folder."
        )
    tokenizer = folder_tokenizer(folder)
    modules = config = activation = None
    trained_for = task_of(folder)
    if options.task in (None, EMBEDDINGS) and trained_for is None:
        modules = read_sentence_modules(checkpoint)
    if modules is None:
        if trained_for is None:
            activation = read_cross_encoder(checkpoint)
        if activation is not None and options.task is None:
            task = _scored_pairs(folder, checkpoint, activation)
            options = dataclasses.replace(options, task=task)
        config = usage_of(folder, checkpoint, options, tokenizer)
    else:
        # Such a model gives vectors, whatever else its file holds.
        check_pretrained(f"`folder`={folder}", checkpoint, options)
    dtype = keras.dtype_policies.get(precision).compute_dtype
    if config is None:
        # Whoever asks a fine-tuned model does not load it.
        from bert_tf.families.pretrained.answers import open_pretrained

        fills_masks = checkpoint.fills_masks and options.task != EMBEDDINGS
        length = options.max_seq_length
        if modules is None:
            length = length or checkpoint.max_seq_length
        elif length is not None:
            length = min(length, modules.max_seq_length)
        return open_pretrained(
            folder, checkpoint, fills_masks, dtype, length, modules
        )
    encoder = encoder_class(checkpoint.config)(checkpoint.config, dtype=dtype)
    network = config.build(encoder)
    # A pooler that the head does not read may be missing.
    unread = () if config.reads_pooler else (POOLER,)
    restore_read_heads(network, checkpoint, *unread)
    answers: Any = part_of(type(config), "answers")
    served = answers.text_model(config, network, tokenizer)
    if activation is not None and not served.labels:
        served.activation = activation
    return served


def _scored_pairs(
    folder: str | os.PathLike, checkpoint: Checkpoint, activation: str
) -> str:
    """The task of a CrossEncoder, which scores pairs of texts."""
    if num_labels(checkpoint, CLASSIFIER) == 1:
        return "text_pair_regression"
    if activation == "sigmoid":
        return "text_pair_multi_label_classification"
    if activation != "linear":
        raise UserError(
            f"`folder`={folder}: is a CrossEncoder of several labels with the "
            f"activation {activation}; it takes Identity or Sigmoid."
        )
    return "text_pair_classification"
