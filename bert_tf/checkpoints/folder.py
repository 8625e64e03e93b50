"""Reads model folders of every family, and writes three of them."""

import dataclasses
import functools
import importlib
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

from bert_tf.architectures.parts import LABELLED_HEADS, MASKED_LM
from bert_tf.checkpoints.checkpoint import (
    LABELS_FILE,
    Checkpoint,
    check_labels,
    num_labels,
)
from bert_tf.checkpoints.layout import names_of
from bert_tf.checkpoints.recognition import (
    ADAPTER_CONFIG,
    FOUND_IN,
    HUGGING_FACE_CONFIG,
    STATIC_EMBEDDING,
    is_stanford_colbert,
    recognise,
)
from bert_tf.checkpoints.stored import read_stored, stored_as_ours
from bert_tf.checkpoints.task_file import with_task
from bert_tf.checkpoints.tokenizers import tokenizer_kind
from bert_tf.config import MEAN
from bert_tf.errors import UserError, check_choice
from bert_tf.files import written_beside
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.sources import local_folder, transformer_folder
from bert_tf.text.tokenizer_files import read_max_length

WRITTEN = ("bert_tf", "google_tf1", "hugging_face")


def load_checkpoint(
    source: str | os.PathLike,
    merge: bool = True,
    generator: bool = False,
    ignore: str = "",
) -> Checkpoint:
    """Loads the checkpoint of a model folder of any family.

    Names and shapes of the weights are checked; values are read at each access,
    which raises `UserError` on NaN and infinite values.

    Args:
      source: a model folder of ours, Google's (TF1), TensorFlow Model Garden's
        or Hub's, Hugging Face's (also with the layout of sentence-transformers)
        or KerasHub's; or hf://organisation/name, with an optional @revision, or
        keras_hub://preset. The base of a LoRA adapter is loaded with it.
      merge: whether the low-rank matrices of an adapter are added to the
        kernels of its base.
      generator: whether to read the generator of google-research/electra's
        checkpoints (TF1) instead of the discriminator.
      ignore: a regular expression of arrays that are no part of the model, such
        as "^crf"; it is searched in their names.

    Raises:
      UserError: the source is missing, of no known family or of several, or
        its files are damaged or do not fit each other; the base of an adapter
        is missing, has changed or is circular; or there is no generator.
    """
    try:
        re.compile(ignore)
    except (re.error, RecursionError, OverflowError) as error:
        raise UserError(
            f"`ignore`={ignore}: is no regular expression ({error})."
        ) from None
    return _load(source, merge, generator, ignore, ())


def _family(name: str) -> Any:
    """Imports the module of a family, which has `read` and perhaps `write`."""
    name = "own" if name == "bert_tf" else name
    return importlib.import_module(f"bert_tf.checkpoints.{name}")


def _merged(checkpoint: Checkpoint) -> Checkpoint:
    if not checkpoint.config.lora_rank:
        return checkpoint
    from bert_tf.checkpoints.low_rank import merged

    return merged(checkpoint)


def _load(
    source: str | os.PathLike,
    merge: bool,
    generator: bool,
    ignore: str,
    above: tuple[pathlib.Path, ...],
) -> Checkpoint:
    """Loads a checkpoint, or the base of the adapters `above`."""
    folder = transformer_folder(local_folder(source))
    if folder.resolve() in above:
        raise _CircularBase(
            f"{folder}: is the base model of an adapter and leads back to it "
            f"(base_model_name_or_path in {ADAPTER_CONFIG}); name the original "
            "base there."
        )
    family = recognise(folder)
    if family == "adapter":
        base = _open_base(folder, (*above, folder.resolve()))
        found = _family("adapter").read(folder, base, ignore)
        found = _merged(found) if merge else found
    elif generator:
        if family != "google_tf1":
            raise UserError(
                f"`generator`=True: {source} is a folder of {family}, where a "
                "generator has its own folder; name that, without `generator`."
            )
        found = _family("google_tf1").read(folder, ignore, generator)
    else:
        found = _family(family).read(folder, ignore)
    longest = read_max_length(folder)
    if longest is None:
        # That of an adapter's base.
        longest = found.max_seq_length
    if longest is not None:
        longest = min(longest, found.config.longest_input)
    checkpoint = dataclasses.replace(
        found, source=str(source), max_seq_length=longest
    )
    named_in = HUGGING_FACE_CONFIG if family == "hugging_face" else LABELS_FILE
    checkpoint = with_task(checkpoint, folder, named_in)
    _check_labels(checkpoint, f"{folder}")
    rows = checkpoint.config.vocab_size
    kind = tokenizer_kind(checkpoint.config, folder)
    tokenizer = kind.read(folder, rows=rows)
    if tokenizer is not None:
        tokenizer.vocabulary.require_rows(rows, str(folder))
        if family == STATIC_EMBEDDING:
            tokenizer = tokenizer.unframed()
    checkpoint = checkpoint.with_tokenizer(tokenizer)
    if is_stanford_colbert(folder):
        # Few folders are.
        from bert_tf.checkpoints.colbert_files import with_markers

        return with_markers(checkpoint, folder)
    return checkpoint


class _CircularBase(UserError):
    """An adapter is its own base, directly or through others."""


def _open_base(
    folder: pathlib.Path, adapters: tuple[pathlib.Path, ...]
) -> Checkpoint:
    try:
        return _load(
            _family("adapter").base_of(folder), True, False, "", adapters
        )
    except _CircularBase:
        raise
    except UserError as error:
        raise UserError(
            f"{folder}: the base model of this adapter cannot be opened; "
            "restore it, or set base_model_name_or_path in "
            f"{ADAPTER_CONFIG} ({error})"
        ) from None


def save_checkpoint(
    folder: str | os.PathLike,
    checkpoint: Checkpoint,
    to: str = "bert_tf",
    replace: bool = False,
) -> None:
    """Writes a checkpoint to a folder.

    A new folder appears complete or not at all; in an existing folder each file
    does. Low-rank updates (LoRA) are merged into their kernels.

    Args:
      folder: the folder, created if missing.
      checkpoint: the checkpoint. Its vocabulary is written with the rules of
        the tokenizer; without one, existing files of a tokenizer are kept.
      to: the layout: bert_tf, google_tf1 or hugging_face.
      replace: whether weights of this layout are replaced; those of bert_tf
        always are.

    Raises:
      UserError: the layout is unknown or cannot represent this checkpoint;
        arrays, vocabulary or labels do not fit the configuration; the
        tokenizer has other rules; or the folder holds other weights.
    """
    check_choice("`to`", to, WRITTEN)
    tokenizer = checkpoint.tokenizer
    if tokenizer is not None and tokenizer.other_rules:
        raise UserError(
            f"{tokenizer.other_rules[:-1]}, which the written folder would not "
            "have. Write only the weights, with vocabulary=None."
        )
    if to != "bert_tf":
        if not checkpoint.config.num_hidden_layers:
            raise UserError(
                f"{checkpoint.source}: {to} has no place for a model without "
                "layers; write bert_tf."
            )
        _check_masked_lm_head(checkpoint, to)
        if checkpoint.config.bilstm:
            raise UserError(
                f"{checkpoint.source}: {to} has no place for a BiLSTM (bilstm "
                "is true); write bert_tf."
            )
        config = checkpoint.config
        if config.classifier_pooling == MEAN and not config.states_pooling:
            raise UserError(
                f"{checkpoint.source}: the pooler of {to} reads the first "
                "token, and that of this model the mean of all "
                "(classifier_pooling); write bert_tf, or fine-tune with "
                "classifier_pooling=cls."
            )
        if config.attention_size != config.hidden_size:
            raise UserError(
                f"{checkpoint.source}: {to} has no place for "
                f"{config.num_attention_heads} attention heads of "
                f"{config.attention_head_size} in a model of "
                f"{config.hidden_size} (attention_head_size); write bert_tf."
            )
    checkpoint = _merged(_checked(checkpoint))
    replace = replace or to == "bert_tf"
    _save(pathlib.Path(folder), checkpoint, to, _family(to).write, replace)


def save_adapter(
    folder: str | os.PathLike, checkpoint: Checkpoint, base: Checkpoint
) -> None:
    """Writes a LoRA adapter to a folder, as `save_checkpoint` does.

    Args:
      folder: the folder, created if missing.
      checkpoint: a model with low-rank updates and one head of a task.
      base: the model that was adapted; its `source` is written.

    Raises:
      UserError: arrays do not fit the configuration, or the folder holds other
        weights.
    """
    write = functools.partial(_family("adapter").write, base=base)
    _save(pathlib.Path(folder), _checked(checkpoint), "adapter", write)


def _save(
    folder: pathlib.Path,
    checkpoint: Checkpoint,
    to: str,
    write: Callable[[pathlib.Path, Checkpoint], None],
    replace: bool = True,
) -> None:
    def write_all(target: pathlib.Path) -> None:
        write(target, checkpoint)
        if to == "hugging_face":
            # `write` has written the tokenizer for transformers.
            (target / LABELS_FILE).unlink(missing_ok=True)
        elif checkpoint.tokenizer is not None:
            length = checkpoint.max_seq_length
            longest = checkpoint.config.longest_input
            checkpoint.tokenizer.save(
                target, None if length == longest else length
            )

    if folder.exists():
        _refuse_other_weights(folder, to if replace else "")
        write_all(folder)
        return
    with written_beside(folder) as beside:
        beside.mkdir()
        write_all(beside)


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    config, arrays = checkpoint.config, checkpoint.arrays
    given = LazyArrays(shapes_of_arrays(arrays), arrays.__getitem__)
    source = checkpoint.source
    ours, _ = read_stored(config, stored_as_ours(config), given, (), source)
    if checkpoint.vocabulary is not None:
        checkpoint.vocabulary.require_rows(config.vocab_size, source)
    checkpoint = dataclasses.replace(checkpoint, arrays=ours)
    _check_labels(checkpoint, source)
    return checkpoint


def _check_labels(checkpoint: Checkpoint, source: str) -> None:
    if checkpoint.labels is None:
        return
    check_labels(checkpoint.labels, source)
    rows = [
        num_labels(checkpoint, head)
        for head in LABELLED_HEADS
        if head in checkpoint.heads
    ]
    if len(checkpoint.labels) not in rows:
        there = f"its head has {rows[0]}" if rows else "has no head for labels"
        raise UserError(
            f"{source}: names {len(checkpoint.labels)} labels, but {there}."
        )


def _refuse_other_weights(folder: pathlib.Path, replaced: str) -> None:
    for name, found_in in FOUND_IN.items():
        # Our own files are replaced, as at the end of a run.
        if found_in(folder) and name != replaced:
            raise UserError(
                f"{folder}: holds weights of {name} already; choose another "
                "folder."
            )


def _check_masked_lm_head(checkpoint: Checkpoint, to: str) -> None:
    config = checkpoint.config
    head = config.of_masked_lm_head()
    forms = [(c.hidden_act, c.layer_norm_eps) for c in (head, config)]
    expected = forms[1]
    if to == "hugging_face":
        only = names_of(config).hugging_face.masked_lm_act
        expected = only or config.hidden_act, config.layer_norm_eps
    if MASKED_LM in checkpoint.heads and forms[0] != expected:
        raise UserError(
            f"{checkpoint.source}: {to} cannot hold a masked LM head of "
            f"{forms[0][0]} and epsilon {forms[0][1]} on an encoder of "
            f"{forms[1][0]} and {forms[1][1]}, as KerasHub makes them; write "
            f"bert_tf, or leave the head out (`drop_heads`={MASKED_LM})."
        )
