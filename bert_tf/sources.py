"""Resolves the source of a model to a local folder.

modules.json of sentence-transformers is a list of {idx, name, path, type}: the
Transformer, whose files are in the folder itself or, before version 0.4, in a
subfolder such as 0_Transformer, and the modules that compute one vector of its
outputs.
"""

import contextlib
import os
import pathlib
import re
import threading
from typing import Any, NamedTuple

from bert_tf.architecture_list import ARCHITECTURES, find_architecture
from bert_tf.errors import UserError, excerpt, one_line
from bert_tf.foreign_files import unusable
from bert_tf.libraries import require_extra
from bert_tf.recipe import read_json_list, read_json_object

HUGGING_FACE, KERAS_HUB = "hf://", "keras_hub://"
_VOCABULARIES = (
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("spiece.model", "sentencepiece.bpe.model"),
)
# Files of model folders of every family; no others are downloaded or shared.
MODEL_FILES = (
    "config.json",
    *_VOCABULARIES,
    "tokenizer.json",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "labels.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "bert_config.json",
    "bert_model.*",
    "model.weights.h5",
    "model.weights.json",
    "model_*.weights.h5",
    "task.json",
    "task.weights.h5",
    "tagger.safetensors",
    "assets/tokenizer/vocabulary.*",
    "assets/tokenizer/merges.txt",
    # Stanford's ColBERT.
    "artifact.metadata",
    # sentence-transformers.
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "[0-9]_*/*.json",
    *(f"[0-9]_*/{name}" for name in _VOCABULARIES),
    "[0-9]_*/model.safetensors",
)
WEIGHTS = (
    *("*.safetensors", "0_*/*.safetensors", "bert_model.ckpt*", "*.weights.h5"),
)
# Modules of sentence-transformers with weights.
_DENSE = "[0-9]_Dense"
_DENSE_PICKLE = f"{_DENSE}/pytorch_model.bin"
# Weights to download if a hub has none of `WEIGHTS`: pickles, then files of
# transformers' TensorFlow and Flax classes.
_OTHER_WEIGHTS = (
    (
        *("pytorch_model*.bin", "pytorch_model.bin.index.json"),
        *("0_*/pytorch_model*.bin", _DENSE_PICKLE),
    ),
    ("tf_model*.h5", "tf_model.h5.index.json"),
    ("flax_model*.msgpack", "flax_model.msgpack.index.json"),
)
# Timeout in seconds of a first request to a hub. Both libraries have none, and
# use their caches either before that request or after it failed.
_TIMEOUT = 10
_KAGGLE = "https://api.kaggle.com"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
HUB_NAME = re.compile(rf"({_NAME}/)?{_NAME}(@[A-Za-z0-9_][\w./-]*)?")
_HELP = (
    "for a model of a hub write hf://organisation/name or keras_hub://preset"
)
# Files of single models, by suffix: what they are and how to open them.
_HOW_TO_OPEN = {
    ".keras": "a model that Keras saved; open it with `import bert_tf, keras` "
    "and `keras.models.load_model({name})`",
    ".onnx": "a model of ONNX Runtime; open it with "
    "onnxruntime.InferenceSession({name}), or give the folder that it was "
    "exported from",
    ".tflite": "a model of LiteRT; open it with tf.lite.Interpreter({name}), "
    "or give the folder that it was exported from",
    ".weights.h5": "the weights of a Keras model; build the same model and "
    "call its load_weights({name})",
}
_OFFLINE_HINT = (
    "download the model on a machine with a connection and give its folder"
)


def local_folder(source: str | os.PathLike) -> pathlib.Path:
    """Returns the local folder of a source, downloading it if necessary.

    Args:
      source: a folder; hf://organisation/name, with an optional @revision; or
        keras_hub://preset. Downloads are cached by the hubs' libraries.

    Raises:
      UserError: the folder is missing or a file, the source has another form,
        the hub refuses the download, or the hubs' libraries are not installed.
    """
    name = os.fspath(source)
    if name.startswith(HUGGING_FACE):
        require_extra("hub", name)
        return _from_hugging_face(name)
    if name.startswith(KERAS_HUB):
        require_extra("keras_hub", name)
        return _from_keras_hub(name)
    if re.match(r"[A-Za-z][\w+.-]*://", name):
        raise UserError(f"{name}: unknown kind of source; {_HELP}.")
    folder = pathlib.Path(name)
    try:
        # Unlike `pathlib` it reports names that no file can have.
        os.stat(name)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise unusable(name, error) from None
    if folder.is_dir():
        return folder
    if folder.exists():
        for end, opener in _HOW_TO_OPEN.items():
            if name.endswith(end):
                raise UserError(f"{name}: is {opener.format(name=repr(name))}.")
        raise UserError(f"{name}: is a file; give its folder, {folder.parent}")
    if folder.name and folder.with_name(f"{folder.name}.index").exists():
        raise UserError(
            f"{name}: is the prefix of a checkpoint; give its folder, "
            f"{folder.parent}"
        )
    raise UserError(f"{name}: no such model folder; {_HELP}.")


def _from_hugging_face(source: str) -> pathlib.Path:
    name = source.removeprefix(HUGGING_FACE)
    if not HUB_NAME.fullmatch(name) or ".." in name:
        raise UserError(
            f"{source}: is no name of a model; write hf://organisation/name "
            "or hf://organisation/name@revision."
        )
    folder = _snapshot(source, MODEL_FILES)
    found: tuple[str, ...] = WEIGHTS
    for others in _OTHER_WEIGHTS:
        if has_weights(folder, found):
            break
        folder = _snapshot(source, (*MODEL_FILES, *others))
        found += others
    return folder


def has_weights(
    folder: pathlib.Path, patterns: tuple[str, ...] = WEIGHTS
) -> bool:
    """Returns whether a folder and its dense modules hold weights.

    `patterns` are the names of weights files, by default without pickles.
    """
    ends = ("*.safetensors", "*.bin")[: 1 + (_DENSE_PICKLE in patterns)]
    return any(
        any(folder.glob(pattern))
        for pattern in patterns
        if pattern != _DENSE_PICKLE
    ) and all(
        any(any(dense.glob(end)) for end in ends)
        for dense in folder.glob(_DENSE)
    )


def hugging_face_answers(name: str) -> bool:
    """Returns whether the hub answers a request for a model in time."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        huggingface_hub.model_info(name, timeout=_TIMEOUT)
    except errors.HfHubHTTPError:
        # A refusal, which the download reports.
        return True
    except (errors.HTTPError, errors.OfflineModeIsEnabled):
        return False
    return True


def _snapshot(source: str, patterns: tuple[str, ...]) -> pathlib.Path:
    import huggingface_hub
    from huggingface_hub import errors

    name, _, revision = source.removeprefix(HUGGING_FACE).partition("@")
    try:
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                name,
                revision=revision or None,
                allow_patterns=list(patterns),
                local_files_only=not hugging_face_answers(name),
            )
        )
    except errors.GatedRepoError:
        raise UserError(
            f"{source}: access requires the owners' permission; request it on "
            "the model's page, log in with `hf auth login`, and try again."
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"{source}: no such model on huggingface.co, or a private one; "
            "check the name, or log in with `hf auth login`."
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(
            f"{source}: the model has no revision {revision!r}."
        ) from None
    except errors.HFValidationError as error:
        raise UserError(f"{source}: {one_line(error)}.") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        raise UserError(
            f"{source}: huggingface.co cannot be reached and the model is not "
            f"in the cache; {_OFFLINE_HINT}."
        ) from None
    # Errors of the hub, the connection or the disk.
    except (OSError, errors.HTTPError) as error:
        raise UserError(
            f"{source}: the download failed ({one_line(error)}); try again, "
            f"or {_OFFLINE_HINT}."
        ) from None


def _from_keras_hub(source: str) -> pathlib.Path:
    import kagglehub
    import keras_hub
    import requests
    from kagglehub import exceptions

    name = source.removeprefix(KERAS_HUB)
    presets: dict[str, Any] = {}
    for model_type in ARCHITECTURES:
        names = find_architecture(model_type, source).names
        if backbone := names.keras_hub.backbone:
            presets |= getattr(keras_hub.models, backbone).presets
    if name not in presets:
        known = [preset for preset in presets if preset.startswith("bert_")]
        raise UserError(
            f"{source}: KerasHub has no such preset of BERT or a relative; it "
            f"has {', '.join(known)} and {len(presets) - len(known)} others."
        )
    handle = presets[name]["kaggle_handle"].removeprefix("kaggle://")
    unreachable = UserError(
        f"{source}: kaggle.com cannot be reached and the preset is not in the "
        f"cache; {_OFFLINE_HINT}."
    )
    try:
        requests.head(_KAGGLE, timeout=_TIMEOUT)
    except requests.RequestException:
        folder = _kaggle_cache(handle)
        if folder is None:
            raise unreachable from None
        return folder
    try:
        return pathlib.Path(kagglehub.model_download(handle))
    except requests.ConnectionError:
        raise unreachable from None
    # Responses of the server are OSErrors too.
    except (
        OSError,
        exceptions.DataCorruptionError,
        exceptions.UnauthenticatedError,
    ) as error:
        raise UserError(
            f"{source}: the download failed ({one_line(error)}); try again, "
            f"or {_OFFLINE_HINT}."
        ) from None


def _kaggle_cache(handle: str) -> pathlib.Path | None:
    """Returns the folder of a preset in kagglehub's cache, or None."""
    import kagglehub

    found = []

    def look() -> None:
        with contextlib.suppress(Exception):
            found.append(kagglehub.model_download(handle))

    # There is no function for only the cache, which is searched first.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_TIMEOUT)
    return pathlib.Path(found[0]) if found else None


MODULES_FILE = "modules.json"
# The first releases had a class per architecture, and release 5 one for masked
# LMs.
TRANSFORMERS = ("Transformer", "BERT", "DistilBERT", "MLMTransformer")
# A table of vectors instead of a Transformer and its pooling.
STATIC_EMBEDDING = "StaticEmbedding"
# Files of their settings.
TRANSFORMER_FILES = (
    "sentence_bert_config.json",
    "sentence_distilbert_config.json",
)
_PACKAGE = "sentence_transformers."
# Maximum length of a name in file systems.
_MAX_NAME_LENGTH = 255


class Module(NamedTuple):
    """An entry of modules.json.

    Attributes:
      kind: the class without its package, such as Pooling.
      folder: the folder of its files, which may not exist.
    """

    kind: str
    folder: pathlib.Path


def read_module_list(folder: pathlib.Path) -> tuple[Module, ...] | None:
    """Reads the modules of a folder; returns None without modules.json.

    Raises:
      UserError: the file is no list of modules, or a path in it leads out of
        the folder.
    """
    path = folder / MODULES_FILE
    if not path.exists():
        return None
    entries = read_json_list(path)
    if not entries:
        raise UserError(f"{path}: names no module.")
    modules = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise UserError(
                f"{path}: module {number} is {excerpt(entry)}; it takes an "
                "object with idx, path and type."
            )
        if entry.get("idx", number) != number:
            raise UserError(
                f"{path}: module {number} has the idx {excerpt(entry['idx'])}; "
                "modules are applied in the order of the list, so number them "
                "in that order, from 0."
            )
        kind = entry.get("type")
        if not isinstance(kind, str) or not kind.startswith(_PACKAGE):
            raise UserError(
                f"{path}: module {number} is of the type {excerpt(kind)}; it "
                f"takes a class of {_PACKAGE.rstrip('.')}, because code in a "
                "model folder is not executed."
            )
        inner = _inner_folder(
            folder, entry.get("path"), f"{path}: module {number}"
        )
        modules.append(Module(kind.rpartition(".")[2], inner))
    return tuple(modules)


def transformer_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the weights and the tokenizer of a model folder.

    That is the folder itself or, in the layout of sentence-transformers before
    version 0.4 and often of a StaticEmbedding, the first subfolder in its
    modules.json.

    Raises:
      UserError: as `read_module_list`, or the subfolder is missing.
    """
    modules = read_module_list(folder)
    if modules is None or (kind := modules[0].kind) not in (
        *TRANSFORMERS,
        STATIC_EMBEDDING,
    ):
        return folder
    if not modules[0].folder.is_dir():
        raise UserError(
            f"{folder / MODULES_FILE}: names the folder "
            f"{modules[0].folder.name} of its {kind}, which is missing."
        )
    return modules[0].folder


def is_static_embedding(folder: pathlib.Path) -> bool:
    """Whether a `transformer_folder` holds a table of static vectors.

    Raises:
      UserError: as `read_module_list`.
    """
    for whole in (folder, folder.parent):
        modules = read_module_list(whole)
        if modules is not None:
            first = modules[0]
            is_here = first.folder.resolve() == folder.resolve()
            return is_here and first.kind == STATIC_EMBEDDING
    return False


def read_transformer_settings(
    folder: pathlib.Path,
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Returns the file of a Transformer's settings, and its values.

    Without a file they are empty.

    Raises:
      UserError: the file holds no JSON object.
    """
    paths = [folder / name for name in TRANSFORMER_FILES]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return paths[0], {}
    return path, read_json_object(path)


def _inner_folder(
    folder: pathlib.Path, given: object, place: str
) -> pathlib.Path:
    """Returns the folder of a path in modules.json."""
    refusal = UserError(
        f"{place} has the path {excerpt(given)}; it takes the name of a "
        "folder inside the model folder, or an empty one."
    )
    if not isinstance(given, str) or "\0" in given:
        raise refusal
    windows = pathlib.PureWindowsPath(given)
    is_too_long = len(given) > _MAX_NAME_LENGTH
    if windows.anchor or ".." in windows.parts or is_too_long:
        raise refusal
    found = folder / given
    try:
        # A link may lead out of the folder, or in a circle, which Python 3.13
        # leaves as it is.
        target = found.resolve()
        is_inside = not target.is_symlink() and target.is_relative_to(
            folder.resolve()
        )
    # Invalid names of files, and circular links.
    except (OSError, ValueError, RuntimeError):
        is_inside = False
    if not is_inside:
        raise refusal
    return found
