"""Sentence embeddings: one vector per text."""

import os
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from bert_tf.config import AUTO, KERAS, TEXT_POOLINGS
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, check_choice
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.sentence_vectors import SHORTEST
from bert_tf.inference.precision import FLOAT32, choose, difference_of_vectors
from bert_tf.inference.vectors import Extractor
from bert_tf.progress import log
from bert_tf.text.given_texts import Text, members
from bert_tf.text.tokenizer_protocol import Tokenizer

Pair = tuple[BertEncoder, Tokenizer]


@runtime_checkable
class HasExtractor(Protocol):
    """A model that has its own `Extractor`, as `LoadedModel`."""

    def extractor(self, settings: Settings) -> Extractor:
        """Returns the extractor of these settings."""


Model = str | os.PathLike | Pair | HasExtractor


class Embedder:
    """Computes embeddings; see `embed` for the arguments."""

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
        runtime: str = KERAS,
    ):
        check_choice("`pooling`", pooling, TEXT_POOLINGS)
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
                model, settings, precision, runtime
            )
            return
        if runtime != KERAS:
            raise UserError(
                f"`runtime`={runtime}: the model is loaded already; give it to "
                "bert_tf.load, or give the model's folder."
            )
        own = self.extractor.model.encoder.dtype_policy.name
        if precision not in ("float32", own):
            raise UserError(
                f"precision={precision}: the encoder has {own} already; "
                "make it with that dtype, or give the model's folder."
            )

    def __call__(self, texts: str | Iterable[Text]) -> np.ndarray:
        """Computes embeddings; see `embed`."""
        if isinstance(texts, str):
            (vectors,) = self.stream([texts])
            return vectors[0]
        none = np.zeros((0, self.extractor.model.width), np.float32)
        return np.concatenate([none, *self.stream(texts)])

    def stream(self, texts: Iterable[Text]) -> Iterator[np.ndarray]:
        """Yields the embeddings of consecutive texts, float32 [R, D]."""
        for chunk in self.extractor.chunks(members(texts, "`texts`")):
            vectors = chunk.vectors[:, 0]
            if self.normalize:
                norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                vectors = vectors / np.maximum(norms, SHORTEST)
            yield vectors


def embed(
    model: Model,
    texts: str | Iterable[Text],
    pooling: str = AUTO,
    layer: int = -1,
    normalize: bool = False,
    max_seq_length: int = 0,
    batch_size: int = 32,
    precision: str = AUTO,
    prompt_name: str | None = None,
    runtime: str = KERAS,
) -> np.ndarray:
    """Computes embeddings of texts; see `Embedder` for repeated calls.

    A folder of sentence-transformers (with modules.json) gives the vectors of
    `SentenceTransformer(folder).encode(texts)`: its pooling, dense layers,
    normalisation, prompts and maximum length are applied. An explicit `pooling`
    or another layer than the last ignores them, and uses the Transformer's
    full length. Any other folder gives the mean of the last layer.

    Texts are read some thousands at a time and batched by length. Padding does
    not affect the vectors.

    Args:
      model: a model folder, a model on a hub (hf://organisation/name), an
        encoder with its tokenizer, or a model of `bert_tf.load`, which is
        reused.
      texts: an iterable of strings or pairs of strings; or one string.
      pooling: "auto", the folder's pooling or else "mean"; "mean" or "max",
        over all tokens including [CLS] and [SEP]; "cls", the vector of [CLS],
        for a causal model of the last [SEP]; or "pooled", the pooler's output
        (tanh).
      layer: 0 for the embeddings, 1 to L for the output of a Transformer
        layer; or -1 to -L, counted from the last.
      normalize: whether to divide each vector by its length.
      max_seq_length: longest text in tokens, with [CLS] and [SEP]. Longer texts
        are truncated, and a line on standard error counts them. 0: the folder's
        maximum, or else the model's.
      batch_size: number of texts of 128 tokens in a batch; other batches have
        the same number of tokens.
      precision: float32, mixed_bfloat16 or mixed_float16, if the model is
        loaded here. "auto": more than 256 texts are computed in bfloat16 on a
        CPU that has it, if the cosine of each of the first 256 vectors with
        that in float32 is at least 0.999, which a line on standard error
        says; otherwise in float32.
      prompt_name: name of the folder's prompt to prepend to each text, such as
        "query"; None uses its default_prompt_name, if there is one.
      runtime: what computes the encoder, if the model is loaded here; see
        `bert_tf.load`.

    Returns:
      float32 [N, D], in the order of the texts; [D] for one string. D is H or
      the width of the folder's last module.

    Raises:
      UserError: there is no such model or it has no vocabulary, its modules
        are malformed or unknown, or an argument or a text is invalid.
    """

    def opened(precision: str, runtime: str) -> Embedder:
        return Embedder(
            model,
            pooling,
            layer,
            normalize,
            max_seq_length,
            batch_size,
            precision,
            prompt_name,
            runtime,
        )

    is_loaded = isinstance(model, tuple | list | HasExtractor)
    if precision != AUTO:
        return opened(precision, runtime)(texts)
    if is_loaded or isinstance(texts, str):
        return opened(FLOAT32, runtime)(texts)
    embedder, _, rows, note = choose(
        opened,
        runtime,
        lambda embedder: embedder.extractor.model,
        lambda embedder: iter(members(texts, "`texts`")),
        lambda embedder, rows: embedder.extractor.first_vectors(rows),
        difference_of_vectors,
    )
    if note:
        computed = embedder.extractor.model.computed_by
        log(f"{model}: computed by {computed}{note}.")
    return embedder(rows)
