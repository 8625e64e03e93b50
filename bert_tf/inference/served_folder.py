"""A model folder as a model that takes text, and what model.json states of it.

How a model with a head is used, the task.json of a fine-tuning states. Where
there is none, as in folders of transformers, Google's code and Model Garden, it
follows from the checkpoint's head, labels, problem_type and lengths, and from
the caller's `UsageOptions`.
"""

import collections
import dataclasses
import os
import pathlib
import unicodedata
from collections.abc import Sequence
from typing import Any

import keras

from bert_tf.checkpoints import (
    CLASSIFIER,
    POOLER,
    TASK_HEADS,
    Checkpoint,
    load_checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.families import config_type, part_of
from bert_tf.families.config import (
    HeadInFolder,
    TaskConfig,
    check_length,
    check_segments,
)
from bert_tf.families.model_folder import (
    RESULTS_FILE,
    TASK_FILE,
    folder_tokenizer,
    read_config_as,
    restore_read_heads,
    task_of,
)
from bert_tf.families.text_model import TextModel
from bert_tf.families.usage_options import (
    EMBEDDINGS,
    FILL_MASK,
    NO_OPTIONS,
    UsageOptions,
)
from bert_tf.recipe import read_json_object
from bert_tf.text.tokenizer_protocol import Tokenizer


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
        that no tokenizer here follows; or see `usage_of`.
    """
    checkpoint = load_checkpoint(folder, merge)
    checkpoint.require_tokenizer(f"`folder`={folder}")
    tokenizer = folder_tokenizer(folder)
    modules = config = activation = None
    if task_of(folder) is None:
        # A folder with a task.json states nothing else.
        from bert_tf.checkpoints.sentence_files import (
            read_cross_encoder,
            read_sentence_modules,
        )

        if options.task in (None, EMBEDDINGS):
            modules = read_sentence_modules(checkpoint)
        if modules is None:
            activation = read_cross_encoder(checkpoint)
        if activation is not None and options.task is None:
            task = _scored_pairs(folder, checkpoint, activation)
            options = dataclasses.replace(options, task=task)
    if modules is None:
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
    check_segments(place, checkpoint.config, config.num_segments)
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


# Least shares of the tokens by which a script is named: of the English
# vocabularies 0.03 % begin in Cyrillic and 2 % are Chinese characters; of the
# multilingual one 0.1 % are Burmese, which it was trained on, and 13 % Chinese.
_SHARE, _CHINESE_SHARE = 0.0005, 0.05


def describe_model(served: TextModel) -> dict[str, Any]:
    """What is known of a model, for model.json: values, None left out."""
    vocabulary = served.tokenizer.vocabulary
    config = served.config
    values = {
        "task": served.task,
        "labels": list(served.labels) or None,
        "threshold": served.threshold,
        "activation": None
        if served.activation == "linear"
        else served.activation,
        "prompts": dict(served.prompts) or None,
        "default_prompt_name": served.default_prompt_name,
        "max_seq_length": served.max_seq_length,
        "num_hidden_layers": config.num_hidden_layers if config else None,
        "hidden_size": config.hidden_size if config else None,
        "num_parameters": sum(
            int(w.shape.num_elements()) for w in served.weights
        ),
        "vocab_size": len(vocabulary),
        "mask_token": vocabulary.special.mask,
        "lower_case": served.tokenizer.lower_case,
        "scripts": scripts_of(vocabulary.texts),
        "beside": {
            name: describe_model(other) for name, other in served.beside.items()
        }
        or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def scripts_of(texts: Sequence[str]) -> list[str]:
    """The scripts of a vocabulary, the commonest first.

    The script of a token is that of its first letter, by its Unicode name,
    such as Latin or Cyrillic. Every vocabulary has single letters of many
    scripts: what counts is tokens of two or more, and Chinese characters only
    where there are many.
    """
    counts: collections.Counter[str] = collections.Counter()
    for letters in texts:
        if not letters[:1].isalpha():
            continue
        script = unicodedata.name(letters[0], "UNKNOWN").split()[0]
        if script == "CJK" or len(letters) > 1:
            counts[script] += 1
    total = counts.total()
    return [
        "Chinese" if script == "CJK" else script.capitalize()
        for script, count in counts.most_common()
        if count >= total * (_CHINESE_SHARE if script == "CJK" else _SHARE)
    ]


def describe_training(folder: str | os.PathLike) -> dict[str, Any]:
    """What tools.run_finetuning left of a model's training in its folder.

    Args:
      folder: a model folder.

    Returns:
      Values for JSON: fine_tuned_for, the task's name; and, of a finished
      training, init_from, the name of the folder that it started from;
      main_metric; scores, by dev split; num_examples, by split. Nothing where
      the folder was not fine-tuned.

    Raises:
      UserError: its task.json or results.json is broken.
    """
    task = task_of(folder)
    if task is None:
        return {}
    path = pathlib.Path(folder) / RESULTS_FILE
    if not path.is_file():
        return {"fine_tuned_for": task}
    results = read_json_object(path)
    return {
        "fine_tuned_for": task,
        # Not where it lies on the machine of the training.
        "init_from": pathlib.Path(results.get("model", "")).name,
        "main_metric": results.get("main_metric"),
        "scores": results.get("dev"),
        "num_examples": results.get("examples"),
    }
