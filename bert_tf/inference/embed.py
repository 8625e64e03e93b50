"""One vector for each text."""

import os
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, check_choice
from bert_tf.families.pretrained.settings import (
    AUTO,
    SENTENCE_POOLINGS,
    Settings,
)
from bert_tf.families.sentence_vectors import SHORTEST
from bert_tf.inference.vectors import Extractor
from bert_tf.progress import log
from bert_tf.text.given_texts import Text, members
from bert_tf.text.tokenizer_protocol import Tokenizer

Pair = tuple[BertEncoder, Tokenizer]


@runtime_checkable
class HasExtractor(Protocol):
    """What `bert_tf.load` gives."""

    def extractor(self, settings: Settings) -> Extractor:
        """What computes vectors, the same one for the same settings."""


Model = str | os.PathLike | Pair | HasExtractor


class Embedder:
    """Turns texts into vectors, any number of times; see `embed`."""

    def __init__(
        self,
        model: Model,
        pooling: str = AUTO,
        layer: int = -1,
        normalize: bool = False,
        max_seq_length: int = 0,
        batch_size: int = 32,
        precision: str = "float32",
        prompt_name: str | None = None,
    ):
        check_choice("`pooling`", pooling, SENTENCE_POOLINGS)
        settings = Settings(
            (layer,), pooling, max_seq_length, batch_size, prompt_name
        )
        self.normalize = normalize
        if isinstance(model, tuple | list):
            pair = (BertEncoder, Tokenizer)
            if len(model) != 2 or not all(map(isinstance, model, pair)):
                kinds = ", ".join(type(part).__name__ for part in model)
                raise UserError(
                    f"model: is ({kinds}); give an encoder and its tokenizer, "
                    "or a model folder."
                )
            self.extractor = Extractor(*model, settings)
        elif isinstance(model, HasExtractor):
            self.extractor = model.extractor(settings)
        else:
            self.extractor = Extractor.from_checkpoint(
                model, settings, precision
            )
            return
        own = self.extractor.model.encoder.dtype_policy.name
        if precision not in ("float32", own):
            raise UserError(
                f"precision={precision}: the encoder has {own} already; "
                "make it with that dtype, or give the model's folder."
            )

    def __call__(self, texts: str | Iterable[Text]) -> np.ndarray:
        """Turns texts into vectors; see `embed`."""
        if isinstance(texts, str):
            (found,) = self.stream([texts])
            return found[0]
        none = np.zeros((0, self.extractor.model.width), np.float32)
        return np.concatenate([none, *self.stream(texts)])

    def stream(self, texts: Iterable[Text]) -> Iterator[np.ndarray]:
        """The same, some thousands of texts at a time, float32 [R, D]."""
        num_texts = num_truncated = 0
        for chunk in self.extractor.chunks(members(texts, "`texts`")):
            num_texts += len(chunk.vectors)
            num_truncated += chunk.num_truncated
            vectors = chunk.vectors[:, 0]
            if self.normalize:
                norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                vectors = vectors / np.maximum(norms, SHORTEST)
            yield vectors
        if num_truncated:
            log(
                truncation_line(
                    num_truncated,
                    num_texts,
                    self.extractor.model.max_seq_length,
                )
            )


def embed(
    model: Model,
    texts: str | Iterable[Text],
    pooling: str = AUTO,
    layer: int = -1,
    normalize: bool = False,
    max_seq_length: int = 0,
    batch_size: int = 32,
    precision: str = "float32",
    prompt_name: str | None = None,
) -> np.ndarray:
    """Turns texts into vectors; see `Embedder` for many calls.

    A folder of sentence-transformers (with modules.json) gives the vectors of
    `SentenceTransformer(folder).encode(texts)`: its pooling, dense layers,
    normalisation, prompts and longest row are applied. They are not where
    `pooling` or another layer than the last is asked for: that reads the
    Transformer alone, with as many tokens as it has positions. Any other
    folder gives the mean.

    Texts of like length are computed together, so little is padded, and none
    of it is seen in the vectors. Texts are read some thousands at a time.

    Args:
      model: a model folder or a hub's name of one (hf://organisation/name), an
        encoder with its tokenizer, or, which loads nothing again, what
        `bert_tf.load` gave.
      texts: strings, or pairs of them, any iterable; or one string.
      pooling: "auto", what the folder says, or "mean"; "mean" or "max", over
        all tokens of a text, [CLS] and [SEP] included; "cls", the vector of
        [CLS], of a causal model that of the last [SEP]; or "pooled", what the
        model's pooler makes of that (tanh).
      layer: 0 for the embeddings, 1 to L for the output of a layer of the
        Transformer, or from the last, -1, back to -L.
      normalize: whether to divide every vector by its length.
      max_seq_length: tokens of a text, with [CLS] and [SEP]; longer texts are
        truncated, and one line on standard error counts them. 0: as many as the
        folder says, or as the model has positions.
      batch_size: texts of 128 tokens at a time, or as many tokens in others.
      precision: float32, mixed_bfloat16 or mixed_float16, of a model that is
        loaded here.
      prompt_name: which of the folder's prompts is put before every text, such
        as "query"; None takes its default_prompt_name, if there is one.

    Returns:
      float32 [N, D], in the order of the texts; [D] of one string. D is H, or
      what the folder's modules give.

    Raises:
      UserError: the model is none or has no vocabulary, its modules are
        malformed or not known, or an argument or a text is none.
    """
    embedder = Embedder(
        model,
        pooling,
        layer,
        normalize,
        max_seq_length,
        batch_size,
        precision,
        prompt_name,
    )
    return embedder(texts)


def truncation_line(
    num_truncated: int, num_texts: int, max_seq_length: int
) -> str:
    """A line that counts the texts that were too long."""
    return (
        f"{num_truncated:,} of {num_texts:,} texts have more than "
        f"{max_seq_length} tokens and are truncated (max_seq_length)."
    )
