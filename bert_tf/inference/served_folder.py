"""Opens a model folder as a model of text, and describes it for model.json.

The task.json of a fine-tuning states how a model with a head is used. Without
it, as in folders of transformers, Google's code and Model Garden, the usage is
derived from the checkpoint's head, labels, problem_type and lengths, and from
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
from bert_tf.checkpoints.sentence_modules import MultiVectorModules
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
    read_config_as,
    restore_read_heads,
    task_of,
    text_tokenizer,
)
from bert_tf.families.text_model import TextModel
from bert_tf.families.usage_options import (
    EMBEDDINGS,
    FILL_MASK,
    NO_OPTIONS,
    UsageOptions,
)
from bert_tf.layers.initialization import assigned_later
from bert_tf.recipe import read_json_object
from bert_tf.sources import local_folder, read_module_list
from bert_tf.text.tokenizer_protocol import Tokenizer


def served_model(
    folder: str | os.PathLike,
    precision: str = "float32",
    merge: bool = True,
    options: UsageOptions = NO_OPTIONS,
) -> TextModel:
    """Opens a model folder as a model of text.

    Args:
      folder: a folder of `bert-tf finetune`, a fine-tuned model of another
        program, or a pre-trained model of any family.
      precision: a Keras dtype policy. The encoder's weights are stored in its
        compute dtype.
      merge: see `load_checkpoint`.
      options: how the model is used, where its folder does not state it.

    Raises:
      UserError: the folder is no model, has no vocabulary, or has unsupported
        tokenizer settings; or see `usage_of`.
    """
    checkpoint = load_checkpoint(folder, merge)
    tokenizer = text_tokenizer(checkpoint, options.split_special_tokens)
    modules = config = activation = None
    if task_of(folder) is None or read_module_list(local_folder(folder)):
        # With a task.json, other descriptions than modules are ignored.
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
        # A model with modules computes vectors, whatever heads it has.
        check_pretrained(f"`folder`={folder}", checkpoint, options)
    dtype = keras.dtype_policies.get(precision).compute_dtype
    if config is None:
        # Not imported for fine-tuned models.
        from bert_tf.families.pretrained.answers import open_pretrained
        from bert_tf.families.pretrained.settings import Settings

        fills_masks = checkpoint.fills_masks and options.task != EMBEDDINGS
        length = options.max_seq_length
        if modules is None:
            length = length or checkpoint.max_seq_length
        elif length is not None:
            length = min(length, modules.max_seq_length)
        settings = Settings(max_seq_length=length or 0)
        if isinstance(modules, MultiVectorModules):
            from bert_tf.families.pretrained.late_interaction import (
                open_late_interaction,
            )

            return open_late_interaction(
                checkpoint, tokenizer, dtype, settings, modules
            )
        return open_pretrained(
            checkpoint, tokenizer, fills_masks, dtype, settings, modules
        )
    # A pooler that the head does not read is optional.
    unread = () if config.reads_pooler else (POOLER,)
    with assigned_later():
        encoder = encoder_class(checkpoint.config)(
            checkpoint.config, dtype=dtype
        )
        network = config.build(encoder)
        restore_read_heads(network, checkpoint, *unread)
    answers: Any = part_of(type(config), "answers")
    served = answers.MODEL(network, tokenizer, config)
    if activation is not None and not served.labels:
        served.activation = activation
    return served


def _scored_pairs(
    folder: str | os.PathLike, checkpoint: Checkpoint, activation: str
) -> str:
    """Returns the task of a CrossEncoder, which scores pairs of texts."""
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
    """Returns the task configuration of a model folder.

    Args:
      folder: the model folder.
      checkpoint: its checkpoint.
      options: the caller's options.
      tokenizer: the model's tokenizer.

    Returns:
      The configuration of the head's family, read from task.json or derived;
      None for a pre-trained model without a task head.

    Raises:
      UserError: the folder has several heads, or its head does not match its
        task.json; or an option does not apply to the model or contradicts its
        folder.
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
    packing = tokenizer.packing
    check_segments(place, checkpoint.config, packing, config.texts_per_row)
    return config


def check_pretrained(
    place: str, checkpoint: Checkpoint, options: UsageOptions
) -> None:
    """Raises `UserError` for options that need a model with a task head.

    Args:
      place: the folder, for errors.
      checkpoint: its checkpoint.
      options: the caller's options.
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
    """Raises `UserError` for options that contradict task.json."""
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


# Smallest shares of tokens for a script to be listed: of the English
# vocabularies 0.03 % begin in Cyrillic and 2 % are Chinese characters; of the
# multilingual one 0.1 % are Burmese, which it was trained on, and 13 % Chinese.
_SHARE, _CHINESE_SHARE = 0.0005, 0.05


def describe_model(served: TextModel) -> dict[str, Any]:
    """Describes a model for model.json, without None values."""
    vocabulary = served.tokenizer.vocabulary
    config, activation = served.config, served.activation
    temperature = served.calibration_temperature
    values = {
        "task": served.task,
        "labels": list(served.labels) or None,
        "threshold": served.threshold,
        "calibration_temperature": None if temperature == 1 else temperature,
        "activation": None if activation == "linear" else activation,
        "prompts": dict(served.prompts) or None,
        "default_prompt_name": served.default_prompt_name,
        "max_seq_length": served.max_seq_length,
        "num_hidden_layers": config.num_hidden_layers if config else None,
        "hidden_size": config.hidden_size if config else None,
        "num_parameters": sum(
            int(w.shape.num_elements()) for w in served.weights
        ),
        "tokenizer": vocabulary.title,
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
    """Returns the scripts of a vocabulary, most frequent first.

    The script of a token is that of its first letter, by its Unicode name,
    such as Latin or Cyrillic. Every vocabulary has single letters of many
    scripts, so only tokens of two or more letters count, and Chinese
    characters only above a larger share.
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
    """Describes the training of a folder of `bert-tf finetune`.

    Args:
      folder: a model folder.

    Returns:
      Values for JSON: fine_tuned_for, the task; and for a finished training
      init_from, the name of the initial model's folder; main_metric; scores, by
      dev split; num_examples, by split. Empty if the folder was not fine-tuned.

    Raises:
      UserError: task.json or results.json is malformed.
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
        # Only the name, without the path.
        "init_from": pathlib.Path(results.get("model", "")).name,
        "main_metric": results.get("main_metric"),
        "scores": results.get("dev"),
        "num_examples": results.get("examples"),
    }
