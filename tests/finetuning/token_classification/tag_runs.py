"""Tiny CoNLL-style files and recipes, for tests of whole runs of taggers."""

import dataclasses
import pathlib

import numpy as np

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.finetuning.recipe import TagRecipe
from bert_tf.finetuning.token_classification.task import (
    ConllFolder,
    TokenClassificationTask,
)
from tests.finetuning.sentence_runs import BAD, FILLER, GOOD, model_folder

FILES = {
    "train": ("eng.train", "train.txt"),
    "dev": ("eng.testa", "valid.txt"),
    "test": ("eng.testb", "test.txt"),
}
TASK = TokenClassificationTask(name="names", data=ConllFolder("names", FILES))
DEV_SENTENCES, TEST_SENTENCES = 14, 9


def conll(count: int, seed: int, sentences_of_document: int = 4) -> str:
    """Sentences whose good words are PER and bad words LOC, in IOB1.

    Some words are of several sub-tokens, which their hyphens divide.
    """
    random = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        if number % sentences_of_document == 0:
            lines += ["-DOCSTART- -X- O O", ""]
        for _ in range(int(random.integers(1, 6))):
            kind = ("PER", "LOC")[int(random.random() < 0.5)]
            words = (GOOD, BAD)[kind == "LOC"]
            name = str(random.choice(words))
            if random.random() < 0.3:
                name = f"{name}-{random.choice(words)}"
            filler = random.choice(FILLER, int(random.integers(1, 4)))
            lines += [f"{word} N I-NP O" for word in filler]
            lines.append(f"{name} N I-NP I-{kind}")
        lines.append("")
    return "\n".join(lines) + "\n"


def write_files(folder: pathlib.Path, train: int = 60) -> pathlib.Path:
    """The three files of a data set."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = (train, DEV_SENTENCES, TEST_SENTENCES)
    for seed, (names, count) in enumerate(
        zip(FILES.values(), counts, strict=True)
    ):
        (folder / names[0]).write_text(conll(count, seed))
    return folder


def word_model(folder: pathlib.Path, **changes) -> pathlib.Path:
    """An encoder that tells words apart before it has learned anything."""
    rough = load_checkpoint(model_folder(folder.with_name("rough"), **changes))
    arrays = {
        name: array
        if "LayerNorm" in name
        else array * (3.0 if "word_embeddings" in name else 0.3)
        for name, array in rough.arrays.items()
    }
    save_checkpoint(folder, dataclasses.replace(rough, arrays=arrays))
    return folder


def small_settings(init_from: pathlib.Path, **changes) -> dict:
    return {
        "init_from": str(init_from),
        "max_seq_length": 32,
        "train_batch_size": 8,
        "eval_batch_size": 4,
        "learning_rate": 2e-2,
        "num_train_epochs": 4.0,
        "log_steps": 3,
        "save_checkpoints_steps": 4,
        **changes,
    }


def tag_recipe(
    init_from: pathlib.Path, data_dir: pathlib.Path, **changes
) -> TagRecipe:
    settings = {"task": "names", "score_test": True, **changes}
    return TagRecipe(
        data_dir=str(data_dir), **small_settings(init_from, **settings)
    )
