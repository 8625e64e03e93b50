"""modules.json of sentence-transformers: which modules follow each other.

The list of {idx, name, path, type} names the Transformer, whose files lie in
the folder itself, or, as sentence-transformers wrote them before its version
0.4, in a subfolder such as 0_Transformer; and the modules that make one vector
of its outputs.
"""

import pathlib
from typing import Any, NamedTuple

from bert_tf.errors import UserError, excerpt
from bert_tf.recipe import read_json_list, read_json_object

MODULES_FILE = "modules.json"
# The first releases had a class for each architecture.
TRANSFORMERS = ("Transformer", "BERT", "DistilBERT")
# Their settings; the first releases named them after the architecture too.
TRANSFORMER_FILES = (
    "sentence_bert_config.json",
    "sentence_distilbert_config.json",
)
_PACKAGE = "sentence_transformers."
# What file systems take for a name.
_LONGEST_PATH = 255


class Module(NamedTuple):
    """An entry of modules.json.

    Attributes:
      kind: the class without its package, such as Pooling.
      folder: where its files lie; of some modules there is no such folder.
    """

    kind: str
    folder: pathlib.Path


def read_module_list(folder: pathlib.Path) -> tuple[Module, ...] | None:
    """The modules of a folder; None where it has no modules.json.

    Args:
      folder: a model folder on this machine.

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
                f"takes a class of {_PACKAGE.rstrip('.')}, for code in a "
                "model folder is not executed."
            )
        inner = _inner_folder(
            folder, entry.get("path"), f"{path}: module {number}"
        )
        modules.append(Module(kind.rpartition(".")[2], inner))
    return tuple(modules)


def transformer_folder(folder: pathlib.Path) -> pathlib.Path:
    """Where the weights and the tokenizer of a model folder lie.

    That is the folder itself, or, in the layout of sentence-transformers before
    its version 0.4, the subfolder that its modules.json names first.

    Args:
      folder: a model folder on this machine.

    Raises:
      UserError: as `read_module_list`, or the subfolder is missing.
    """
    modules = read_module_list(folder)
    if modules is None or modules[0].kind not in TRANSFORMERS:
        return folder
    if not modules[0].folder.is_dir():
        raise UserError(
            f"{folder / MODULES_FILE}: names the folder "
            f"{modules[0].folder.name} of its Transformer, which is missing."
        )
    return modules[0].folder


def read_transformer_settings(
    folder: pathlib.Path,
) -> tuple[pathlib.Path, dict[str, Any]]:
    """What the settings of a Transformer hold, and the file they are in.

    Args:
      folder: see `transformer_folder`; without such a file there are none.

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
    """The folder that a path in modules.json names."""
    refusal = UserError(
        f"{place} has the path {excerpt(given)}; it takes the name of a "
        "folder inside the model folder, or an empty one."
    )
    if not isinstance(given, str) or "\0" in given:
        raise refusal
    windows = pathlib.PureWindowsPath(given)
    is_too_long = len(given) > _LONGEST_PATH
    if windows.anchor or ".." in windows.parts or is_too_long:
        raise refusal
    found = folder / given
    try:
        # A link may lead out of the folder all the same.
        is_inside = found.resolve().is_relative_to(folder.resolve())
    # What is no name of a file, and links that lead in a circle.
    except (OSError, ValueError, RuntimeError):
        is_inside = False
    if not is_inside:
        raise refusal
    return found
