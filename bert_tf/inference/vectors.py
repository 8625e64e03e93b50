"""Computes vectors of any number of texts, batched by length."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.checkpoints.sentence_modules import SentenceModules
from bert_tf.config import AUTO, KERAS, MEAN, PER_TOKEN, POOLED, PRECISIONS
from bert_tf.errors import UserError, check_choice
from bert_tf.families.config import check_segments
from bert_tf.families.model_folder import text_tokenizer
from bert_tf.families.pretrained.answers import PretrainedModel, open_pretrained
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.rows import batches_by_length
from bert_tf.families.text_model import encoder_of
from bert_tf.features import ENCODER_INPUTS, INPUT_IDS, SEGMENT_IDS
from bert_tf.progress import log
from bert_tf.runtimes.runtime import Runtime, open_runtime
from bert_tf.side_by_side import cores_per_batch, side_by_side
from bert_tf.sources import local_folder
from bert_tf.text.given_texts import Parts, Text, text_parts
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

# Offset of special tokens, which are not in the text.
NOWHERE = -1
# A chunk, within which texts are sorted by length, has at most this many texts,
# characters and bytes of vectors.
_TEXTS, _CHARACTERS, _BYTES = 4096, 1 << 24, 1 << 29


class Tokens(NamedTuple):
    """The T tokens of consecutive texts.

    Attributes:
      ids: int32 [T].
      segments: int32 [T], 1 in the second text of a pair.
      offsets: int32 [T, 2], begin and end of each token in its text, in
        characters; -1 for special tokens.
    """

    ids: np.ndarray
    segments: np.ndarray
    offsets: np.ndarray


class Chunk(NamedTuple):
    """Consecutive texts and their vectors.

    Attributes:
      starts: int64 [R + 1], index of the first token of each of R texts.
      vectors: float32 [R, K, D], or [T, K, H] without pooling.
      tokens: without pooling; otherwise None.
      num_truncated: number of truncated texts.
    """

    starts: np.ndarray
    vectors: np.ndarray
    tokens: Tokens | None
    num_truncated: int


class Extractor:
    """Computes vectors of texts or of their tokens.

    Args:
      model: an encoder, or a model with one.
      tokenizer: the model's tokenizer.
      settings: layers, pooling and batches.
      modules: the sentence-transformers modules of the model's folder.
      has_pooler: whether the pooler's weights are trained.
      runtime: what computes the encoder; None for Keras.

    Attributes:
      model: the encoder and its tokenizer as a model of text.
      pooling: description of the pooling.

    Raises:
      UserError: the tokenizer or a setting does not fit the model.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        settings: Settings,
        modules: SentenceModules | None = None,
        has_pooler: bool = True,
        runtime: Runtime | None = None,
    ):
        config = encoder_of(model).config
        layers = settings.layer_numbers(config)
        if not settings.follows(modules, config):
            modules = None
        pooling = settings.pooling
        if pooling == POOLED and not has_pooler:
            raise UserError(
                f"`pooling`={POOLED}: the model has no pooler; take cls, mean "
                "or max."
            )
        if pooling == AUTO and modules is None:
            pooling = MEAN
        self.settings = settings
        self.pooling = pooling if modules is None else str(modules)
        self.model = PretrainedModel(
            model, tokenizer, settings.max_seq_length or None, modules=modules
        )
        self.model.runtime = runtime
        self._prompt = self.model.prompt(settings.prompt_name)
        # One graph for all lengths, so that all round alike.
        signature = {
            feature.name: tf.TensorSpec([None, None], tf.int32)
            for feature in ENCODER_INPUTS
        }
        self._compiled = tf.function(
            functools.partial(
                self.model.vectors,
                kinds=[(number, pooling) for number in layers],
                prompt_length=self._prompt.length,
            ),
            input_signature=[signature],
            autograph=False,
        )

    @classmethod
    def from_checkpoint(
        cls,
        source: str | os.PathLike,
        settings: Settings,
        precision: str = "float32",
        runtime: str = KERAS,
    ) -> Self:
        """Loads encoder and tokenizer; see `load_checkpoint` for `source`.

        Raises:
          UserError: the source is no model, has no vocabulary or, for
            pooling="pooled", no pooler; or a setting does not fit it.
        """
        check_choice("`precision`", precision, PRECISIONS)
        path = local_folder(source)
        cores = cores_per_batch()
        other, of_keras = open_runtime(runtime, path, precision, cores)
        checkpoint = load_checkpoint(path)
        modules = None
        # Modules that are not applied may be of unknown types.
        if settings.pooling == AUTO:
            modules = read_sentence_modules(checkpoint)
        opened = open_pretrained(
            checkpoint,
            text_tokenizer(checkpoint),
            fills_masks=False,
            dtype=of_keras,
        )
        return cls(
            opened.model,
            opened.tokenizer,
            settings,
            modules,
            opened.has_pooler,
            other,
        )

    def chunks(
        self,
        texts: Iterable[Text],
        computed: Callable[[int], None] = lambda rows: None,
    ) -> Iterator[Chunk]:
        """Yields the vectors of consecutive texts, in constant memory.

        A log line counts the truncated texts.

        Args:
          texts: strings or pairs of strings.
          computed: called after each batch with its number of texts.

        Raises:
          UserError: a text is no string or pair, or a vector is not finite.
        """
        number = total = 0
        for group in self._groups(texts):
            with tf.device(HOST):
                rows, tokens, num_truncated = self._rows(group, number)
                starts = rows.starts.numpy()
            vectors = self._vectors(rows, starts, number, computed)
            yield Chunk(starts, vectors, tokens, num_truncated)
            number += len(group)
            total += num_truncated
        if total:
            log(
                f"{total:,} of {number:,} texts have more than "
                f"{self.model.max_seq_length} tokens and are truncated "
                "(max_seq_length)."
            )

    def first_vectors(self, texts: Iterable[Text]) -> np.ndarray:
        """Computes the vectors of texts, of as many as are one chunk."""
        return next(self.chunks(texts)).vectors

    def _groups(self, texts: Iterable[Text]) -> Iterator[list[Parts]]:
        by_token = self.settings.pooling == PER_TOKEN
        vector = 4 * self.model.width * len(self.settings.layers)
        special = self.model.tokenizer.packing.num_special(2)
        longest = self.model.max_seq_length
        group: list[Parts] = []
        characters = size = 0
        for number, text in enumerate(texts):
            first, *second = text_parts(text, f"texts[{number}]")
            parts = (self._prompt.text + first, *second)
            length = sum(map(len, parts))
            # An upper bound, since few texts have more tokens than characters.
            most = min(length + special, longest) if by_token else 1
            characters += length
            size += most * vector
            is_full = characters > _CHARACTERS or size > _BYTES
            if group and (is_full or len(group) == _TEXTS):
                yield group
                group, characters, size = [], length, most * vector
            group.append(parts)
        if group:
            yield group

    def _rows(
        self, texts: list[Parts], number: int
    ) -> tuple[EncodedRows, Tokens | None, int]:
        """Tokenizes a chunk: rows, tokens (per-token only), truncated texts."""
        is_pair = np.array([len(parts) == 2 for parts in texts])
        sides = [[parts[0] for parts in texts]]
        if is_pair.any():
            self._check_pairs(number + int(is_pair.argmax()))
            sides.append([parts[-1] * (len(parts) - 1) for parts in texts])
        tokenizer, bounds = self.model.tokenizer, []
        if self.settings.pooling == PER_TOKEN:
            found = [tokenizer.tokenize_with_offsets(side) for side in sides]
            ids = [token_ids(tokens) for tokens, *_ in found]
            bounds = [[side.values for side in both] for _, *both in found]
        else:
            ids = [tokenize(tokenizer, side) for side in sides]
        packing = tokenizer.packing
        special = np.where(is_pair, *map(packing.num_special, (2, 1)))
        room = np.int32(self.model.max_seq_length - special)
        first, second = truncate(ids[0], ids[1] if ids[1:] else None, room)
        rows = pack_rows(first, second, packing, is_pair=is_pair)
        count = sum(side.count for side in ids)
        num_truncated = int(np.sum(count > room))
        if not bounds:
            return rows, None, num_truncated
        # Offsets are packed in the same way as ids.
        begin, middle, end = (
            (NOWHERE,) * len(frame)
            for frame in (packing.begin, packing.middle, packing.end)
        )
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
        flat = rows.flat()
        return (
            rows,
            Tokens(
                flat[INPUT_IDS.name].numpy(),
                flat[SEGMENT_IDS.name].numpy(),
                np.stack(offsets, axis=1),
            ),
            num_truncated,
        )

    def _check_pairs(self, number: int) -> None:
        """Raises `UserError` if the model takes no pairs."""
        config = self.model.encoder.config
        packing = self.model.tokenizer.packing
        source = f"texts[{number}] is a pair"
        check_segments(source, config, packing)
        least = packing.num_special(2) + 1
        length = self.model.max_seq_length
        if length < least:
            raise UserError(
                f"max_seq_length={length}: texts[{number}] is a pair, which "
                f"needs at least {least}, for special tokens and one other."
            )

    def _vectors(
        self,
        rows: EncodedRows,
        starts: np.ndarray,
        number: int,
        computed: Callable[[int], None],
    ) -> np.ndarray:
        """Computes the vectors of rows, batched by length."""
        # First index of each text's vectors.
        first = starts
        if self.settings.pooling != PER_TOKEN:
            first = np.arange(len(starts))
        shape = (first[-1], len(self.settings.layers), self.model.width)
        vectors = np.empty(shape, np.float32)
        lengths = np.diff(starts)
        batches = list(batches_by_length(lengths, self.settings.batch_size))

        def compute(chosen: np.ndarray) -> np.ndarray:
            with tf.device(HOST):
                inputs = rows.batch(chosen, int(lengths[chosen[0]]))
            return self._compiled(inputs).numpy()

        results = side_by_side(compute, batches)
        for chosen, found in zip(batches, results, strict=True):
            if not np.isfinite(found).all():
                raise UserError(
                    f"texts[{number + int(chosen.min())}] or a later text: "
                    "its vector is not finite; the weights are broken, or the "
                    "model needs precision=float32."
                )
            computed(len(chosen))
            spans = map(slice, first[chosen], first[chosen + 1])
            vectors[np.r_[*spans]] = found
        return vectors
