"""Vectors of any number of texts, those of similar length together."""

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
from bert_tf.checkpoints.sentence_modules import MEAN, SentenceModules
from bert_tf.config import PRECISIONS
from bert_tf.errors import UserError, check_choice
from bert_tf.families.config import check_segments
from bert_tf.families.pretrained.answers import (
    PretrainedModel,
    open_pretrained,
)
from bert_tf.families.pretrained.settings import (
    AUTO,
    PER_TOKEN,
    POOLED,
    Settings,
)
from bert_tf.families.rows import batches_by_length
from bert_tf.families.text_model import encoder_of
from bert_tf.features import ENCODER_INPUTS, INPUT_IDS, SEGMENT_IDS
from bert_tf.side_by_side import side_by_side
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

# Offsets of [CLS] and [SEP], which stand for nothing in the text.
NOWHERE = -1
# At most this many texts, characters and bytes of vectors are sorted by length
# and computed together.
_TEXTS, _CHARACTERS, _BYTES = 4096, 1 << 24, 1 << 29


class Tokens(NamedTuple):
    """The T tokens of consecutive texts.

    Attributes:
      ids: int32 [T].
      segments: int32 [T], 1 in the second text of a pair.
      offsets: int32 [T, 2], begin and end of each token in its own text, in
        characters; -1 for [CLS] and [SEP].
    """

    ids: np.ndarray
    segments: np.ndarray
    offsets: np.ndarray


class Chunk(NamedTuple):
    """Consecutive texts and their vectors.

    Attributes:
      starts: int64 [R + 1], where each of R texts begins among their tokens.
      vectors: float32 [R, K, D], or [T, K, H] without pooling.
      tokens: without pooling; otherwise None.
      num_truncated: how many of the texts were truncated.
    """

    starts: np.ndarray
    vectors: np.ndarray
    tokens: Tokens | None
    num_truncated: int


class Extractor:
    """Computes the vectors of texts.

    Args:
      model: the encoder, or a model on it.
      tokenizer: the tokenizer it was trained with.
      settings: what to compute.
      modules: how the model's folder makes one vector of a text.
      has_pooler: whether the pooler's weights are trained.

    Attributes:
      model: the encoder and its tokenizer as a model that takes text.
      pooling: how vectors of texts are made, in words.

    Raises:
      UserError: model and tokenizer or a setting do not go together.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        settings: Settings,
        modules: SentenceModules | None = None,
        has_pooler: bool = True,
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
            model,
            tokenizer,
            settings.max_seq_length or None,
            modules=modules,
        )
        self._prompt = self.model.prompt(settings.prompt_name)
        # One graph for all lengths, since others round differently.
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
    ) -> Self:
        """Loads the encoder and the tokenizer of what `load_checkpoint` takes.

        Raises:
          UserError: the source is no model, has no vocabulary or, for
            pooling="pooled", no pooler; or a setting does not suit it.
        """
        check_choice("`precision`", precision, PRECISIONS)
        checkpoint = load_checkpoint(source)
        modules = None
        # What is not applied is not read: it may have an unknown module.
        if settings.pooling == AUTO:
            modules = read_sentence_modules(checkpoint)
        opened = open_pretrained(
            source, checkpoint, fills_masks=False, dtype=precision
        )
        return cls(
            opened.model, opened.tokenizer, settings, modules, opened.has_pooler
        )

    def chunks(
        self,
        texts: Iterable[Text],
        computed: Callable[[int], None] = lambda rows: None,
    ) -> Iterator[Chunk]:
        """Computes the vectors of any number of texts, in their order.

        Texts are read some thousands at a time, so memory does not grow with
        their number.

        Args:
          texts: strings, or pairs of them.
          computed: is called after every batch with its number of texts.

        Raises:
          UserError: a text is something else, or a vector is not finite.
        """
        number = 0
        for group in self._groups(texts):
            yield self._chunk(group, number, computed)
            number += len(group)

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
            # Few texts have more tokens than characters.
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

    def _chunk(
        self,
        texts: list[Parts],
        number: int,
        computed: Callable[[int], None],
    ) -> Chunk:
        """Computes some texts, the first of which is the text `number`."""
        with tf.device(HOST):
            rows, tokens, num_truncated = self._rows(texts, number)
            starts = rows.starts.numpy()
        return Chunk(
            starts,
            self._vectors(rows, starts, number, computed),
            tokens,
            num_truncated,
        )

    def _rows(
        self, texts: list[Parts], number: int
    ) -> tuple[EncodedRows, Tokens | None, int]:
        """The rows of texts, their tokens, and how many are truncated."""
        is_pair = np.array([len(parts) == 2 for parts in texts])
        sides = [[parts[0] for parts in texts]]
        if is_pair.any():
            self._check_pairs(number + int(is_pair.argmax()))
            sides.append([parts[-1] * (len(parts) - 1) for parts in texts])
        tokenizer, bounds = self.model.tokenizer, []
        if self.settings.pooling == PER_TOKEN:
            found = [tokenizer.tokenize_with_offsets(side) for side in sides]
            ids = [token_ids(tokens) for tokens, *_ in found]
            bounds = [[side.values for side in of] for _, *of in found]
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
        # Begins and ends are laid out as the ids are.
        begin, middle, end = (
            (NOWHERE,) * len(frame)
            for frame in (packing.begin, packing.middle, packing.end)
        )
        nowhere = Packing(begin, middle, end, 0, NOWHERE)
        offsets = []
        for bound in (0, 1):
            laid = pack_rows(
                dataclasses.replace(first, ids=bounds[0][bound]),
                second and dataclasses.replace(second, ids=bounds[-1][bound]),
                nowhere,
                is_pair=is_pair,
            )
            offsets.append(laid.flat()[INPUT_IDS.name].numpy())
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
        """Refuses a pair, the text `number`, that the model cannot read."""
        config, packing = (
            self.model.encoder.config,
            self.model.tokenizer.packing,
        )
        source = f"texts[{number}] is a pair"
        config = self.model.encoder.config
        check_segments(source, config, packing.second_segment + 1)
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
        """Computes the rows, those of similar length together."""
        if self.settings.pooling != PER_TOKEN:
            places = np.arange(len(starts))
        else:
            places = starts
        shape = (places[-1], len(self.settings.layers), self.model.width)
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
                    f"texts[{number + int(chosen.min())}] or one behind it: "
                    "what the model gives is not finite; its weights are "
                    "broken, or it needs precision=float32."
                )
            computed(len(chosen))
            begins, ends = places[chosen], places[chosen + 1]
            vectors[np.r_[*map(slice, begins, ends)]] = found
        return vectors
