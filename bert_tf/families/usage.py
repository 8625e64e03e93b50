"""How a model with a head is used: which texts it takes and what it answers.

The task.json of a fine-tuning states it. Where there is none, as in folders of
transformers, Google's code and Model Garden, it follows from the checkpoint's
head, labels, problem_type and lengths, and from the caller's `UsageOptions`.
"""

import os

from bert_tf.checkpoints import (
    TASK_HEADS,
    Checkpoint,
)
from bert_tf.errors import UserError
from bert_tf.families import config_type
from bert_tf.families.config import HeadInFolder, TaskConfig, check_length
from bert_tf.families.model_folder import TASK_FILE, read_config_as, task_of
from bert_tf.families.usage_options import (
    EMBEDDINGS,
    FILL_MASK,
    UsageOptions,
)
from bert_tf.text.tokenizer_protocol import Tokenizer


def usage_of(
    folder: str | os.PathLike,
    checkpoint: Checkpoint,
    options: UsageOptions,
    tokenizer: Tokenizer,
) -> TaskConfig | None:
    """How the model in a folder is used.

    Args:
      folder: the model folder.
      checkpoint: what `load_checkpoint` read from it.
      options: what the caller states.
      tokenizer: that of the model.

    Returns:
      The config of the head's family, read from task.json or derived; None of
      a pre-trained model, which has no head of a task.

    Raises:
      UserError: the folder has several heads, or a head and a task.json that
        do not belong together; or an option does not apply to the model, or
        contradicts what its folder states.
    """
    place = f"`folder`={folder}"
    heads = [head for head in checkpoint.heads if head in TASK_HEADS]
    if len(heads) > 1:
        raise UserError(
            f"{place}: has the heads {', '.join(heads)}; it takes a model of "
            "one task."
        )
    head = heads[0] if heads else None
    trained_for = task_of(folder)
    if head is None and trained_for is not None:
        raise UserError(
            f"{place}: was fine-tuned for {trained_for}, whose model has no "
            "head on the encoder (a tagger on its features, for example) and "
            "cannot be served; fine-tune the encoder itself."
        )
    tasks = config_type(head).tasks if head else (FILL_MASK, EMBEDDINGS)
    if options.task is not None and options.task not in tasks:
        has = f"its head is a {head}" if head else "it has no head of a task"
        raise UserError(
            f"`task`={options.task}: {folder} cannot be used for it: {has}, "
            f"which takes {' or '.join(tasks) or 'no `task`'}."
        )
    if head is None:
        check_pretrained(place, checkpoint, options)
        return None
    if trained_for is not None:
        config = read_config_as(folder, config_type(head))
        _check_agreement(f"{folder}/{TASK_FILE}", config, options)
        return config
    found = HeadInFolder(place, checkpoint, options, tokenizer)
    config = config_type(head).of_head(found)
    if config.num_segments > checkpoint.config.segment_limit:
        raise UserError(
            f"{place}: type_vocab_size is {checkpoint.config.type_vocab_size}, "
            "so it cannot tell the two texts of a row apart, which "
            f"{config.task} needs."
        )
    return config


def check_pretrained(
    place: str, checkpoint: Checkpoint, options: UsageOptions
) -> None:
    """Refuses options that a model without a head of a task does not take.

    Args:
      place: the folder, for errors.
      checkpoint: what it holds.
      options: what the caller states.

    Raises:
      UserError: there is such an option.
    """
    if options.task == FILL_MASK and not checkpoint.fills_masks:
        raise UserError(
            f"`task`={FILL_MASK}: {place} has no masked-LM head that reads "
            f"both sides of a mask; it takes {EMBEDDINGS}."
        )
    for name in ("labels", "threshold"):
        if name in options.given:
            raise UserError(
                f"{options.shown(name)}: {place} was not "
                "fine-tuned for a task and has no labels; leave it out."
            )
    check_length(place, checkpoint, options, 3)


def _check_agreement(
    source: str, config: TaskConfig, options: UsageOptions
) -> None:
    """Refuses options that differ from what task.json states."""
    stated = config.stated()
    for name, given in options.given.items():
        if name in stated and given != stated[name]:
            there = stated[name]
            if name == "labels":
                there = ",".join(there)
            there = "none" if there in (None, "") else there
            raise UserError(
                f"{options.shown(name)}: {source} states how this model is "
                f"used, with {name} {there}; leave it out."
            )
