"""Which family a model folder is of, by the names of its files.

No family's module is imported here: the one that reads a folder is enough.

A checkpoint of TensorFlow is PREFIX.index and PREFIX.data-00000-of-00001 (or
more shards). The folder may have a text file `checkpoint` that names the newest
prefix.
"""

import glob
import pathlib
import re
from collections.abc import Callable

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_regular, read_bytes

OWN_CONFIG, OWN_WEIGHTS = "bert_config.json", "bert_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
KERAS_HUB_WEIGHTS = ("model.weights.h5", "model.weights.json")
HUGGING_FACE_CONFIG = "config.json"
# In the order in which transformers looks for them.
HUGGING_FACE_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "tf_model.h5",
    "flax_model.msgpack",
)
# Weights of KerasHub, which lie beside a config.json too.
_KERAS_HUB_FILE = re.compile(r"(model(_\d+)?|task)\.weights\.h5")
# What each family's configuration is called that always has one, and its
# weights; for errors.
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
# The key under which tf.train.Checkpoint keeps its graph of objects.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SAVED_MODEL_FILE = "saved_model.pb"
_NEWEST_FILE = "checkpoint"
SHARD = re.compile(r"(?P<prefix>.+)\.data-(?P<part>\d{5})-of-(?P<parts>\d{5})")
# The last eight bytes of TensorFlow's tables. A file of the first format ends
# with them, and a checkpoint of another library that is called .ckpt does not.
_TABLE_END = bytes.fromhex("57fb808b247547db")


def index_files(folder: pathlib.Path, object_based: bool) -> list[pathlib.Path]:
    """The index files of tf.train.Checkpoint, or those with plain names.

    A SavedModel's lies in its folder of variables.
    """
    if (folder / SAVED_MODEL_FILE).exists():
        folder = folder / "variables"
    # The key is one of the first of the table and stored in full, so there is
    # no need of TensorFlow to see it. Other programs' files of that name, such
    # as search indexes, are no tables and have no data beside them.
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
    """Says what is left of a checkpoint that has no index, if anything is."""
    if any(folder.glob("*.index")):
        return None
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        if shard := SHARD.fullmatch(path.name):
            return f"{path}: {shard['prefix']}.index is missing beside it."
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
    """The prefix of the one checkpoint of a kind, or of its newest.

    Raises `UserError` where there are several and no file names the newest,
    or the newest is not there.
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
        # The path may be one on the machine that wrote it.
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
    """Whether a folder holds weights of a class of transformers."""
    return bool(keras_weights(folder)) or any(
        (folder / name).exists() or (folder / f"{name}.index.json").exists()
        for name in HUGGING_FACE_WEIGHTS
    )


def keras_weights(folder: pathlib.Path) -> list[pathlib.Path]:
    """What Keras' save_weights wrote beside transformers' config.json.

    Returns:
      .h5 files, or the .index files of checkpoints where there are none.
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


# What tells whether a folder holds weights of a family, or remains of them.
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
    # Is read, and written, with its base.
    "adapter": lambda folder: (folder / ADAPTER_WEIGHTS).exists(),
}


def recognise(folder: pathlib.Path) -> str:
    """The family of a model folder, by what lies in it.

    Args:
      folder: a folder on this machine; see `bert_tf.sources.local_folder`.

    Raises:
      UserError: the folder is of no family, of two, or lacks the
        configuration.
    """
    families = [name for name, found in FOUND_IN.items() if found(folder)]
    if not families:
        raise UserError(f"{folder}: not a model folder; {_missing(folder)}.")
    if len(families) > 1:
        raise UserError(
            f"{folder}: holds weights of {' and of '.join(families)}; put each "
            "into a folder of its own."
        )
    config = _CONFIG_FILES.get(families[0])
    if config is not None and not (folder / config).exists():
        raise UserError(
            f"{folder}: holds weights of {families[0]}, but no {config}."
        )
    return families[0]


def _missing(folder: pathlib.Path) -> str:
    """What a folder without weights lacks for the family nearest to it."""
    there = [name for name in _WEIGHTS_OF if (folder / name).exists()]
    pickles = sorted(
        path.name for pattern in _PICKLES for path in folder.glob(pattern)
    )
    if pickles:
        return (
            f"{pickles[0]} is a pickle, which may hold any program and is not "
            "opened; convert it to model.safetensors"
        )
    if (folder / SAVED_MODEL_FILE).exists():
        return (
            f"{SAVED_MODEL_FILE} is there, but no variables/ with a checkpoint "
            "of Keras objects"
        )
    if not there and (h5 := sorted(path.name for path in folder.glob("*.h5"))):
        return (
            f"{h5[0]} is there, but no config.json; put the one of the model "
            "that it was saved of beside it"
        )
    if there:
        return f"{there[0]} is there, but {_WEIGHTS_OF[there[0]]}"
    return f"it holds no weights of {', '.join(FOUND_IN)}"
