"""Reads and writes Hugging Face's model folders, as transformers does.

config.json             the architecture and the names of labels
model.safetensors       the weights; or model.safetensors.index.json of several
                        files; or a file of another format or framework, see
                        hugging_face_files.py
tokenizer_config.json   with other files of the architecture's tokenizer, for
                        AutoTokenizer

Dense kernels are [out, in]. Names of the encoder's arrays start with `bert.`,
except in a plain BertModel; old files name weight and bias of a layer
normalisation gamma and beta.

In a causal model (is_decoder) transformers pools the first token, which attends
only to itself, and we pool the last: its pooler is not read, and neither a
pooler nor a head on it is written.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.architecture_list import find_architecture
from bert_tf.architectures.parts import (
    CLASSIFIER,
    HEADS_ON_POOLER,
    LABELLED_HEADS,
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    TASK_HEADS,
    HuggingFaceForm,
    Kind,
)
from bert_tf.checkpoints.array_file import write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint, num_labels
from bert_tf.checkpoints.hugging_face_files import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    open_weights,
)
from bert_tf.checkpoints.labels import (
    default_labels,
    read_labels,
    read_problem_type,
)
from bert_tf.checkpoints.layout import all_parts, head_shapes, names_of
from bert_tf.checkpoints.pytorch_names import as_pytorch, saved_class
from bert_tf.checkpoints.recognition import is_stanford_colbert
from bert_tf.checkpoints.stored import (
    Stored,
    read_stored,
    refuse_projection,
    without_prefix,
    write_stored,
)
from bert_tf.checkpoints.tensorflow_reader import TRAINING_STATE
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, check_choice
from bert_tf.files import write_text
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.progress import log, log_once
from bert_tf.recipe import read_json_object

# transformers' activations.py: all but "gelu" and "gelu_python" are the tanh
# form. The first name of each is written.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_WRITTEN_ACTIVATIONS = {
    ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())
}
# Name of several heads, distinguished by `architectures` in config.json.
_SHARED_NAME = "classifier"


def _sharing(config: BertConfig) -> list[str]:
    """Returns the heads that are named `classifier`."""
    return [
        head
        for head, parts in names_of(config).heads.items()
        if head in TASK_HEADS and parts[-1].hugging_face == _SHARED_NAME
    ]


def _other_heads(config: BertConfig, head: str | None) -> set[str]:
    """Returns our names of parts whose names belong to another head.

    Args:
      config: the architecture.
      head: the head of `classifier.weight`, or None.
    """
    heads = names_of(config).heads
    present = {MASKED_LM} if head is None else {head}
    if head in HEADS_ON_POOLER:
        present.add(POOLER)
    taken = {part.hugging_face for h in present for part in heads.get(h, ())}
    return {
        part.ours
        for other, parts in heads.items()
        if other not in present
        for part in parts
        if part.hugging_face in taken or parts[-1].hugging_face in taken
    } | {
        part.ours
        for other in _sharing(config)
        if other != head
        for part in heads[other]
    }


def read_config(values: Mapping[str, Any], path: pathlib.Path) -> BertConfig:
    """Returns our configuration of the values in config.json.

    Keys without effect on the computation are ignored.

    Raises:
      UserError: the architecture or a value is not supported.
    """
    model_type = values.get("model_type", BertConfig.model_type)
    form = find_architecture(model_type, str(path)).names.hugging_face
    try:
        values = form.flat_keys(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    for key, only in form.fixed.items():
        if values.get(key, only) != only:
            raise UserError(
                f"{path}: {key} is {values[key]!r}; {only!r} can be read."
            )
    ours = {
        field: values.get(key, default)
        for key, (field, default) in form.keys.items()
    }
    act = ours["hidden_act"]
    check_choice(f"{path}: {_activation_key(form)}", act, _ACTIVATIONS)
    ours["hidden_act"] = _ACTIVATIONS[act]
    # A decoder differs only in its causal mask.
    ours["causal"] = values.get("is_decoder", False)
    ours["model_type"] = model_type
    try:
        return BertConfig.from_dict(ours, str(path))
    except UserError as error:
        named = str(error).startswith(str(path))
        raise error if named else UserError(f"{path}: {error}") from None


def _activation_key(form: HuggingFaceForm) -> str:
    """Returns the key of config.json for `hidden_act`."""
    return next(
        key for key, (field, _) in form.keys.items() if field == "hidden_act"
    )


def word_tables(config: BertConfig | type[BertConfig]) -> tuple[str, str]:
    """Returns the word table's names with and without the body's prefix."""
    names = names_of(config)
    whole = f"{names.embeddings[0].hugging_face}.weight"
    return whole, whole.removeprefix(names.hugging_face.prefix)


def read(folder: pathlib.Path, ignore: str = "") -> Checkpoint:
    """Reads the configuration, the weights and the labels."""
    path = folder / CONFIG_FILE
    values = read_json_object(path)
    config = read_config(values, path)
    source = str(folder)
    stored = without_prefix(open_weights(folder), word_tables(config), source)
    # The config.json with weights that Keras saved may be of the initial model,
    # of another class.
    if saved := saved_class(stored, type(config)):
        values = {**values, "architectures": [saved]}
    classes = values.get("architectures")
    found = as_pytorch(stored, type(config), classes, source)
    if is_stanford_colbert(folder):
        # `colbert_files.py` reads the projection of the tokens' vectors.
        shapes = {n: s for n, s in found.shapes.items() if n != "linear.weight"}
        found = LazyArrays(shapes, found.__getitem__)
    shared = None
    if f"{_SHARED_NAME}.weight" in found:
        shared = _shared_head(config, values, path)
    names = names_of(config)
    form = names.hugging_face
    ignored: tuple[str, ...] = (
        rf"({re.escape(form.prefix)})?embeddings\.position_ids",
        re.escape(form.words_copy),
        re.escape(form.bias_copy),
        form.unread,
        *TRAINING_STATE,
    )
    words, _ = word_tables(config)
    whole = words in found
    for part in names.embeddings_project:
        start = "" if whole else form.prefix
        name = f"{part.hugging_face}.weight".removeprefix(start)
        refuse_projection(config, name, found, source)
    table = stored_as_theirs(
        config,
        shared,
        whole,
        old_norms=any(name.endswith("LayerNorm.gamma") for name in found),
        bias=form.bias if form.bias in found else form.bias_copy,
    )
    if config.causal:
        ignored += _leave_pooler_out(config, table, found, source)
    untied = _leave_untied_out(config, table, found, values, source)
    ignored += untied
    arrays, left_out = read_stored(
        config, table, found, ignored, source, ignore
    )
    checkpoint = Checkpoint(config, arrays, left_out=left_out)
    act = form.masked_lm_act
    if act not in ("", config.hidden_act) and MASKED_LM in checkpoint.heads:
        config = dataclasses.replace(config, masked_lm_act=act)
        checkpoint = dataclasses.replace(checkpoint, config=config)
    _check_heads(checkpoint, values, path, {MASKED_LM} if untied else set())
    labelled = [head for head in LABELLED_HEADS if head in checkpoint.heads]
    if not labelled:
        return checkpoint
    rows = num_labels(checkpoint, labelled[0])
    checkpoint = dataclasses.replace(
        checkpoint, labels=read_labels(values, rows, path)
    )
    if CLASSIFIER not in labelled:
        return checkpoint
    problem_type = read_problem_type(values, path)
    return dataclasses.replace(checkpoint, problem_type=problem_type)


def _leave_pooler_out(
    config: BertConfig, table: dict[str, Stored], found: LazyArrays, source: str
) -> tuple[str, ...]:
    """Removes the pooler of a causal model from the table.

    Returns:
      Regular expressions of its names in the files.

    Raises:
      UserError: there is a head on it.
    """
    heads = head_shapes(config)
    for head in HEADS_ON_POOLER:
        if any(n in table and table[n].name in found for n in heads[head]):
            raise UserError(
                f"{source}: is_decoder is true, and its {head} scores the "
                "first token, which attends only to itself; ours scores the "
                "last, so it cannot be read."
            )
    names = [table.pop(ours).name for ours in heads.get(POOLER, ())]
    if any(name in found for name in names):
        log(
            f"{source}: its pooler is left out: it reads the first token, "
            "which attends only to itself (is_decoder); ours reads the last."
        )
    return tuple(map(re.escape, names))


def _check_heads(
    checkpoint: Checkpoint,
    values: Mapping[str, Any],
    path: pathlib.Path,
    left_out: set[str],
) -> None:
    """Refuses weights that lack a head of their class."""
    there = left_out.union(checkpoint.heads)
    given = values.get("architectures")
    form = names_of(checkpoint.config).hugging_face
    for name in given if isinstance(given, list) else ():
        heads = form.classes.get(name, ()) if isinstance(name, str) else ()
        absent = [head for head in heads if head not in there]
        if absent:
            raise UserError(
                f"{path}: architectures is {json.dumps(given)}, but the "
                f"weights hold no {' and no '.join(absent)}; they are "
                f'incomplete, or it should be ["{form.body}"].'
            )


def _shared_head(
    config: BertConfig, values: Mapping[str, Any], path: pathlib.Path
) -> str:
    """Returns the head of `classifier.weight`."""
    given = values.get("architectures")
    sharing = {
        name: head
        for name, heads in names_of(config).hugging_face.classes.items()
        for head in heads
        if head in _sharing(config)
    }
    named = [
        name for name in sharing if isinstance(given, list) and name in given
    ]
    if len(named) != 1:
        raise UserError(
            f"{path}: architectures is {json.dumps(given)}, but the weights "
            f"hold {_SHARED_NAME}.weight; it must name the class that they "
            f"were saved from, one of {', '.join(sharing)}."
        )
    return sharing[named[0]]


def _leave_untied_out(
    config: BertConfig,
    table: dict[str, Stored],
    found: LazyArrays,
    values: Mapping[str, Any],
    source: str,
) -> tuple[str, ...]:
    """Removes a masked LM head with output weights of its own from the table.

    Returns:
      Regular expressions of its names in the files; empty if there is none.
    """
    form = names_of(config).hugging_face
    head = [ours for ours in head_shapes(config)[MASKED_LM] if ours in table]
    words = next((name for name in word_tables(config) if name in found), "")
    reason = ""
    for copy, original in (
        (form.words_copy, words),
        (form.bias_copy, form.bias),
    ):
        both = copy in found and original in found
        if both and not np.array_equal(found[copy], found[original]):
            reason = f"{copy} differs from {original}"
    untied = values.get("tie_word_embeddings", True) is False
    if untied and form.words_copy not in found:
        reason = (
            f"tie_word_embeddings is false in {CONFIG_FILE}, but the weights "
            f"hold no {form.words_copy}"
        )
    if not reason or all(table[ours].name not in found for ours in head):
        return ()
    log_once(
        f"{source}: its masked LM head is left out: {reason}, and output "
        "weights are the word embeddings here. Encoders and tasks do not need "
        "it; bert-tf pretrain trains a new one."
    )
    return tuple(re.escape(table.pop(ours).name) for ours in head)


def stored_as_theirs(
    config: BertConfig,
    head: str | None,
    whole: bool = True,
    old_norms: bool = False,
    bias: str = "",
) -> dict[str, Stored]:
    """Returns how transformers stores each of our arrays.

    Args:
      config: the architecture.
      head: the head of `classifier.weight`, or None.
      whole: whether names have the body's prefix.
      old_norms: whether layer normalisations have a gamma and a beta.
      bias: the name of the masked LM's output bias; empty for the default.
    """
    names = names_of(config)
    form = names.hugging_face
    norm = (".gamma", ".beta") if old_norms else (".weight", ".bias")
    ends = {
        Kind.NORM: norm,
        Kind.SCALE: norm,
        Kind.VECTOR: ("",),
        Kind.LOW_RANK: (".lora_A.weight", ".lora_B.weight"),
    }
    unread = _other_heads(config, head)
    table = {}
    for part in all_parts(config):
        if part.ours in unread:
            continue
        stem = part.hugging_face
        if part in names.heads.get(POOLER, ()):
            stem = form.poolers.get(str(head), stem)
        if not whole:
            stem = stem.removeprefix(form.prefix)
        for (name, shape), end in zip(
            part.shapes(config).items(),
            ends.get(part.kind, (".weight", ".bias")),
            strict=False,
        ):
            kinds = (Kind.DENSE, Kind.KERNEL, Kind.LOW_RANK)
            kernel = part.kind in kinds and len(shape) > 1
            table[name] = Stored(
                stem + end, shape[::-1] if kernel else shape, kernel
            )
    (name,) = names.heads[MASKED_LM][-1].shapes(config)
    if name in table:
        table[name] = dataclasses.replace(table[name], name=bias or form.bias)
    return table


def write(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes a folder for AutoModel and AutoTokenizer.

    A pooler is written even for classes without one, which ignore it, but not
    under the name of a layer that they have for another head.

    Raises:
      UserError: no class of transformers has all heads, or a causal model has a
        pooler.
    """
    config, name = checkpoint.config, _class_of(checkpoint)
    tokenizer = checkpoint.tokenizer
    if config.causal and POOLER in checkpoint.heads:
        pooled = [POOLER, *HEADS_ON_POOLER]
        there = [head for head in pooled if head in checkpoint.heads]
        raise UserError(
            f"{checkpoint.source}: causal is true: transformers pools the "
            "first token, which attends only to itself; write bert_tf, or "
            f"leave out the {' and '.join(there)} "
            f"(`drop_heads`={','.join(there)})."
        )
    form = names_of(config).hugging_face
    if form.projects and config.embedding_size == config.hidden_size:
        raise UserError(
            f"{checkpoint.source}: embedding_size is hidden_size, "
            f"{config.hidden_size}, and transformers projects such embeddings; "
            "write bert_tf."
        )
    padding = form.fixed.get("pad_token_id", 0)
    if tokenizer is not None:
        pad_id = tokenizer.vocabulary.packing.pad_id
        if pad_id != form.fixed.get("pad_token_id", pad_id):
            raise UserError(
                f"{checkpoint.source}: its tokenizer pads with token {pad_id}, "
                f"but transformers pads a {config.model_type} with token "
                f"{padding}; write bert_tf."
            )
        padding = pad_id
    values: dict[str, Any] = {
        "architectures": [name],
        "model_type": config.model_type,
        **{key: getattr(config, f) for key, (f, _) in form.keys.items()},
        _activation_key(form): _WRITTEN_ACTIVATIONS[config.hidden_act],
        "is_decoder": config.causal,
        "pad_token_id": padding,
    }
    head = next((h for h in form.classes[name] if h in TASK_HEADS), None)
    if head in LABELLED_HEADS:
        labels = checkpoint.labels or default_labels(
            num_labels(checkpoint, head)
        )
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        values["label2id"] = {name: i for i, name in enumerate(labels)}
    if head == CLASSIFIER and checkpoint.problem_type is not None:
        # Selects softmax, sigmoid or neither in transformers' pipelines.
        values["problem_type"] = checkpoint.problem_type
    table = stored_as_theirs(config, head, whole=name != form.body)
    shapes = shapes_of_arrays(checkpoint.arrays)
    pooler = head_shapes(config).get(POOLER, {}).keys() & shapes.keys()
    pooler -= table.keys()
    if pooler:
        log(
            f"{checkpoint.source}: its pooler is left out: {name} of "
            "transformers has none."
        )
        shapes = {n: s for n, s in shapes.items() if n not in pooler}
    held = LazyArrays(shapes, checkpoint.arrays.__getitem__)
    arrays = write_stored(held, table)
    # transformers requires this entry.
    write_arrays(folder / WEIGHTS_FILE, arrays, {"format": "pt"})
    text = json.dumps(values, ensure_ascii=False, indent=2)
    write_text(folder / CONFIG_FILE, text + "\n")
    if tokenizer is not None:
        tokenizer.save_hugging_face(
            folder, checkpoint.max_seq_length or config.longest_input
        )


def _class_of(checkpoint: Checkpoint) -> str:
    heads = set(checkpoint.heads) - {POOLER}
    classes = names_of(checkpoint.config).hugging_face.classes
    fitting = [name for name, held in classes.items() if heads == set(held)]
    if not fitting:
        raise UserError(
            f"{checkpoint.source}: no class of transformers holds "
            f"{', '.join(sorted(heads))} together; drop heads until one is "
            f"left, or {MASKED_LM} and {NEXT_SENTENCE}."
        )
    return fitting[0]
