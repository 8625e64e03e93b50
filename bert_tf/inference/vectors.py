"""Computes vectors of any number of texts, batched by length."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import POOLER, load_checkpoint
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.config import AUTO, KERAS, PER_TOKEN, POOLED, PRECISIONS
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, check_choice
from bert_tf.families.config import check_segments
from bert_tf.families.model_folder import text_tokenizer
from bert_tf.families.pretrained.answers import PretrainedModel, open_pretrained
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.rows import batches_by_length
from bert_tf.features import INPUT_IDS, SEGMENT_IDS
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.precision import choose, difference_of_vectors
from bert_tf.progress import log
from bert_tf.runtimes.runtime import open_runtime
from bert_tf.side_by_side import cores_per_batch, side_by_side
from bert_tf.sources import local_folder
from bert_tf.text.given_texts import Parts, text_parts
from bert_tf.text.layout import (
    HOST,
    EncodedRows,
    pack_rows,
    token_ids,
    tokenize,
    truncate,
)
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_protocol import Tokenizer

Model = str | os.PathLike | tuple[BertEncoder, Tokenizer] | LoadedModel

OFFSETS = "offsets"
# Offset of special tokens, which are not in the text.
NOWHERE = -1
# A chunk, within which texts are sorted by length, has at most this many texts,
# characters and bytes of vectors.
_TEXTS, _CHARACTERS, _BYTES = 4096, 1 << 24, 1 << 29


class Chunk(NamedTuple):
    """Consecutive texts and their vectors.

    Attributes:
      starts: int64 [R + 1], index of the first of the T tokens of each of R
        texts.
      vectors: float32 [R, K, D], or [T, K, H] without pooling.
      tokens: without pooling input_ids, int32 [T]; segment_ids, int32 [T], 1 in
        the second text of a pair; and offsets, int32 [T, 2], begin and end of
        each token in its text, in characters, -1 for special tokens.
    """

    starts: np.ndarray
    vectors: np.ndarray
    tokens: dict[str, np.ndarray]


def open_model(
    model: Model,
    settings: Settings,
    precision: str = "float32",
    runtime: str = KERAS,
) -> PretrainedModel:
    """Opens the model that computes vectors by settings; see `embed`.

    Args:
      model: a model folder; an encoder and its tokenizer; or a loaded model,
        which is opened once for equal settings.
      settings: layers, pooling, the longest row and batches.
      precision, runtime: of a model folder, see `bert_tf.load`.

    Raises:
      UserError: there is no such model or it has no vocabulary; or an argument
        does not fit it.
    """
    if not isinstance(model, tuple | list | LoadedModel):
        check_choice("`precision`", precision, PRECISIONS)
        path = local_folder(model)
        cores = cores_per_batch()
        other, of_keras = open_runtime(runtime, path, precision, cores)
        checkpoint = load_checkpoint(path)
        modules = None
        # Modules that are not applied may be of unknown types.
        if settings.pooling == AUTO:
            modules = read_sentence_modules(checkpoint)
        tokenizer = text_tokenizer(checkpoint)
        opened = open_pretrained(
            checkpoint, tokenizer, False, of_keras, settings, modules
        )
        opened.runtime = other
        return opened
    if runtime != KERAS:
        raise UserError(
            f"`runtime`={runtime}: the model is loaded already; give it to "
            "bert_tf.load, or give the model's folder."
        )
    loaded = model if isinstance(model, LoadedModel) else None
    parts: Any = (loaded.encoder, loaded.tokenizer) if loaded else model
    pair = (BertEncoder, Tokenizer)
    if len(parts) != 2 or not all(map(isinstance, parts, pair)):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise UserError(
            f"model: is ({kinds}); give an encoder and its tokenizer, or a "
            "model folder."
        )
    encoder, tokenizer = parts
    own = encoder.dtype_policy.name
    if precision not in ("float32", own):
        raise UserError(
            f"precision={precision}: the encoder has {own} already; make it "
            "with that dtype, or give the model's folder."
        )
    if loaded is None:
        return PretrainedModel(encoder, tokenizer, settings)
    if settings not in loaded.vector_models:
        has_pooler = settings.pooling != POOLED or (
            POOLER in load_checkpoint(loaded.folder).heads
        )
        kind, model = PretrainedModel, encoder
        if isinstance(loaded.served, PretrainedModel):
            # The vectors of a SparseModel need its head.
            kind, model = type(loaded.served), loaded.served.model
        modules = loaded.served.modules
        opened = kind(model, tokenizer, settings, modules, has_pooler)
        opened.runtime = loaded.served.runtime
        loaded.vector_models[settings] = opened
    return loaded.vector_models[settings]


def open_for_texts(
    model: Model,
    texts: Iterable[Any],
    settings: Settings,
    precision: str,
    runtime: str,
) -> tuple[PretrainedModel, str, Iterator[Any], str]:
    """Opens a model in a precision that may depend on the first texts.

    Returns:
      The model, its precision, all texts, and why it has this precision; see
      `choose`.
    """
    opened = functools.partial(open_model, model, settings)
    if precision != AUTO:
        return opened(precision, runtime), precision, iter(texts), ""
    return choose(
        opened,
        runtime,
        lambda model: model,
        lambda model: iter(texts),
        lambda model, first: next(text_vectors(model, first)).vectors,
        difference_of_vectors,
    )


def text_vectors(
    model: PretrainedModel,
    texts: Iterable[Any],
    computed: Callable[[int], None] = lambda rows: None,
    every: int = 0,
) -> Iterator[Chunk]:
    """Yields the vectors of consecutive texts, in constant memory.

    A log line counts the truncated texts.

    Args:
      model: a model with the settings of the vectors; see `open_model`.
      texts: strings or pairs of strings.
      computed: called after each batch with its number of texts.
      every: number of texts after which a chunk ends; vectors of the next ones
        do not depend on the texts before. 0 for no such number.

    Raises:
      UserError: a text is no string or pair, or a vector is not finite.
    """
    number = total = 0
    for group in _groups(model, texts, every):
        with tf.device(HOST):
            rows, tokens, num_truncated = _rows(model, group, number)
            starts = rows.starts.numpy()
        vectors = _vectors(model, rows, starts, number, computed)
        yield Chunk(starts, vectors, tokens)
        number += len(group)
        total += num_truncated
    if total:
        log(
            f"{total:,} of {number:,} texts have more than "
            f"{model.max_seq_length} tokens and are truncated (max_seq_length)."
        )


def _groups(
    model: PretrainedModel, texts: Iterable[Any], every: int
) -> Iterator[list[Parts]]:
    """Yields the texts of each chunk, which begin with the prompt."""
    by_token = model.settings.pooling == PER_TOKEN
    vector = 4 * model.width * len(model.settings.layers)
    special = model.tokenizer.packing.num_special(2)
    group: list[Parts] = []
    characters = size = 0
    for number, text in enumerate(texts):
        first, *second = text_parts(text, f"texts[{number}]")
        parts = (model.prompt + first, *second)
        length = sum(map(len, parts))
        # An upper bound, since few texts have more tokens than characters.
        most = min(length + special, model.max_seq_length) if by_token else 1
        characters += length
        size += most * vector
        is_full = characters > _CHARACTERS or size > _BYTES
        is_full |= len(group) == _TEXTS or (every > 0 and number % every == 0)
        if group and is_full:
            yield group
            group, characters, size = [], length, most * vector
        group.append(parts)
    if group:
        yield group


def _rows(
    model: PretrainedModel, texts: list[Parts], number: int
) -> tuple[EncodedRows, dict[str, np.ndarray], int]:
    """Tokenizes a chunk: rows, tokens (per-token only), truncated texts."""
    tokenizer, packing = model.tokenizer, model.tokenizer.packing
    is_pair = np.array([len(parts) == 2 for parts in texts])
    sides = [[parts[0] for parts in texts]]
    if is_pair.any():
        _check_pairs(model, number + int(is_pair.argmax()))
        sides.append([parts[-1] * (len(parts) - 1) for parts in texts])
    bounds: list[list[tf.Tensor]] = []
    if model.settings.pooling == PER_TOKEN:
        found = [tokenizer.tokenize_with_offsets(side) for side in sides]
        ids = [token_ids(tokens) for tokens, *_ in found]
        bounds = [[each.values for each in both] for _, *both in found]
    else:
        ids = [tokenize(tokenizer, side) for side in sides]
    special = np.where(is_pair, *map(packing.num_special, (2, 1)))
    room = np.int32(model.max_seq_length - special)
    first, second = truncate(ids[0], ids[1] if ids[1:] else None, room)
    rows = pack_rows(first, second, packing, is_pair=is_pair)
    count = sum(side.count for side in ids)
    num_truncated = int(np.sum(count > room))
    if not bounds:
        return rows, {}, num_truncated
    # Offsets are packed in the same way as ids.
    frames = (packing.begin, packing.middle, packing.end)
    begin, middle, end = ((NOWHERE,) * len(frame) for frame in frames)
    nowhere = Packing(begin, middle, end, 0, NOWHERE)
    offsets = []
    for bound in (0, 1):
        packed = pack_rows(
            dataclasses.replace(first, ids=bounds[0][bound]),
            second and dataclasses.replace(second, ids=bounds[-1][bound]),
            nowhere,
            is_pair=is_pair,
        )
        offsets.append(packed.flat()[INPUT_IDS.name].numpy())
    flat, names = rows.flat(), (INPUT_IDS.name, SEGMENT_IDS.name)
    tokens = {name: flat[name].numpy() for name in names}
    return rows, tokens | {OFFSETS: np.stack(offsets, axis=1)}, num_truncated


def _check_pairs(model: PretrainedModel, number: int) -> None:
    """Raises `UserError` if the model takes no pairs."""
    packing = model.tokenizer.packing
    check_segments(f"texts[{number}] is a pair", model.encoder.config, packing)
    least = packing.num_special(2) + 1
    length = model.max_seq_length
    if length < least:
        raise UserError(
            f"max_seq_length={length}: texts[{number}] is a pair, which "
            f"needs at least {least}, for special tokens and one other."
        )


def _vectors(
    model: PretrainedModel,
    rows: EncodedRows,
    starts: np.ndarray,
    number: int,
    computed: Callable[[int], None],
) -> np.ndarray:
    """Computes the vectors of a chunk, batched by length."""
    settings = model.settings
    # First index of each text's vectors.
    first = starts
    if settings.pooling != PER_TOKEN:
        first = np.arange(len(starts))
    shape = (first[-1], len(settings.layers), model.width)
    vectors = np.empty(shape, np.float32)
    lengths = np.diff(starts)
    batches = list(batches_by_length(lengths, model.batch_size))

    def compute(chosen: np.ndarray) -> np.ndarray:
        with tf.device(HOST):
            inputs = rows.batch(chosen, int(lengths[chosen[0]]))
        return model.compiled_vectors(inputs).numpy()

    results = side_by_side(compute, batches)
    for chosen, found in zip(batches, results, strict=True):
        if not np.isfinite(found).all():
            raise UserError(
                f"texts[{number + int(chosen.min())}] or a later text: its "
                "vector is not finite; the weights are broken, or the model "
                "needs precision=float32."
            )
        computed(len(chosen))
        spans = map(slice, first[chosen], first[chosen + 1])
        vectors[np.r_[*spans]] = found
    return vectors
