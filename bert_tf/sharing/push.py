"""Publishes a finished model to a hub or a folder."""

import os
import pathlib
import re
import shutil

from bert_tf.checkpoints import adapter, load_checkpoint
from bert_tf.errors import UserError, one_line
from bert_tf.files import new_folder
from bert_tf.libraries import require_extra
from bert_tf.progress import log
from bert_tf.sharing.model_card import CARD_FILE
from bert_tf.sources import (
    HUGGING_FACE,
    MODEL_FILES,
    has_weights,
    hugging_face_answers,
    local_folder,
)


def push_model(
    folder: str | os.PathLike, to: str | os.PathLike, private: bool = True
) -> str:
    """Publishes the files of a model and its card.

    Training states, features, predictions, reports and recipes are left out,
    because they contain texts of the data and local paths.

    Args:
      folder: a finished model of any family.
      to: hf://organisation/name, created if it does not exist; or a folder,
        which must be new or empty.
      private: whether a new model on the hub is visible to its owners only;
        the visibility of an existing one is not changed.

    Returns:
      The address or the folder of the copy.

    Raises:
      UserError: `folder` is not a finished model, or is an adapter of a model
        that is not on huggingface.co; `to` is not a valid name or is not
        empty; there is no token; or the hub refuses.
    """
    source = local_folder(folder)
    if (source / adapter.WEIGHTS_FILE).exists():
        base = adapter.base_of(source)
        if not base.startswith(HUGGING_FACE):
            raise UserError(
                f"`folder`={folder}: is an adapter of {base}, which is "
                "not on huggingface.co; push the whole model that "
                "bert-tf convert makes of it."
            )
    load_checkpoint(source).require_tokenizer(f"`folder`={folder}")
    if not has_weights(source):
        raise UserError(
            f"`folder`={folder}: its weights are a pickle, which may hold any "
            "program; write others with bert-tf convert."
        )
    names = sorted(
        path.relative_to(source).as_posix()
        for pattern in (*MODEL_FILES, CARD_FILE)
        for path in source.glob(pattern)
    )
    if CARD_FILE not in names:
        log(f"{folder}: has no {CARD_FILE} that describes the model")
    target = os.fspath(to)
    if target.startswith(HUGGING_FACE):
        return _to_hugging_face(source, target, names, private)
    if re.match(r"[A-Za-z][\w+.-]*://", target):
        raise UserError(
            f"`to`={target}: unknown kind of place; write "
            f"{HUGGING_FACE}organisation/name, or a folder."
        )
    with new_folder(target, "to") as beside:
        for name in names:
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, beside / name)
    return target


def _to_hugging_face(
    source: pathlib.Path, target: str, names: list[str], private: bool
) -> str:
    """Uploads files in one commit."""
    require_extra("hub", target)
    import huggingface_hub
    from huggingface_hub import errors

    name = target.removeprefix(HUGGING_FACE)
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name):
        raise UserError(
            f"`to`={target}: is no name of a model; write "
            f"{HUGGING_FACE}organisation/name."
        )
    if huggingface_hub.get_token() is None:
        raise UserError(
            f"`to`={target}: there is no token of huggingface.co; log in with "
            "`hf auth login`, or set HF_TOKEN."
        )
    if not hugging_face_answers(name):
        raise UserError(
            f"`to`={target}: huggingface.co cannot be reached; try again, or "
            "push to a folder."
        )
    api = huggingface_hub.HfApi(library_name="bert_tf")
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=source,
            allow_patterns=names,
            commit_message="Push a model of bert_tf",
        )
    # ValueError: a name or metadata that the hub does not accept.
    except (OSError, ValueError, errors.HTTPError) as error:
        raise UserError(
            f"`to`={target}: the hub refuses ({one_line(error)})."
        ) from None
    return str(address)
