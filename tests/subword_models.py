"""Small models of other architectures than BERT, with trained tokenizers."""

import collections
import functools
import pathlib
from typing import Any

import numpy as np

import bert_tf
from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import encoder_class
from bert_tf.families.model_folder import save_model
from bert_tf.families.task_model import TaskModel
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.subword_trainers import ByteBpeTrainer, UnigramTrainer
from bert_tf.text.token_table import Packing, SpecialTokens
from bert_tf.text.tokenizer_protocol import TokenizerData
from bert_tf.text.vocabulary_trainer import VocabularyTrainer
from tests.finetuning.sentence_runs import BAD, FILLER, GOOD
from tests.inference.model_folders import HEADS
from tests.model_helpers import fill

NAMES = ("roberta", "xlm-roberta", "albert", "modernbert")
_CHANGES: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "modernbert": {"local_attention": 8},
}


def _corpus() -> list[str]:
    """Sentences with and without punctuation."""
    random = np.random.default_rng(0)
    words = [*GOOD, *BAD, *FILLER]
    return [" ".join(random.choice(words, 9)) for _ in range(200)] + [
        f"{part} {word} in Berlin, it's a plot. {word}-{part}"
        for part in ("the (plot),", "it's", "U.N.", "12,5 1999-08-22 who ?")
        for word in words
    ]


def _learned(trainer: VocabularyTrainer) -> TokenizerData:
    counts: collections.Counter[str] = collections.Counter()
    counts.update(trainer.words(_corpus()))
    return trainer.learn(counts).data


@functools.cache
def tokenizer_of(name: str) -> TokenizerData:
    """The tokenizer of an architecture, with tokens of several letters."""
    if name == "xlm-roberta":
        return _learned(UnigramTrainer(66))
    if name == "albert":
        return _learned(UnigramTrainer(66, lower_case=True, strip_accents=True))
    if name == "roberta":
        return _learned(ByteBpeTrainer(330))
    data = tokenizer_of("roberta")
    assert isinstance(data, ByteLevelBpe)
    # As in ModernBERT's files, special tokens are the last.
    special = SpecialTokens()
    tokens = [*data.tokens[4:-1], *special.present]
    ids = {token: number for number, token in enumerate(tokens)}
    end = (ids["[SEP]"],)
    return ByteLevelBpe(
        tokens,
        data.merges,
        special,
        nfc=True,
        trim_offsets=False,
        packing=Packing((ids["[CLS]"],), end, end, 0, ids["[PAD]"]),
    )


def config_of(name: str, **changes: Any) -> BertConfig:
    """The configuration of a small model."""
    values = {
        "vocab_size": len(tokenizer_of(name).vocabulary),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 42,
        "model_type": name,
        **_CHANGES.get(name, {}),
        **changes,
    }
    return BertConfig.from_dict(values, "the folder")


def write_encoder(
    folder: pathlib.Path, name: str, **changes: Any
) -> pathlib.Path:
    """An encoder whose initial outputs differ between words."""
    config = config_of(name, **changes)
    encoder = encoder_class(config)(config)
    arrays = fill(encoder, seed=3, scale=0.3).to_arrays()
    words, *_ = arrays
    for key in arrays:
        if not key.endswith(("gamma", "beta")):
            arrays[key] *= 3.0 if key == words else 0.3
    checkpoint = Checkpoint(config, arrays).with_tokenizer(tokenizer_of(name))
    save_checkpoint(folder, checkpoint)
    return folder


def write_model(
    folder: pathlib.Path, name: str, kind: str, **changes: Any
) -> pathlib.Path:
    """A model of a kind of `HEADS`, or "pretrained", of random weights."""
    config, data = config_of(name, **changes), tokenizer_of(name)
    if kind == "pretrained":
        model = fill(BertPretrainer(config), seed=5, scale=0.5)
        checkpoint = bert_tf.Checkpoint(config, model.to_arrays())
        save_checkpoint(folder, checkpoint.with_tokenizer(data))
        return folder
    facts, build = HEADS[kind]
    model = TaskModel(build(encoder_class(config)(config)))
    fill(model, seed=5, scale=0.5)
    save_model(folder, model, data.tokenizer(), facts)
    return folder
