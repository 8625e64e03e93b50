"""Loads the tokenizer of a model folder, by the model's architecture."""

import itertools
import os
import pathlib
from collections.abc import Iterable

from bert_tf.architecture_list import ARCHITECTURES, find_architecture
from bert_tf.checkpoints.recognition import HUGGING_FACE_CONFIG, OWN_CONFIG
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.recipe import read_json_object
from bert_tf.sources import (
    is_static_embedding,
    local_folder,
    transformer_folder,
)
from bert_tf.text.tokenizer_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    OtherRules,
    model_type,
)
from bert_tf.text.tokenizer_protocol import (
    Tokenizer,
    TokenizerData,
    no_vocabulary,
)
from bert_tf.text.wordpiece import WordPiece


def _all_kinds() -> tuple[type[TokenizerData], ...]:
    from bert_tf.text.byte_bpe import ByteLevelBpe
    from bert_tf.text.unigram import Unigram

    kinds = (find_architecture(n, "the list").tokenizer for n in ARCHITECTURES)
    return tuple(dict.fromkeys((ByteLevelBpe, Unigram, *kinds)))


def tokenizer_files(folder: pathlib.Path | None = None) -> tuple[str, ...]:
    """Returns the names of tokenizer files in our folders.

    They are those of all kinds or, given a folder, of the kind that it holds.
    """
    kinds: Iterable[type[TokenizerData]] = reversed(_all_kinds())
    if folder is not None:
        found = (k for k in kinds if (folder / k.FILES[0]).exists())
        kinds = itertools.islice(found, 1)
    names = (name for kind in kinds for name in kind.FILES)
    return (*dict.fromkeys(names), TOKENIZER_CONFIG_FILE)


def tokenizer_kind(
    config: BertConfig, folder: pathlib.Path | None = None
) -> type[TokenizerData]:
    """Returns the kind of an architecture's tokenizer, or of a folder's."""
    kind: type[TokenizerData]
    kind = find_architecture(config.model_type, "config").tokenizer
    return kind if folder is None else _kind_in(folder, kind)


def kind_named(name: str) -> type[TokenizerData]:
    """Returns the kind of tokenizer whose class has a name."""
    return {kind.__name__: kind for kind in _all_kinds()}[name]


def _kind_in(
    folder: pathlib.Path, kind: type[TokenizerData]
) -> type[TokenizerData]:
    """Returns the kind of a folder's tokenizer, given its architecture's.

    multilingual-e5-small is a BERT with XLM-R's unigram model, and the table of
    a StaticEmbedding has any tokenizer.
    """
    if any((folder / name).exists() for name in kind.FILES):
        return kind
    if model_type(folder) == "BPE" and is_static_embedding(folder):
        from bert_tf.text.byte_bpe import ByteLevelBpe

        return ByteLevelBpe
    from bert_tf.text.unigram import Unigram

    if issubclass(kind, Unigram) or not Unigram.found_in(folder):
        return kind
    return Unigram


def _kinds_of(folder: pathlib.Path) -> tuple[type[TokenizerData], ...]:
    """Returns the kind of the folder's architecture; all if it is unknown."""
    for name in (OWN_CONFIG, HUGGING_FACE_CONFIG):
        values = read_json_object(folder / name, missing_ok=True)
        # The bert_config.json of a BERT has no model_type.
        is_own = values and name == OWN_CONFIG
        default = BertConfig.model_type if is_own else ""
        named = values.get("model_type", default)
        if isinstance(named, str) and named in ARCHITECTURES:
            kind = find_architecture(named, name).tokenizer
            return (_kind_in(folder, kind),)
    return _all_kinds()


def read_tokenizer(
    folder: pathlib.Path, lower_case: bool | None = None, notify: bool = True
) -> TokenizerData:
    """Reads the tokenizer of a folder of a model, or of records.

    Args:
      folder: a folder on this machine.
      lower_case: whether text is lower-cased; None as the folder states.
      notify: whether contradictions in its files are logged.

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
      path: the file; one with an unknown name is read as WordPiece tokens.
      lower_case: see `TokenizerData.of_file`.

    Raises:
      UserError: the file is malformed, or contradicts `lower_case`.
    """
    path = pathlib.Path(path)
    if path.name in WordPiece.FILES:
        return WordPiece.of_file(path, lower_case)
    from bert_tf.text import byte_bpe, unigram

    # Files of other programs' folders that are named otherwise than ours.
    other_names: dict[str, type[TokenizerData]] = {
        unigram.FAIRSEQ_FILE: unigram.Unigram,
        unigram.GOOGLE_FILE: unigram.AlbertUnigram,
        byte_bpe.VOCABULARY_FILE: byte_bpe.ByteLevelBpe,
        byte_bpe.MERGES_FILE: byte_bpe.ByteLevelBpe,
    }
    kinds = (kind for kind in _all_kinds() if path.name in kind.FILES)
    kind = next(kinds, other_names.get(path.name, WordPiece))
    if path.name == TOKENIZER_FILE and unigram.Unigram.found_in(path.parent):
        kind = unigram.Unigram
    return kind.of_file(path, lower_case)


def load_tokenizer(
    source: str | os.PathLike, split_special_tokens: bool = True
) -> Tokenizer:
    """Loads the tokenizer of a model.

    Args:
      source: a model folder of any family, or a hub's name of one; see
        `bert_tf.load_checkpoint`.
      split_special_tokens: whether special tokens in text are split like other
        text; added tokens are always matched.

    Raises:
      UserError: the source or its vocabulary is missing or damaged, or its
        files require rules that the tokenizer does not implement.
    """
    folder = transformer_folder(local_folder(source))
    return make_tokenizer(read_tokenizer(folder), folder, split_special_tokens)


def make_tokenizer(
    data: TokenizerData,
    folder: pathlib.Path,
    split_special_tokens: bool = True,
) -> Tokenizer:
    """Makes the tokenizer of data that were read from a folder.

    Raises:
      UserError: as `load_tokenizer`.
    """
    try:
        return data.tokenizer(split_special_tokens)
    except OtherRules:
        # Names its file.
        raise
    except UserError as error:
        raise UserError(f"{folder / data.FILES[0]}: {error}") from None
