"""Reads and writes the files of sentence-transformers' modules.

modules.json                       the modules; see `bert_tf.sources`
sentence_bert_config.json          max_seq_length of the Transformer
N_Pooling/config.json              the modes of pooling
N_Dense/config.json, weights       a dense layer, linear.weight [out, in]
N_Normalize/                       normalises to length one
config_sentence_transformers.json  prompts, default_prompt_name, truncate_dim

Read as by sentence-transformers 6.2, from releases since 0.2.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.architectures.parts import CLASSIFIER
from bert_tf.checkpoints.array_file import write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint, num_labels
from bert_tf.checkpoints.recognition import HUGGING_FACE_WEIGHTS
from bert_tf.checkpoints.sentence_modules import (
    TORCH_ACTIVATIONS,
    Dense,
    Normalize,
    SentenceModules,
    Step,
)
from bert_tf.config import MEAN, POOLINGS
from bert_tf.errors import UserError, check_choice, excerpt, first_few
from bert_tf.files import write_text
from bert_tf.recipe import (
    Limits,
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
SENTENCE_TRANSFORMER, CROSS_ENCODER = "SentenceTransformer", "CrossEncoder"
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
# Modules without effect at inference.
_WITHOUT_EFFECT = ("Dropout",)
_TOKENS, _SENTENCE = "token_embeddings", "sentence_embedding"
# Arguments without effect on the result.
_HARMLESS_ARGUMENTS = frozenset(
    ("attn_implementation", "device_map", "dtype", "torch_dtype", "revision")
)
_MIN_LENGTH = 3


def read_sentence_modules(checkpoint: Checkpoint) -> SentenceModules | None:
    """Reads the modules of a checkpoint's folder.

    Returns:
      The modules; None without modules, or for a CrossEncoder.

    Raises:
      UserError: a file is malformed, or a module is not supported.
    """
    folder = local_folder(checkpoint.source)
    modules = read_module_list(folder)
    if modules is None:
        return None
    path = folder / SETTINGS_FILE
    settings = read_json_object(path, missing_ok=True)
    kind = settings.get("model_type", SENTENCE_TRANSFORMER)
    if kind == CROSS_ENCODER:
        return None
    if kind != SENTENCE_TRANSFORMER:
        raise UserError(
            f"{path}: model_type is {excerpt(kind)}; only a "
            f"{SENTENCE_TRANSFORMER} computes vectors of texts. {_HINT}"
        )
    _check_order(modules, folder / MODULES_FILE)
    length = positions = checkpoint.config.longest_input
    modes: tuple[str, ...] = (MEAN,)
    include_prompt = True
    transformer, *others = modules
    if transformer.kind != STATIC_EMBEDDING:
        pooling = others.pop(0)
        stated = _read_transformer(transformer.folder)
        length = stated or checkpoint.max_seq_length or positions
        modes, include_prompt = _read_pooling(pooling.folder / CONFIG_FILE)
    size = len(modes) * checkpoint.config.hidden_size
    steps: list[Step] = []
    for module in others:
        if module.kind == "Dense":
            dense = _read_dense(module.folder, size)
            size = dense.kernel.shape[1]
            steps.append(dense)
        elif module.kind == "Normalize":
            file = module.folder / CONFIG_FILE
            # Older releases write no files for it.
            values = read_json_object(file, missing_ok=True)
            for key in ("module_input_name", "module_output_name"):
                _expect(values, key, _SENTENCE, file)
            steps.append(Normalize())
    prompts = _read_prompts(settings, path)
    default = value_of_key(settings, "default_prompt_name", str, str(path))
    if default is not None and default not in prompts:
        raise UserError(
            f"{path}: default_prompt_name is {excerpt(default)}; the prompts "
            f"are {first_few(list(prompts))}."
        )
    truncate_dim = value_of_key(settings, "truncate_dim", int, str(path))
    if truncate_dim is not None:
        Limits(at_least=1).check(f"{path}: truncate_dim", truncate_dim)
    return SentenceModules(
        modes,
        include_prompt,
        tuple(steps),
        min(length, positions),
        prompts,
        default,
        truncate_dim,
        value_of_key(settings, "similarity_fn_name", str, str(path)),
    )


_KINDS = ("Pooling", "Dense", "Normalize", *_WITHOUT_EFFECT)
_HINT = "With `pooling`=mean, embed reads only the Transformer."


def _check_order(modules: tuple[Module, ...], path: pathlib.Path) -> None:
    """Refuses unknown modules and modules in another order."""
    kinds = [module.kind for module in modules]
    is_static = kinds[0] == STATIC_EMBEDDING
    if not is_static and kinds[0] not in TRANSFORMERS:
        raise UserError(
            f"{path}: module 0 is a {kinds[0]}; it takes a Transformer or a "
            f"{STATIC_EMBEDDING}."
        )
    for number, kind in enumerate(kinds[1:], start=1):
        if kind not in _KINDS:
            raise UserError(
                f"{path}: module {number} is a {kind}, which is not supported; "
                f"it takes {', '.join(_KINDS)}. {_HINT}"
            )
        if (kind == "Pooling") != (number == 1 and not is_static):
            raise UserError(
                f"{path}: module {number} is a {kind}; a Transformer is "
                "followed by one Pooling, and then by the others; a "
                f"{STATIC_EMBEDDING} has none."
            )
    if len(kinds) == 1 and not is_static:
        raise UserError(f"{path}: has no Pooling behind the Transformer.")


def _expect(
    values: Mapping[str, Any], key: str, expected: Any, path: pathlib.Path
) -> None:
    """Refuses another value than the only supported one."""
    if (value := values.get(key)) not in (None, expected):
        raise UserError(
            f"{path}: {key} is {excerpt(value)}, which is not supported; it "
            f"takes {expected!r}. {_HINT}"
        )


def _read_transformer(folder: pathlib.Path) -> int | None:
    """Checks a Transformer's settings and returns max_seq_length, if any."""
    path, values = read_transformer_settings(folder)
    _expect(values, "transformer_task", "feature-extraction", path)
    _expect(values, "module_output_name", _TOKENS, path)
    output = {"method": "forward", "method_output_name": "last_hidden_state"}
    modalities = value_of_key(values, "modality_config", dict, str(path))
    if modalities is not None:
        _expect(modalities, "text", output, path)
    for key in ("model", "config", "tokenizer"):
        for name in (f"{key}_args", f"{key}_kwargs"):
            given = value_of_key(values, name, dict, str(path)) or {}
            odd = [key for key in given if key not in _HARMLESS_ARGUMENTS]
            if odd:
                raise UserError(
                    f"{path}: {name} has {first_few(odd)}, which is not "
                    f"supported; leave it out. {_HINT}"
                )
    for name in ("processor_kwargs", "processing_kwargs"):
        _expect(values, name, {}, path)
    length = value_of_key(values, "max_seq_length", int, str(path))
    if length is not None and length < _MIN_LENGTH:
        raise UserError(
            f"{path}: max_seq_length is {length}; it takes {_MIN_LENGTH} or "
            "more."
        )
    return length


def _read_pooling(path: pathlib.Path) -> tuple[tuple[str, ...], bool]:
    values = read_json_object(path)
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
                f"takes {', '.join(_OLD_MODES)}. {_HINT}"
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
        check_choice(f"{path}: pooling_mode", mode, POOLINGS, f". {_HINT[:-1]}")
    include_prompt = value_of_key(values, "include_prompt", bool, str(path))
    return tuple(modes), include_prompt is not False


def _read_dense(folder: pathlib.Path, size: int) -> Dense:
    path = folder / CONFIG_FILE
    values = read_json_object(path)
    for key in ("module_input_name", "module_output_name"):
        _expect(values, key, _SENTENCE, path)
    sizes = [
        check_kind(key, int, values.get(key), str(path))
        for key in ("in_features", "out_features")
    ]
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

    sentence-transformers names it in its settings or in config.json
    (sbert_ce_default_activation_function before version 4). The default is a
    sigmoid for one score, and linear for several.

    Returns:
      One of the values of `TORCH_ACTIVATIONS`; None for other models.

    Raises:
      UserError: a file is malformed, or a setting is not supported.
    """
    if CLASSIFIER not in checkpoint.heads:
        return None
    folder = local_folder(checkpoint.source)
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
    path = folder / CONFIG_FILE
    if path.exists():
        values = read_json_object(path)
        _write(path, values | {"sentence_transformers": named})
    else:
        kind = {"model_type": CROSS_ENCODER}
        _write(folder / SETTINGS_FILE, kind | named)


def _read_prompts(
    settings: Mapping[str, Any], path: pathlib.Path
) -> dict[str, str]:
    given = value_of_key(settings, "prompts", dict, str(path)) or {}
    for name in given:
        value_of_key(given, name, str, f"{path}: prompts")
    return _DEFAULT_PROMPTS | {k: v or "" for k, v in given.items()}


def write_sentence_modules(
    folder: pathlib.Path, modules: SentenceModules, hidden_size: int
) -> None:
    """Writes modules to a model's folder, for all their releases."""
    kinds = ["Transformer", "Pooling"]
    kinds += [type(step).__name__ for step in modules.steps]
    entries = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    # The tokenizer's files determine lower-casing.
    length = {"max_seq_length": modules.max_seq_length}
    _write(folder / TRANSFORMER_FILES[0], length | {"do_lower_case": False})
    pooling: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    if modules.pooling == tuple(m for m in POOLINGS if m in modules.pooling):
        # Releases before 6 read only these.
        pooling |= {
            key: mode in modules.pooling for key, mode in _OLD_MODES.items()
        }
    else:
        pooling["pooling_mode"] = list(modules.pooling)
    pooling["include_prompt"] = modules.include_prompt
    _write(folder / "1_Pooling" / CONFIG_FILE, pooling)
    for entry, step in zip(entries[2:], modules.steps, strict=True):
        inner = folder / str(entry["path"])
        if isinstance(step, Normalize):
            _write(inner / CONFIG_FILE, {})
            continue
        values: dict[str, Any] = {
            "in_features": step.kernel.shape[0],
            "out_features": step.kernel.shape[1],
            "bias": step.bias is not None,
            "activation_function": f"torch.nn.{_torch_name(step.activation)}",
        }
        if step.use_residual:
            values["use_residual"] = True
        _write(inner / CONFIG_FILE, values)
        arrays = {
            "linear.weight": step.kernel,
            "linear.bias": step.bias,
            "residual.weight": step.residual_kernel,
        }
        # Kernels are stored [out, in].
        write_arrays(
            inner / HUGGING_FACE_WEIGHTS[0],
            {name: a.T for name, a in arrays.items() if a is not None},
            {"format": "pt"},
        )
    settings = {
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt_name,
        "similarity_fn_name": modules.similarity,
        "truncate_dim": modules.truncate_dim,
    }
    _write(
        folder / SETTINGS_FILE,
        {name: v for name, v in settings.items() if v is not None},
    )
    # Last: this file makes the folder one of sentence-transformers.
    _write(folder / MODULES_FILE, entries)


def _torch_name(activation: str) -> str:
    names = {ours: theirs for theirs, ours in TORCH_ACTIVATIONS.items()}
    return names[activation]


def _write(path: pathlib.Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(values, ensure_ascii=False, indent=2)
    write_text(path, text + "\n")
