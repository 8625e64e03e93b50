"""Which family a model folder is of, by the names of its files.

No family's module is imported here: the one that reads a folder is enough.
"""

import pathlib
import re
from collections.abc import Callable

from bert_tf.checkpoints.tensorflow_reader import (
    SAVED_MODEL_FILE,
    index_files,
    remains,
)
from bert_tf.errors import UserError
from bert_tf.foreign_files import read_bytes

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
