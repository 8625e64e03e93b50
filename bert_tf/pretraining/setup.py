"""Checks that a recipe, its records and its models fit each other."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.architecture_list import find_architecture
from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import (
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    Checkpoint,
)
from bert_tf.checkpoints.tokenizers import read_vocabulary_file
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.pretraining.objective import ObjectiveTraits
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.progress import log
from bert_tf.records.folder import RecordFolder
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_protocol import Tokenizer, TokenizerData
from bert_tf.training.run_folder import digest
from bert_tf.user_modules import is_user_module

_HOW_TO_FIT = "; bert-tf convert --vocab_file fits a model to it"


def open_records(
    recipe: PretrainingRecipe, traits: ObjectiveTraits
) -> list[RecordFolder]:
    """Opens the records of each phase with the targets of the objective.

    Args:
      recipe: the settings of the run.
      traits: the traits of its objective.

    Raises:
      UserError: the records or the settings of masking do not fit the
        objective.
    """
    folders = []
    for name in recipe.folders:
        folder = RecordFolder.open(name)
        if traits.reads_next_tokens:
            folder = folder.with_next_tokens()
        folder = folder.with_masks(**{**traits.masks, **recipe.mask_settings()})
        if folder.recipe is not None:
            _check_labels(recipe.objective, name, folder.recipe, traits)
        folders.append(folder)
    return folders


def _check_labels(
    objective: str, name: str, records: RecordsRecipe, traits: ObjectiveTraits
) -> None:
    """Raises `UserError` if an objective cannot learn the records' labels."""
    share = records.random_next_prob
    if NEXT_SENTENCE not in traits.heads:
        if records.takes_random_texts:
            log(
                f"{name}: made with random_next_prob={share:g}, so second "
                "texts may be of other documents, which only next sentence "
                "prediction needs; without it use records made with 0, as "
                "the paper does."
            )
    elif records.sequences != traits.sequences:
        raise UserError(
            f"`data_dir`={name}: holds {records.sequences}, and `objective`="
            f"{objective} learns the labels of {traits.sequences}; choose "
            f"{records.objective}, or make such records, by "
            "bert-tf create-pretraining-data "
            f"--sequences={traits.sequences}."
        )
    elif not share:
        raise UserError(
            f"`data_dir`={name}: every second text follows the first "
            "(random_next_prob=0), so there is no next sentence to learn for "
            f"`objective`={objective}; choose another one, such as "
            "masked_lm, or other records."
        )


def choose_tokenizer(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    models: Mapping[str, Checkpoint | None],
) -> Tokenizer:
    """Returns the tokenizer of the records, equal for all phases and models.

    Args:
      recipe: the settings of the run.
      folders: the records of each phase.
      models: name of a setting, such as init_from, to its model.

    Raises:
      UserError: the vocabularies or tokenizers differ, or there is none.
    """
    sources: list[tuple[str, TokenizerData]] = []
    if recipe.vocab_file:
        name = f"`vocab_file`={recipe.vocab_file}"
        sources.append((name, read_vocabulary_file(recipe.vocab_file)))
    for name, folder in zip(recipe.folders, folders, strict=True):
        if folder.tokenizer is not None:
            sources.append((f"`data_dir`={name}", folder.tokenizer))
        elif not recipe.vocab_file:
            raise UserError(
                f"`data_dir`={name}: these records do not carry their "
                "vocabulary; pass `vocab_file`."
            )
    for setting, model in models.items():
        if model is not None and model.tokenizer is not None:
            name = f"`{setting}`={getattr(recipe, setting)}"
            sources.append((name, model.tokenizer))
    first, chosen = sources[0]
    for name, other in sources[1:]:
        if other.vocabulary.tokens != chosen.vocabulary.tokens:
            hint = _HOW_TO_FIT * name.startswith("`init_from`")
            raise UserError(
                f"{name}: another vocabulary than that of {first}{hint}."
            )
        settings, expected = (
            each.settings() | each.vocabulary.special.to_dict()
            for each in (other, chosen)
        )
        for key, value in expected.items():
            if settings.get(key) != value:
                raise UserError(
                    f"{name}: {key} is {settings.get(key)}, and {value} in "
                    f"{first}."
                )
    try:
        return chosen.tokenizer()
    except UserError as error:
        raise UserError(f"{first}: {error}") from None


def choose_configuration(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    vocabulary: TokenTable,
    initial: Checkpoint | None,
    traits: ObjectiveTraits,
) -> BertConfig:
    """Returns the architecture, checked against records and objective."""
    if recipe.config_file:
        source = f"`config_file`={recipe.config_file}"
        config = BertConfig.from_json(recipe.config_file)
    elif recipe.size:
        source = f"`size`={recipe.size}"
        kind = ElectraConfig if traits.detects_replaced_tokens else BertConfig
        if name := recipe.architecture:
            source = f"`architecture`={name}"
            kind = find_architecture(name, source).config
        config = kind.from_size(recipe.size, len(vocabulary))
        if traits.reads_next_tokens:
            config = dataclasses.replace(config, causal=True)
    elif initial is not None:
        source = f"`init_from`={recipe.init_from}"
        config = initial.config
    else:
        raise UserError("give `size`, `config_file` or `init_from`.")
    if POOLER in traits.heads and not config.has_pooler:
        raise UserError(
            f"{source}: {config.model_type} has no pooler, which "
            f"`objective`={recipe.objective} trains; choose masked_lm."
        )
    if traits.reads_next_tokens and not config.causal:
        raise UserError(
            f"{source}: causal is false, so each token sees the next one, "
            f"which `objective`={recipe.objective} predicts; give `size`, or "
            "an architecture whose causal is true."
        )
    if traits.detects_replaced_tokens and not isinstance(config, ElectraConfig):
        raise UserError(
            f"{source}: its model_type is {config.model_type}, and "
            f"`objective`={recipe.objective} pre-trains electra; give an "
            "electra, or `size` alone."
        )
    if config.bilstm:
        raise UserError(
            f"{source}: bilstm is true; a BiLSTM is for fine-tuning only, so "
            "pre-train a model without it."
        )
    if config.lora_rank:
        raise UserError(
            f"{source}: lora_rank is {config.lora_rank}; LoRA is for "
            "fine-tuning only, so pre-train a model without it."
        )
    if config.vocab_size != len(vocabulary):
        raise UserError(
            f"{source}: vocab_size is {config.vocab_size}, but the records "
            f"were built with a vocabulary of {len(vocabulary)} tokens"
            + _HOW_TO_FIT * (initial is not None)
            + "."
        )
    _check_lengths(recipe, folders, config, source)
    return config


def _check_lengths(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    config: BertConfig,
    source: str,
) -> None:
    """Raises `UserError` if records are longer than a model's input."""
    for name, folder in zip(recipe.folders, folders, strict=True):
        if folder.max_seq_length > config.longest_input:
            raise UserError(
                f"`data_dir`={name}: max_seq_length {folder.max_seq_length} "
                f"is above the longest input of {source}, "
                f"{config.longest_input}."
            )


def check_teacher(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    teacher: Checkpoint,
    student: BertConfig,
    traits: ObjectiveTraits,
) -> None:
    """Checks that a teacher fits the student, the records and the objective.

    Args:
      recipe: the settings of the run.
      folders: the records of each phase.
      teacher: the teacher's checkpoint.
      student: the student's architecture.
      traits: the traits of the objective.

    Raises:
      UserError: it has no masked LM head or other inputs than the student, or
        the objective predicts no tokens.
    """
    source, config = f"`teacher`={recipe.teacher}", teacher.config
    if traits.detects_replaced_tokens:
        raise UserError(
            f"{source}: does not apply to `objective`={recipe.objective}, "
            "whose model predicts no words; choose masked_lm."
        )
    if MASKED_LM not in teacher.heads:
        raise UserError(
            f"{source}: has no masked LM head, whose distributions over "
            "tokens the student is to learn; give a pre-trained model."
        )
    for name in ("vocab_size", "causal"):
        value, expected = getattr(config, name), getattr(student, name)
        if value != expected:
            raise UserError(
                f"{source}: {name} is {value}, and {expected} of the student; "
                "give a teacher with the same one."
            )
    _check_lengths(recipe, folders, config, source)


def fingerprint(
    config: BertConfig,
    folders: Sequence[RecordFolder],
    objective: str,
    frozen: Mapping[str, np.ndarray],
    teacher: Mapping[str, np.ndarray],
) -> dict[str, str]:
    """Returns digests of everything that must not change when a run resumes.

    Args:
      config: the architecture.
      folders: the records of each phase.
      objective: its name, or the path of its file.
      frozen: untrained weights of init_from, which no state holds.
      teacher: weights of the teacher; empty without one.
    """
    records = [
        [file.path.name, file.records, file.path.stat().st_size]
        for folder in folders
        for file in folder.training_files
    ]
    recipes = [folder.recipe.to_dict() for folder in folders if folder.recipe]
    digests = {
        "architecture": digest(config.to_dict()),
        "records": digest([records, recipes]),
    }
    if is_user_module(objective):
        content = pathlib.Path(objective).read_bytes()
        digests["objective file"] = hashlib.sha256(content).hexdigest()
    sets = {"set of frozen weights": frozen, "teacher": teacher}
    for name, arrays in sets.items():
        if arrays:
            # Array by array, since they are loaded on access.
            total = hashlib.sha256()
            for array in arrays.values():
                total.update(array.tobytes())
            digests[name] = total.hexdigest()
    return digests
