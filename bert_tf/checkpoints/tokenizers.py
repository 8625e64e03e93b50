"""The tokenizer of a model folder, by the architecture of the model."""

import itertools
import os
import pathlib
from collections.abc import Iterable

from bert_tf.architecture_list import ARCHITECTURES, find_architecture
from bert_tf.checkpoints.recognition import HUGGING_FACE_CONFIG, OWN_CONFIG
from bert_tf.config import BertConfig
from bert_tf.recipe import read_json_object
from bert_tf.sources import local_folder, transformer_folder
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.tokenizer_files import TOKENIZER_CONFIG_FILE
from bert_tf.text.tokenizer_protocol import (
    Tokenizer,
    TokenizerData,
    no_vocabulary,
)
from bert_tf.text.wordpiece import WordPiece


def _all_kinds() -> tuple[type[TokenizerData], ...]:
    """Those of architectures, and what folders without one may hold."""
    kinds = (find_architecture(n, "the list").tokenizer for n in ARCHITECTURES)
    return tuple(dict.fromkeys((ByteLevelBpe, *kinds)))


def tokenizer_files(folder: pathlib.Path | None = None) -> tuple[str, ...]:
    """The files of the tokenizers of all kinds in our own folders.

    Given a folder, only of the kind whose tokens it holds.
    """
    kinds: Iterable[type[TokenizerData]] = reversed(_all_kinds())
    if folder is not None:
        found = (k for k in kinds if (folder / k.FILES[0]).exists())
        kinds = itertools.islice(found, 1)
    names = (name for kind in kinds for name in kind.FILES)
    return (*dict.fromkeys(names), TOKENIZER_CONFIG_FILE)


def tokenizer_kind(config: BertConfig) -> type[TokenizerData]:
    """What makes the tokenizer of an architecture."""
    kind: type[TokenizerData]
    kind = find_architecture(config.model_type, "config").tokenizer
    return kind


def _kinds_of(folder: pathlib.Path) -> tuple[type[TokenizerData], ...]:
    """That of the folder's architecture, or all where no file names one."""
    for name in (OWN_CONFIG, HUGGING_FACE_CONFIG):
        values = read_json_object(folder / name, missing_ok=True)
        # A BERT's own file does not say it.
        usual = BertConfig.model_type if values and name == OWN_CONFIG else ""
        named = values.get("model_type", usual)
        if isinstance(named, str) and named in ARCHITECTURES:
            return (find_architecture(named, name).tokenizer,)
    return _all_kinds()


def read_tokenizer(
    folder: pathlib.Path,
    lower_case: bool | None = None,
    notify: bool = True,
) -> TokenizerData:
    """Reads the tokenizer of a folder of a model, or of records.

    Args:
      folder: a folder on this machine.
      lower_case: whether text is lower-cased; None takes what the folder says.
      notify: whether lines say what is odd in its files.

    Raises:
      UserError: the folder holds no vocabulary, or a file is damaged.
    """
    kinds = _kinds_of(folder)
    for kind in kinds:
        found = kind.read(folder, lower_case, notify=notify)
        if found is not None:
            return found
    raise no_vocabulary(folder, kinds[-1])


def read_vocabulary_file(
    path: str | os.PathLike, lower_case: bool | None = None
) -> TokenizerData:
    """Reads the tokenizer of a vocabulary file, by the name of the file.

    Args:
      path: the file; one of no known name is a list of WordPiece tokens.
      lower_case: see `TokenizerData.of_file`.

    Raises:
      UserError: the file cannot be used, or says otherwise than `lower_case`.
    """
    name = pathlib.Path(path).name
    kinds = (kind for kind in _all_kinds() if name in kind.FILES)
    return next(kinds, WordPiece).of_file(path, lower_case)


def load_tokenizer(
    source: str | os.PathLike, split_special_tokens: bool = True
) -> Tokenizer:
    """Opens the tokenizer of a model, of whatever kind it is.

    Args:
      source: a model folder of any family, or a hub's name of one; see
        `bert_tf.load_checkpoint`.
      split_special_tokens: whether special tokens in text are split as other
        text is; tokens that were added are found either way.

    Raises:
      UserError: the source or its vocabulary is missing or broken, or its
        files ask for rules that the tokenizer does not follow.
    """
    folder = transformer_folder(local_folder(source))
    return read_tokenizer(folder).tokenizer(split_special_tokens)
