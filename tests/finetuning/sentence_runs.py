"""A tiny model folder and tasks in memory, for tests of whole runs."""

import dataclasses
import functools
import pathlib

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.families.data.examples import Example
from bert_tf.families.text_classification.recipe import SentenceRecipe
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary
from tests.model_helpers import fill

GOOD = ["good", "fine", "great", "lovely"]
BAD = ["bad", "dull", "poor", "awful"]
FILLER = ["a", "film", "the", "plot", "was", "and", "very", "it", "so"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *FILLER]


@functools.cache
def tokenizer() -> BertTokenizer:
    return BertTokenizer(TOKENS, lower_case=True)


def model_folder(folder: pathlib.Path, **changes) -> pathlib.Path:
    """An encoder of two layers with distinct weights, as a model folder."""
    values = {
        "vocab_size": len(TOKENS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 40,
        **changes,
    }
    config = BertConfig(**values)
    encoder = fill(BertEncoder(config), seed=3, scale=0.3)
    checkpoint = Checkpoint(
        config, encoder.to_arrays(), Vocabulary(TOKENS), True
    )
    save_checkpoint(folder, checkpoint)
    return folder


def texts(count: int, seed: int, pairs: bool = False) -> list[Example]:
    """Texts of 3 to 20 words, half of them good, or half of them bad."""
    random = np.random.default_rng(seed)
    examples = []
    for number in range(count):
        kind = int(random.random() < 0.4)
        words = list(random.choice(FILLER, random.integers(3, 20)))
        words[::2] = random.choice((BAD, GOOD)[kind], len(words[::2]))
        half = len(words) // 2
        first, second = " ".join(words), None
        if pairs:
            first, second = " ".join(words[:half]), " ".join(words[half:])
        label = ("negative", "positive")[kind]
        examples.append(Example(first, second, label, str(number), number + 2))
    return examples


@dataclasses.dataclass
class Rows:
    """Data of a task in memory."""

    splits: dict[str, list[Example]]

    def present(self, splits, recipe):
        return tuple(split for split in splits if split in self.splits)

    def read(self, split, recipe, labelled):
        return list(self.splits[split])


@dataclasses.dataclass
class FixedRows:
    """Rows in memory, all padded to one length."""

    values: dict[str, np.ndarray]

    @property
    def lengths(self):
        return self.values["input_mask"].sum(axis=1)

    def batch(self, chosen, width=0):
        return {
            name: tf.gather(value, chosen)
            for name, value in self.values.items()
        }

    def __len__(self):
        return len(self.values["example_weights"])


def data(pairs: bool = False, train: int = 92) -> Rows:
    test = [e._replace(label=None) for e in texts(7, 5, pairs)]
    return Rows(
        {
            "train": texts(train, 1, pairs),
            "dev": texts(13, 2, pairs),
            "test": test,
        }
    )


def numbers(rows: Rows) -> Rows:
    """The same texts, with a number that depends on their words."""

    def labelled(example: Example) -> Example:
        if example.label is None:
            return example
        value = 1.0 + 2.0 * (example.label == "positive")
        return example._replace(label=value + 0.01 * example.row)

    return Rows({k: [*map(labelled, v)] for k, v in rows.splits.items()})


def small_recipe(init_from: pathlib.Path, **changes) -> SentenceRecipe:
    values = {
        "task": "mood",
        "init_from": str(init_from),
        "max_seq_length": 32,
        "train_batch_size": 8,
        "eval_batch_size": 4,
        "learning_rate": 1e-2,
        "log_steps": 3,
        "save_checkpoints_steps": 4,
        **changes,
    }
    return SentenceRecipe(**values)
