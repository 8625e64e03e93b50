"""Reads and writes the files of sentence-transformers' modules.

modules.json                       the modules; see `bert_tf.sources`
sentence_bert_config.json          max_seq_length of the Transformer
N_Pooling/config.json              the modes of pooling
N_Dense/config.json, weights       a dense layer, linear.weight [out, in]
N_Normalize/                       normalises to length one
N_SpladePooling/config.json        weights of terms from masked-LM logits
N_MultiVectorMask/config.json      the tokens that ColBERT scores
config_sentence_transformers.json  prompts, default_prompt_name, truncate_dim

Read as by sentence-transformers 6.2, from releases since 0.2. Folders of
Stanford's ColBERT have artifact.metadata, and linear.weight among the weights.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.architectures.parts import CLASSIFIER, MASKED_LM
from bert_tf.checkpoints.array_file import write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint, num_labels
from bert_tf.checkpoints.recognition import (
    HUGGING_FACE_WEIGHTS,
    is_stanford_colbert,
)
from bert_tf.checkpoints.sentence_modules import (
    CROSS_ENCODER,
    MULTI_VECTOR,
    SENTENCE_TRANSFORMER,
    SPARSE_ACTIVATIONS,
    SPARSE_ENCODER,
    SPARSE_POOLINGS,
    TORCH_ACTIVATIONS,
    Dense,
    Modules,
    MultiVectorModules,
    Normalize,
    SentenceModules,
    SparseModules,
    Step,
)
from bert_tf.checkpoints.sentence_settings import (
    HINT,
    MIN_LENGTH,
    expect,
    read_size,
    refuse_unknown,
)
from bert_tf.checkpoints.task_file import TASK_FILE, read_task_file
from bert_tf.config import MEAN, POOLINGS
from bert_tf.errors import UserError, check_choice, excerpt, first_few
from bert_tf.files import write_text
from bert_tf.recipe import (
    check_kind,
    read_json_object,
    value_of_key,
)
from bert_tf.sources import (
    MODULES_FILE,
    STATIC_EMBEDDING,
    TRANSFORMER_FILES,
    TRANSFORMERS,
    Module,
    local_folder,
    read_module_list,
    read_transformer_settings,
    transformer_folder,
)

SETTINGS_FILE = "config_sentence_transformers.json"
CONFIG_FILE = "config.json"
# The flags of older files, in the order of concatenation.
_OLD_MODES = {
    f"pooling_mode_{name}": mode
    for name, mode in zip(
        (
            *("cls_token", "max_tokens", "mean_tokens"),
            *("mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"),
        ),
        POOLINGS,
        strict=True,
    )
}
# The default prompts of every SentenceTransformer.
_DEFAULT_PROMPTS = {"query": "", "document": ""}
# All releases have the first, the second those since 5, the others since 6.
_PACKAGE = "sentence_transformers.models"
_SPARSE_PACKAGE = "sentence_transformers.sparse_encoder.models"
_PACKAGE_6 = "sentence_transformers.base.modules"
_PACKAGES = {
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules"
}
# Modules without effect at inference.
_WITHOUT_EFFECT = ("Dropout",)
_TOKENS, _SENTENCE = "token_embeddings", "sentence_embedding"
# Arguments without effect on the result.
_HARMLESS_ARGUMENTS = frozenset(
    ("attn_implementation", "device_map", "dtype", "torch_dtype", "revision")
)


def read_sentence_modules(checkpoint: Checkpoint) -> Modules | None:
    """Reads the modules of a checkpoint's folder.

    Returns:
      The modules; None without modules, or for a CrossEncoder.

    Raises:
      UserError: a file is malformed, or a module is not supported.
    """
    folder = local_folder(checkpoint.source)
    if is_stanford_colbert(folder):
        # Few folders are.
        from bert_tf.checkpoints.colbert_files import read_stanford

        return read_stanford(checkpoint, folder)
    modules = read_module_list(folder)
    if modules is None:
        return None
    path = folder / SETTINGS_FILE
    settings = read_json_object(path, missing_ok=True)
    kind = settings.get("model_type", SENTENCE_TRANSFORMER)
    if kind == CROSS_ENCODER:
        return None
    check_choice(f"{path}: model_type", kind, _ORDERS, f". {HINT[:-1]}")
    _check_order(modules, kind, folder / MODULES_FILE)
    length = positions = checkpoint.config.longest_input
    is_static = modules[0].kind == STATIC_EMBEDDING
    if not is_static:
        task, output = "feature-extraction", "last_hidden_state"
        if kind == SPARSE_ENCODER:
            task, output = "fill-mask", "logits"
        place, transformer = _read_transformer(modules[0].folder, task, output)
        stated = value_of_key(transformer, "max_seq_length", int, place)
        if stated is not None and stated < MIN_LENGTH:
            raise UserError(
                f"{place}: max_seq_length is {stated}; it takes {MIN_LENGTH} "
                "or more."
            )
        length = stated or checkpoint.max_seq_length or positions
    prompts = _read_prompts(settings, path)
    default = value_of_key(settings, "default_prompt_name", str, str(path))
    if default is not None and default not in prompts:
        raise UserError(
            f"{path}: default_prompt_name is {excerpt(default)}; the prompts "
            f"are {first_few(list(prompts))}."
        )
    common: dict[str, Any] = {
        "max_seq_length": min(length, positions),
        "prompts": prompts,
        "default_prompt_name": default,
        "similarity": value_of_key(
            settings, "similarity_fn_name", str, str(path)
        ),
    }
    size = checkpoint.config.hidden_size
    if kind == MULTI_VECTOR:
        from bert_tf.checkpoints.colbert_files import read_lengths, read_mask

        mask = next(m for m in modules if m.kind == "MultiVectorMask")
        return MultiVectorModules(
            **common,
            **read_mask(mask.folder / CONFIG_FILE, checkpoint),
            **read_lengths(transformer, place, checkpoint),
            steps=_read_steps(modules[1:], size, _TOKENS),
        )
    if kind == SPARSE_ENCODER:
        if MASKED_LM not in checkpoint.heads:
            raise UserError(
                f"{folder}: is a {SPARSE_ENCODER} and has no masked LM head "
                "with the weights of the word table; restore it."
            )
        return SparseModules(
            **common,
            **_read_splade(modules[1].folder / CONFIG_FILE),
            vocab_size=checkpoint.config.vocab_size,
            max_active_dims=read_size(settings, "max_active_dims", path),
        )
    modes: tuple[str, ...] = (MEAN,)
    include_prompt = True
    if not is_static:
        modes, include_prompt = _read_pooling(modules[1].folder / CONFIG_FILE)
    return SentenceModules(
        **common,
        pooling=modes,
        include_prompt=include_prompt,
        steps=_read_steps(modules[1:], len(modes) * size, _SENTENCE),
        truncate_dim=read_size(settings, "truncate_dim", path),
    )


def _read_steps(
    modules: Sequence[Module], size: int, name: str
) -> tuple[Step, ...]:
    """Reads Dense and Normalize modules on vectors of a given size.

    Args:
      modules: modules, also of other kinds.
      size: the size of the vectors.
      name: what the modules read and write, `_TOKENS` or `_SENTENCE`.
    """
    steps: list[Step] = []
    for module in modules:
        if module.kind not in ("Dense", "Normalize"):
            continue
        path = module.folder / CONFIG_FILE
        # Older releases write no files for Normalize.
        is_optional = module.kind == "Normalize"
        values = read_json_object(path, missing_ok=is_optional)
        for key in ("module_input_name", "module_output_name"):
            expect(values, key, name, path)
        if module.kind == "Normalize":
            refuse_unknown(values, (), path)
            steps.append(Normalize())
            continue
        dense = _read_dense(module.folder, values, size)
        size = dense.kernel.shape[1]
        steps.append(dense)
    return tuple(steps)


# The modules of each kind of folder: the one that must follow the Transformer,
# or be among the others, and those that may.
_ORDERS = {
    SENTENCE_TRANSFORMER: ("Pooling", ("Dense", "Normalize", *_WITHOUT_EFFECT)),
    SPARSE_ENCODER: ("SpladePooling", ()),
    MULTI_VECTOR: ("MultiVectorMask", ("Dense", "Normalize")),
}


def _check_order(
    modules: tuple[Module, ...], model_type: str, path: pathlib.Path
) -> None:
    """Refuses unknown modules and modules in another order."""
    kinds = [module.kind for module in modules]
    is_static = (
        kinds[0] == STATIC_EMBEDDING and model_type == SENTENCE_TRANSFORMER
    )
    if not is_static and kinds[0] not in TRANSFORMERS:
        raise UserError(
            f"{path}: module 0 is a {kinds[0]}; it takes a Transformer or a "
            f"{STATIC_EMBEDDING}."
        )
    required, others = _ORDERS[model_type]
    for number, kind in enumerate(kinds[1:], start=1):
        if kind not in (required, *others):
            raise UserError(
                f"{path}: module {number} is a {kind}, which is not supported; "
                f"it takes {', '.join((required, *others))}. {HINT}"
            )
        # The mask of a MultiVectorEncoder does not change vectors.
        is_placed = model_type == MULTI_VECTOR or number == 1
        is_only = kinds.count(kind) == 1 and not is_static
        if kind == required and not (is_placed and is_only):
            raise UserError(
                f"{path}: module {number} is a {kind}; a Transformer is "
                f"followed by one {kind}, and then by the others; a "
                f"{STATIC_EMBEDDING} has none."
            )
    if required not in kinds and not is_static:
        raise UserError(f"{path}: has no {required} behind the Transformer.")


def _read_transformer(
    folder: pathlib.Path, task: str, output: str
) -> tuple[str, dict[str, Any]]:
    """Checks a Transformer's settings and returns their file and values.

    Args:
      folder: its folder.
      task: the only supported transformer_task.
      output: what it reads of the model's outputs.
    """
    path, values = read_transformer_settings(folder)
    expect(values, "transformer_task", task, path)
    expect(values, "module_output_name", _TOKENS, path)
    modalities = value_of_key(values, "modality_config", dict, str(path))
    if modalities is not None:
        text = {"method": "forward", "method_output_name": output}
        expect(modalities, "text", text, path)
    for key in ("model", "config", "tokenizer"):
        for name in (f"{key}_args", f"{key}_kwargs"):
            given = value_of_key(values, name, dict, str(path)) or {}
            odd = [key for key in given if key not in _HARMLESS_ARGUMENTS]
            if odd:
                raise UserError(
                    f"{path}: {name} has {first_few(odd)}, which is not "
                    f"supported; leave it out. {HINT}"
                )
    for name in ("processor_kwargs", "processing_kwargs"):
        expect(values, name, {}, path)
    return str(path), values


def _read_splade(path: pathlib.Path) -> dict[str, Any]:
    values = read_json_object(path)
    sizes = ("embedding_dimension", "word_embedding_dimension")
    keys = {
        "pooling_strategy": ("pooling", SPARSE_POOLINGS),
        "activation_function": ("activation", SPARSE_ACTIVATIONS),
    }
    refuse_unknown(values, (*keys, *sizes), path)
    found = {}
    for key, (field, choices) in keys.items():
        found[field] = values.get(key, choices[0])
        check_choice(f"{path}: {key}", found[field], choices)
    return found


def _read_pooling(path: pathlib.Path) -> tuple[tuple[str, ...], bool]:
    values = read_json_object(path)
    named = ("pooling_mode", "embedding_dimension", "word_embedding_dimension")
    unread = [key for key in values if not key.startswith("pooling_mode_")]
    refuse_unknown(dict.fromkeys(unread), (*named, "include_prompt"), path)
    given = values.get("pooling_mode")
    if given is None:
        flags = {
            key: value_of_key(values, key, bool, str(path))
            for key in values
            if key.startswith("pooling_mode_")
        }
        given = [key for key, flag in flags.items() if flag]
        if unknown := [key for key in given if key not in _OLD_MODES]:
            raise UserError(
                f"{path}: {unknown[0]} is true, which is not supported; it "
                f"takes {', '.join(_OLD_MODES)}. {HINT}"
            )
        modes = [mode for key, mode in _OLD_MODES.items() if flags.get(key)]
        given = modes or [MEAN]
    modes = [given] if isinstance(given, str) else given
    if not isinstance(modes, list) or not modes:
        raise UserError(
            f"{path}: pooling_mode is {excerpt(given)}; it takes one of "
            f"{', '.join(POOLINGS)}, or a list of them."
        )
    for mode in modes:
        check_choice(f"{path}: pooling_mode", mode, POOLINGS, f". {HINT[:-1]}")
    include_prompt = value_of_key(values, "include_prompt", bool, str(path))
    return tuple(modes), include_prompt is not False


def _read_dense(
    folder: pathlib.Path, values: Mapping[str, Any], size: int
) -> Dense:
    path, sized = folder / CONFIG_FILE, ("in_features", "out_features")
    named = (*sized, "bias", "activation_function", "use_residual")
    refuse_unknown(values, named, path)
    sizes = [check_kind(k, int, values.get(k), str(path)) for k in sized]
    if sizes[0] != size:
        raise UserError(
            f"{path}: in_features is {sizes[0]}, but the previous module "
            f"outputs vectors of {size}."
        )
    has_bias = value_of_key(values, "bias", bool, str(path)) is not False
    use_residual = value_of_key(values, "use_residual", bool, str(path)) is True
    shapes = {"linear.weight": tuple(sizes[::-1])}
    if has_bias:
        shapes["linear.bias"] = (sizes[1],)
    if use_residual and sizes[0] != sizes[1]:
        shapes["residual.weight"] = tuple(sizes[::-1])
    # Most folders have no Dense module.
    from bert_tf.checkpoints.hugging_face_files import open_weights

    found = open_weights(folder)
    if found.shapes != shapes:
        described = [f"{n} {list(s)}" for n, s in sorted(found.shapes.items())]
        expected = [f"{n} {list(s)}" for n, s in shapes.items()]
        raise UserError(
            f"{folder}: its weights are {first_few(described) or 'none'}; "
            f"{CONFIG_FILE} requires {', '.join(expected)}."
        )
    arrays: dict[str, np.ndarray] = {}
    for name in shapes:
        # Kernels are stored [out, in].
        array = np.asarray(found[name], np.float32).T
        arrays[name] = np.ascontiguousarray(array)
        if not np.isfinite(array).all():
            raise UserError(
                f"{folder}: {name} holds NaN or infinite numbers; the file is "
                "damaged."
            )
    return Dense(
        arrays["linear.weight"],
        arrays.get("linear.bias"),
        read_activation(values, "activation_function", "Tanh", path),
        use_residual,
        arrays.get("residual.weight"),
    )


def read_activation(
    values: Mapping[str, Any], key: str, default: str, path: pathlib.Path
) -> str:
    """Returns the activation that a file names as a class of torch.

    `default` is the class without the key. The result is one of the values of
    `TORCH_ACTIVATIONS`.

    Raises:
      UserError: it is another class.
    """
    given = values.get(key, f"torch.nn.{default}")
    package, _, name = str(given).rpartition(".")
    if package.split(".")[0] != "torch" or name not in TORCH_ACTIVATIONS:
        raise UserError(
            f"{path}: {key} is {excerpt(given)}, which is not supported; it "
            f"takes {', '.join(TORCH_ACTIVATIONS)} of torch.nn."
        )
    return TORCH_ACTIVATIONS[name]


def read_cross_encoder(checkpoint: Checkpoint) -> str | None:
    """Returns the activation of the scores of a CrossEncoder.

    task.json of a ranking names it; sentence-transformers in its settings or in
    config.json (sbert_ce_default_activation_function before version 4). The
    default is a sigmoid for one score, and linear for several.

    Returns:
      One of the values of `TORCH_ACTIVATIONS`; None for other models.

    Raises:
      UserError: a file is malformed, or a setting is not supported.
    """
    if CLASSIFIER not in checkpoint.heads:
        return None
    folder = local_folder(checkpoint.source)
    if task := read_task_file(folder):
        given = value_of_key(task, "activation", str, str(folder / TASK_FILE))
        # A number for a pair, of a ranking or a regression; the default of a
        # CrossEncoder is another.
        if given is None and task.get("num_texts") == 2:
            given = {"regression": "linear"}.get(task.get("label_kind", ""))
        if given is not None:
            return given
    path = folder / SETTINGS_FILE
    settings = read_json_object(path, missing_ok=True)
    own = transformer_folder(folder) / CONFIG_FILE
    values = read_json_object(own, missing_ok=True)
    nested = value_of_key(values, "sentence_transformers", dict, str(own))
    if settings.get("model_type") != CROSS_ENCODER:
        settings = {}
    if settings.get("default_prompt_name"):
        raise UserError(
            f"{path}: default_prompt_name of a {CROSS_ENCODER} is not "
            "supported; remove it, and put the prompt before the texts."
        )
    old = "sbert_ce_default_activation_function"
    for found, key, place in (
        (settings, "activation_fn", path),
        (nested or {}, "activation_fn", own),
        (values, old, own),
    ):
        if found.get(key) is not None:
            return read_activation(found, key, "", place)
    if not settings and nested is None:
        return None
    return "sigmoid" if num_labels(checkpoint, CLASSIFIER) == 1 else "linear"


def write_cross_encoder(folder: pathlib.Path, activation: str) -> None:
    """Writes the activation of a CrossEncoder into a model's folder."""
    named = {"activation_fn": f"torch.nn.{_torch_name(activation)}"}
    kind: dict[str, Any] = {"model_type": CROSS_ENCODER, "prompts": {}}
    _write(folder / SETTINGS_FILE, kind | named)
    path = folder / CONFIG_FILE
    if path.exists():
        # Releases 4 and 5 read it there, and no modules.
        values = read_json_object(path)
        _write(path, values | {"sentence_transformers": named})
        settings = _transformer_settings("sequence-classification", "logits")
        settings["module_output_name"] = "scores"
        _write(folder / TRANSFORMER_FILES[0], settings)
        _write(folder / MODULES_FILE, _entries(_PACKAGE_6, ["Transformer"]))


def _transformer_settings(task: str, output: str) -> dict[str, Any]:
    """What release 6 states of a Transformer that reads an output."""
    text = {"method": "forward", "method_output_name": output}
    return {"transformer_task": task, "modality_config": {"text": text}}


def _entries(package: str, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The entries of modules.json."""
    return [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"{_PACKAGES.get(kind, package)}.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]


def _read_prompts(
    settings: Mapping[str, Any], path: pathlib.Path
) -> dict[str, str]:
    given = value_of_key(settings, "prompts", dict, str(path)) or {}
    for name in given:
        value_of_key(given, name, str, f"{path}: prompts")
    return _DEFAULT_PROMPTS | {k: v or "" for k, v in given.items()}


def write_sentence_modules(
    folder: pathlib.Path, modules: Modules, hidden_size: int
) -> None:
    """Writes modules to a model's folder, for the releases that have them."""
    # The tokenizer's files determine lower-casing.
    transformer: dict[str, Any] = {
        "max_seq_length": modules.max_seq_length,
        "do_lower_case": False,
    }
    settings: dict[str, Any] = {
        "model_type": modules.model_type,
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt_name,
        "similarity_fn_name": modules.similarity,
    }
    kinds, level = ["Transformer"], _SENTENCE
    steps: tuple[Step, ...] = ()
    package = _PACKAGE
    if isinstance(modules, SparseModules):
        settings["max_active_dims"] = modules.max_active_dims
        package = _SPARSE_PACKAGE
        kinds = ["MLMTransformer", "SpladePooling"]
        own = {
            "pooling_strategy": modules.pooling,
            "activation_function": modules.activation,
            "word_embedding_dimension": modules.vocab_size,
        }
    elif isinstance(modules, MultiVectorModules):
        package, level, steps = _PACKAGE_6, _TOKENS, modules.steps
        transformer |= _query_settings(modules)
        kinds.append("MultiVectorMask")
        own = {
            "skiplist_words": list(modules.skipped_words),
            "skiplist_tasks": list(modules.skipped_tasks),
            "keep_only_token_ids": list(modules.scored_ids) or None,
        }
    else:
        settings["truncate_dim"] = modules.truncate_dim
        steps = modules.steps
        kinds.append("Pooling")
        own = _pooling_settings(modules, hidden_size)
    kinds += [type(step).__name__ for step in steps]
    entries = _entries(package, kinds)
    _write(folder / TRANSFORMER_FILES[0], transformer)
    _write(folder / entries[1]["path"] / CONFIG_FILE, own)
    for entry, step in zip(entries[2:], steps, strict=True):
        _write_step(folder / entry["path"], step, level)
    _write(
        folder / SETTINGS_FILE,
        {name: v for name, v in settings.items() if v is not None},
    )
    # Last: this file makes the folder one of sentence-transformers.
    _write(folder / MODULES_FILE, entries)


def _pooling_settings(
    modules: SentenceModules, hidden_size: int
) -> dict[str, Any]:
    values: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    if modules.pooling == tuple(m for m in POOLINGS if m in modules.pooling):
        # Releases before 6 read only these.
        values |= {
            key: mode in modules.pooling for key, mode in _OLD_MODES.items()
        }
    else:
        values["pooling_mode"] = list(modules.pooling)
    return values | {"include_prompt": modules.include_prompt}


def _query_settings(modules: MultiVectorModules) -> dict[str, Any]:
    """What a Transformer states of queries and documents."""
    expansion = modules.expansion
    values: dict[str, Any] = {
        "query_length": modules.query_length,
        "document_length": modules.document_length,
        "query_expansion": expansion
        and {
            "strategy": "fixed" if expansion.is_fixed else "min",
            "attend": expansion.attend,
            "token": expansion.token,
            "length": expansion.length,
        },
    }
    return {name: v for name, v in values.items() if v is not None}


def _write_step(folder: pathlib.Path, step: Step, level: str) -> None:
    """Writes a module that reads and writes vectors of a level."""
    values: dict[str, Any] = {}
    if level != _SENTENCE:
        # Releases before 6 do not know the keys.
        values = {"module_input_name": level, "module_output_name": level}
    if isinstance(step, Normalize):
        _write(folder / CONFIG_FILE, values)
        return
    values |= {
        "in_features": step.kernel.shape[0],
        "out_features": step.kernel.shape[1],
        "bias": step.bias is not None,
        "activation_function": f"torch.nn.{_torch_name(step.activation)}",
    }
    if step.use_residual:
        values["use_residual"] = True
    _write(folder / CONFIG_FILE, values)
    arrays = {
        "linear.weight": step.kernel,
        "linear.bias": step.bias,
        "residual.weight": step.residual_kernel,
    }
    # Kernels are stored [out, in].
    write_arrays(
        folder / HUGGING_FACE_WEIGHTS[0],
        {name: a.T for name, a in arrays.items() if a is not None},
        {"format": "pt"},
    )


def _torch_name(activation: str) -> str:
    names = {ours: theirs for theirs, ours in TORCH_ACTIVATIONS.items()}
    return names[activation]


def _write(path: pathlib.Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(values, ensure_ascii=False, indent=2)
    write_text(path, text + "\n")
