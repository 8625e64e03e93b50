"""A small model for words in several scripts, and texts for it."""

import functools
import pathlib

import numpy as np
from model_helpers import fill, small_config

from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

TOKENS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat dog ##s sat on mat uber cafe "
    "run ##ning ##n , . ! 我 们 爱 | e naive hello world it ' s x ##x"
).split()
WORDS = (
    "the a cat dogs sat on mat Über café running naïve Hello world x".split()
)
POSITIONS = 24


def small_encoder(dtype: str | None = None, **changes) -> BertEncoder:
    """Three layers of width 24 with distinct weights."""
    changes.setdefault("vocab_size", len(TOKENS))
    config = small_config(
        num_hidden_layers=3, max_position_embeddings=POSITIONS, **changes
    )
    return fill(BertEncoder(config, dtype=dtype), seed=3)


def small_tokenizer() -> BertTokenizer:
    return BertTokenizer(TOKENS)


def some_texts(count: int = 40, longest: int = 15, seed: int = 0) -> list[str]:
    """Sentences of 0 to `longest` words in random order."""
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice(WORDS, random.integers(0, longest + 1)))
        for _ in range(count)
    ]


def save_model(folder: pathlib.Path, with_pooler: bool = True) -> str:
    """Writes the model as a folder."""
    encoder = small_encoder()
    arrays = {
        name: array
        for name, array in encoder.to_arrays().items()
        if with_pooler or "pooler" not in name
    }
    checkpoint = Checkpoint(
        encoder.config, arrays, Vocabulary(TOKENS), lower_case=True
    )
    save_checkpoint(folder, checkpoint)
    return str(folder)


@functools.cache
def alone(encoder: BertEncoder, tokenizer: BertTokenizer, text) -> dict:
    """The outputs of the encoder for a single text, in NumPy."""
    parts = (text,) if isinstance(text, str) else text
    vocabulary = tokenizer.vocabulary
    ids, segments = [vocabulary.cls_id], [0]
    for segment, part in enumerate(parts):
        own = [*tokenizer.tokenize(part).numpy().tolist(), vocabulary.sep_id]
        ids += own
        segments += [segment] * len(own)
    row = np.array([ids], np.int32)
    outputs = encoder(
        {
            "input_ids": row,
            "input_mask": np.ones_like(row),
            "segment_ids": np.array([segments], np.int32),
        },
        training=False,
        return_all_layers=True,
    )
    layers = [outputs["embedding_output"], *outputs["all_encoder_layers"]]
    return {
        "ids": row[0],
        "segments": np.array(segments),
        "layers": np.stack([layer.numpy()[0] for layer in layers]),
        "pooled": outputs["pooled_output"].numpy()[0],
    }
