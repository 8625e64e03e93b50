"""Sentence embeddings: one vector per text."""

from collections.abc import Iterable

import numpy as np

from bert_tf.config import AUTO, FLOAT32, KERAS, TEXT_POOLINGS
from bert_tf.errors import check_choice
from bert_tf.families.data.similarity import normalized
from bert_tf.families.pretrained.settings import Settings
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.vectors import Model, open_for_texts, text_vectors
from bert_tf.progress import log
from bert_tf.text.given_texts import Text, members


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
    """Computes embeddings of texts.

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
    check_choice("`pooling`", pooling, TEXT_POOLINGS)
    settings = Settings(
        (layer,), pooling, max_seq_length, batch_size, prompt_name
    )
    is_one = isinstance(texts, str)
    given = [texts] if is_one else members(texts, "`texts`")
    is_loaded = isinstance(model, tuple | list | LoadedModel)
    if precision == AUTO and (is_one or is_loaded):
        precision = FLOAT32
    opened, _, rows, note = open_for_texts(
        model, given, settings, precision, runtime
    )
    if note:
        log(f"{model}: computed by {opened.computed_by}{note}.")
    none = np.zeros((0, opened.width), np.float32)
    chunks = text_vectors(opened, rows)
    vectors = np.concatenate([none, *(chunk.vectors[:, 0] for chunk in chunks)])
    if normalize:
        vectors = normalized(vectors)
    return vectors[0] if is_one else vectors
