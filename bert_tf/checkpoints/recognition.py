"""Identifies the family of a model folder by the names of its files.

Only the module of that family is imported later.

A checkpoint of TensorFlow is PREFIX.index and PREFIX.data-00000-of-00001 (or
more shards). A text file `checkpoint` in the folder names the newest prefix.
"""

import glob
import pathlib
import re
from collections.abc import Callable

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_regular, read_bytes
from bert_tf.recipe import read_json_object
from bert_tf.sources import is_static_embedding

# The family of the folders of sentence-transformers' StaticEmbedding.
STATIC_EMBEDDING = "static_embedding"
OWN_CONFIG, OWN_WEIGHTS = "bert_config.json", "bert_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
KERAS_HUB_WEIGHTS = ("model.weights.h5", "model.weights.json")
HUGGING_FACE_CONFIG = "config.json"
# The class in config.json of Stanford's colbert-ai.
STANFORD_CLASS = "HF_ColBERT"
# In transformers' order.
HUGGING_FACE_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "tf_model.h5",
    "flax_model.msgpack",
)
# Weights of KerasHub, whose folders also have a config.json.
_KERAS_HUB_FILE = re.compile(r"(model(_\d+)?|task)\.weights\.h5")
# The configuration of each family that requires one, and for errors the weights
# by the name of the configuration.
_CONFIG_FILES = {
    "bert_tf": "bert_config.json",
    "hugging_face": "config.json",
    "keras_hub": "config.json",
    "adapter": ADAPTER_CONFIG,
}
_WEIGHTS_OF = {
    "bert_config.json": (
        "neither bert_model.safetensors nor a *.ckpt*.index of TensorFlow"
    ),
    "config.json": (
        "neither model.safetensors or tf_model.h5 (Hugging Face) nor "
        "model.weights.h5 (KerasHub)"
    ),
    ADAPTER_CONFIG: f"no {ADAPTER_WEIGHTS} (peft)",
}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
# The key of the object graph in a tf.train.Checkpoint.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SAVED_MODEL_FILE = "saved_model.pb"
_NEWEST_FILE = "checkpoint"
SHARD = re.compile(r"(?P<prefix>.+)\.data-(?P<part>\d{5})-of-(?P<parts>\d{5})")
# The last eight bytes of TensorFlow's tables, also of its first format, but not
# of another library's .ckpt.
_TABLE_END = bytes.fromhex("57fb808b247547db")


def is_stanford_colbert(folder: pathlib.Path) -> bool:
    """Whether a folder was written by Stanford's colbert-ai."""
    values = read_json_object(folder / HUGGING_FACE_CONFIG, missing_ok=True)
    classes = values.get("architectures")
    return isinstance(classes, list) and STANFORD_CLASS in classes


def index_files(folder: pathlib.Path, object_based: bool) -> list[pathlib.Path]:
    """Returns the index files of object-based or of name-based checkpoints.

    That of a SavedModel is in its folder of variables.
    """
    if (folder / SAVED_MODEL_FILE).exists():
        folder = folder / "variables"
    # The key of the object graph is stored in full and needs no TensorFlow.
    # Files of other programs, such as search indexes, are no tables and have no
    # .data files.
    return [
        path
        for path in sorted(folder.glob("*.index"))
        if path.is_file()
        and (
            _ends_like_a_table(path)
            or any(folder.glob(f"{glob.escape(path.stem)}.data-*"))
            or ".ckpt" in path.name
        )
        and (OBJECT_GRAPH.encode() in path.read_bytes()) == object_based
    ]


def remains(folder: pathlib.Path) -> str | None:
    """Describes a checkpoint without an index, or of the first format."""
    if any(folder.glob("*.index")):
        return None
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        if shard := SHARD.fullmatch(path.name):
            return f"{path}: its {shard['prefix']}.index is missing."
        if re.search(r"\.ckpt(-\d+)*(-of-\d+)?$", path.name):
            if _ends_like_a_table(path):
                return (
                    f"{path}: a checkpoint of TensorFlow's first format; "
                    "restore it and save it with tf.compat.v1.train.Saver("
                    "write_version=tf.compat.v1.train.SaverDef.V2)."
                )
    return None


def _ends_like_a_table(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - len(_TABLE_END)))
        return file.read() == _TABLE_END


def find_prefix(folder: pathlib.Path, object_based: bool) -> pathlib.Path:
    """Returns the prefix of the only, or else the newest checkpoint.

    Raises:
      UserError: there are several and no file names the newest, or the newest
        is missing.
    """
    prefixes = [
        path.with_suffix("") for path in index_files(folder, object_based)
    ]
    names = ", ".join(prefix.name for prefix in prefixes)
    newest_file = folder / _NEWEST_FILE
    demand_regular(newest_file)
    if newest_file.is_file():
        text = newest_file.read_text(encoding="utf-8", errors="replace")
        named = re.search(r'^model_checkpoint_path: "(.+)"$', text, re.M)
        # The path may be of another machine.
        newest = (
            folder / pathlib.PurePosixPath(named[1]).name if named else None
        )
        if newest not in prefixes:
            raise UserError(
                f"{newest_file}: names {newest.name if newest else 'nothing'}, "
                f"but the folder has {names}; remove this file, and all "
                "checkpoints but one."
            )
        return newest
    if len(prefixes) > 1:
        raise UserError(
            f"{folder}: holds {len(prefixes)} checkpoints ({names}) and no "
            "file `checkpoint` that names one; leave one of them."
        )
    return prefixes[0]


def has_hugging_face_weights(folder: pathlib.Path) -> bool:
    """Returns whether a folder holds weights of transformers' classes."""
    return bool(keras_weights(folder)) or any(
        (folder / name).exists() or (folder / f"{name}.index.json").exists()
        for name in HUGGING_FACE_WEIGHTS
    )


def keras_weights(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns files of Keras' save_weights with transformers' config.json.

    These are .h5 files or, without any, the .index files of checkpoints.
    """
    config = folder / HUGGING_FACE_CONFIG
    if not config.is_file() or b'"model_type"' not in read_bytes(config):
        return []
    files = [
        path
        for path in sorted(folder.glob("*.h5"))
        if not _KERAS_HUB_FILE.fullmatch(path.name)
    ]
    return files or index_files(folder, object_based=True)


# Returns whether a folder holds weights of a family, or parts of them.
FOUND_IN: dict[str, Callable[[pathlib.Path], bool]] = {
    "bert_tf": lambda folder: (folder / OWN_WEIGHTS).exists(),
    "google_tf1": lambda folder: (
        bool(index_files(folder, False)) or remains(folder) is not None
    ),
    "model_garden": lambda folder: (
        not keras_weights(folder) and bool(index_files(folder, True))
    ),
    "hugging_face": has_hugging_face_weights,
    "keras_hub": lambda folder: any(
        (folder / name).exists() for name in KERAS_HUB_WEIGHTS
    ),
    "adapter": lambda folder: (folder / ADAPTER_WEIGHTS).exists(),
}


def recognise(folder: pathlib.Path) -> str:
    """Returns the family of a local model folder.

    Raises:
      UserError: the folder holds weights of no family or of several, or lacks
        the configuration.
    """
    if is_static_embedding(folder):
        return STATIC_EMBEDDING
    families = [name for name, found in FOUND_IN.items() if found(folder)]
    if not families:
        raise UserError(f"{folder}: not a model folder; {_missing(folder)}.")
    if len(families) > 1:
        raise UserError(
            f"{folder}: holds weights of {' and of '.join(families)}; put each "
            "into its own folder."
        )
    config = _CONFIG_FILES.get(families[0])
    if config is not None and not (folder / config).exists():
        raise UserError(
            f"{folder}: holds weights of {families[0]}, but no {config}."
        )
    return families[0]


def _missing(folder: pathlib.Path) -> str:
    """Describes what a folder without weights lacks."""
    there = [name for name in _WEIGHTS_OF if (folder / name).exists()]
    pickles = sorted(
        path.name for pattern in _PICKLES for path in folder.glob(pattern)
    )
    if pickles:
        return (
            f"{pickles[0]} is a pickle, which may execute any code and is not "
            "opened; convert it to model.safetensors"
        )
    if (folder / SAVED_MODEL_FILE).exists():
        return (
            f"{SAVED_MODEL_FILE} is there, but no variables/ with a checkpoint "
            "of Keras objects"
        )
    if not there and (h5 := sorted(path.name for path in folder.glob("*.h5"))):
        return (
            f"{h5[0]} is there, but no config.json; add that of the saved model"
        )
    if there:
        return f"{there[0]} is there, but {_WEIGHTS_OF[there[0]]}"
    return f"it holds no weights of {', '.join(FOUND_IN)}"
