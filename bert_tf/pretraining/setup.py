"""Whether a recipe, its records and its folder fit each other."""

import pathlib
from collections.abc import Sequence

from bert_tf.checkpoints import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.records.folder import RecordFolder
from bert_tf.sources import local_folder
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    read_tokenizer_config,
)
from bert_tf.text.tokenizer_files import require_vocabulary
from bert_tf.text.vocabulary import VOCABULARY_FILE, Vocabulary
from bert_tf.training.run_folder import digest

_HOW_TO_FIT = "; tools.convert_checkpoint --vocab_file fits a model to it"


def choose_tokenizer(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    initial: Checkpoint | None,
) -> BertTokenizer:
    """The tokenizer that made the records, the same for all phases.

    Args:
      recipe: what to do.
      folders: the records of each phase.
      initial: what init_from names.
    """
    sources: list[tuple[str, Vocabulary, TokenizerConfig]] = []
    if recipe.vocab_file:
        path = pathlib.Path(recipe.vocab_file)
        sources.append(_read_vocabulary(f"`vocab_file`={path}", path))
    for name, folder in zip(recipe.folders, folders, strict=True):
        if folder.vocabulary is not None:
            assert folder.tokenizer_config is not None
            sources.append(
                (
                    f"`data_dir`={name}",
                    folder.vocabulary,
                    folder.tokenizer_config,
                )
            )
        elif not recipe.vocab_file:
            raise UserError(
                f"`data_dir`={name}: these records do not carry their "
                "vocabulary; pass `vocab_file`."
            )
    if initial is not None and initial.vocabulary is not None:
        name = f"`init_from`={recipe.init_from}"
        # Says so where its rules are of another kind.
        config = read_tokenizer_config(
            local_folder(recipe.init_from), initial.vocabulary
        )
        sources.append((name, initial.vocabulary, config))
    first, vocabulary, config = sources[0]
    for name, other, other_config in sources[1:]:
        if other.digest() != vocabulary.digest():
            hint = _HOW_TO_FIT * name.startswith("`init_from`")
            raise UserError(
                f"{name}: another vocabulary than that of {first}{hint}."
            )
        theirs = other_config.to_dict(vocabulary)
        for key, value in config.to_dict(vocabulary).items():
            if theirs[key] != value:
                raise UserError(
                    f"{name}: {key} is {theirs[key]}, and {value} in {first}."
                )
    return BertTokenizer.from_config(vocabulary, config)


def _read_vocabulary(
    name: str, path: pathlib.Path
) -> tuple[str, Vocabulary, TokenizerConfig]:
    vocabulary = Vocabulary.from_file(path)
    if path.name == VOCABULARY_FILE:
        vocabulary = require_vocabulary(path.parent)
        return name, vocabulary, read_tokenizer_config(path.parent, vocabulary)
    return name, vocabulary, TokenizerConfig.of(not vocabulary.looks_cased())


def choose_configuration(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    vocabulary: Vocabulary,
    initial: Checkpoint | None,
) -> BertConfig:
    """The architecture, checked against the records and their vocabulary."""
    if recipe.config_file:
        source = f"`config_file`={recipe.config_file}"
        config = BertConfig.from_json(recipe.config_file)
    elif recipe.size:
        source = f"`size`={recipe.size}"
        config = BertConfig.from_size(recipe.size, len(vocabulary))
    elif initial is not None:
        source = f"`init_from`={recipe.init_from}"
        config = initial.config
    else:
        raise UserError("give `size`, `config_file` or `init_from`.")
    if config.vocab_size != len(vocabulary):
        raise UserError(
            f"{source}: vocab_size is {config.vocab_size}, but the records "
            f"were built with a vocabulary of {len(vocabulary)} tokens"
            + _HOW_TO_FIT * (initial is not None)
            + "."
        )
    for name, folder in zip(recipe.folders, folders, strict=True):
        if folder.max_seq_length > config.max_position_embeddings:
            raise UserError(
                f"`data_dir`={name}: max_seq_length {folder.max_seq_length} "
                f"is above max_position_embeddings "
                f"{config.max_position_embeddings} of {source}."
            )
    return config


def fingerprint(
    config: BertConfig, folders: Sequence[RecordFolder]
) -> dict[str, str]:
    """Digests of what must be the same when a run is resumed."""
    records = [
        [file.path.name, file.records, file.path.stat().st_size]
        for folder in folders
        for file in folder.training_files
    ]
    recipes = [folder.recipe.to_dict() for folder in folders if folder.recipe]
    return {
        "architecture": digest(config.to_dict()),
        "records": digest([records, recipes]),
    }
