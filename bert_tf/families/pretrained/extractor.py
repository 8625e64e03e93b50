"""Vectors of texts: what of a model, in batches of like length, in order."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import POOLER, load_checkpoint
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.checkpoints.sentence_modules import (
    CLS,
    LAST_TOKEN,
    MEAN,
    SentenceModules,
)
from bert_tf.config import PRECISIONS
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.errors import UserError
from bert_tf.families.model_folder import folder_tokenizer
from bert_tf.families.pretrained.settings import (
    AUTO,
    POOLED,
    TOKENS,
    Settings,
)
from bert_tf.families.sentence_vectors import SentenceVectors, pool
from bert_tf.features import ENCODER_INPUTS
from bert_tf.models import restore
from bert_tf.side_by_side import side_by_side
from bert_tf.text.given_texts import Parts, Text, text_parts
from bert_tf.text.packing import (
    EncodedRows,
    TokenIds,
    batches_by_length,
    pack_rows,
    ragged_range,
    take_ranges,
    tokenize_texts,
    truncate,
)
from bert_tf.text.tokenizer_protocol import Tokenizer

# Offsets of [CLS] and [SEP], which stand for nothing in the text.
NOWHERE = -1
# What is sorted by length and computed together: the largest number of texts,
# of characters and of bytes of vectors.
_TEXTS, _CHARACTERS, _BYTES = 4096, 1 << 24, 1 << 29


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive texts and their vectors.

    Attributes:
      rows: the token ids of R texts, T in all.
      vectors: float32 [R, K, H], or [T, K, H] without pooling.
      offsets: int32 [T, 2], begin and end of each token in its own text, in
        characters; -1 for [CLS] and [SEP]. None with pooling.
      num_truncated: how many of the texts were truncated.
    """

    rows: EncodedRows
    vectors: np.ndarray
    offsets: np.ndarray | None
    num_truncated: int


class Extractor:
    """Computes the vectors of texts.

    Args:
      encoder: the model.
      tokenizer: the tokenizer it was trained with.
      settings: what to compute.
      modules: how the model's folder makes one vector of a text.

    Attributes:
      width: D, the numbers of a vector.
      pooling: how vectors of texts are made, in words.

    Raises:
      UserError: encoder and tokenizer or a setting do not go together.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        tokenizer: Tokenizer,
        settings: Settings,
        modules: SentenceModules | None = None,
    ):
        config = encoder.config
        if len(tokenizer.vocabulary) > config.vocab_size:
            raise UserError(
                f"the vocabulary has {len(tokenizer.vocabulary)} tokens and "
                f"the model {config.vocab_size} (vocab_size); they do not "
                "belong together."
            )
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.settings = settings
        self.max_seq_length = settings.length(config)
        self._layers = settings.layer_numbers(config)
        self.width = config.hidden_size
        self.pooling = MEAN if settings.pooling == AUTO else settings.pooling
        self._prompt, self._prompt_length = "", 0
        self._sentence_vectors: SentenceVectors | None = None
        if settings.follows(modules, config):
            assert modules is not None
            self._sentence_vectors = SentenceVectors(modules, self.width)
            self.width = self._sentence_vectors.width
            self.pooling = str(modules)
            length = min(self.max_seq_length, modules.max_seq_length)
            if not settings.max_seq_length:
                self.max_seq_length = length
            self._prompt = modules.prompt(settings.prompt_name)
            self._prompt_length = prompt_length(
                tokenizer, self._prompt, self.max_seq_length
            )
        # One graph for all lengths, since others round differently.
        signature = {
            feature.name: tf.TensorSpec([None, None], tf.int32)
            for feature in ENCODER_INPUTS
        }
        self._compiled = tf.function(
            self._run, input_signature=[signature], autograph=False
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
        if precision not in PRECISIONS:
            raise UserError(
                f"`precision`={precision}: unknown; it takes one of "
                f"{', '.join(PRECISIONS)}."
            )
        checkpoint = load_checkpoint(source)
        settings.length(checkpoint.config)
        settings.layer_numbers(checkpoint.config)
        fresh = [] if POOLER in checkpoint.heads else [POOLER]
        if fresh and settings.pooling == POOLED:
            raise UserError(
                f"`pooling`={POOLED}: {source} has no pooler; take cls, mean "
                "or max."
            )
        modules = None
        # What is not applied is not read: it may have an unknown module.
        if settings.pooling == AUTO:
            modules = read_sentence_modules(checkpoint)
            settings.follows(modules, checkpoint.config)
        encoder = encoder_class(checkpoint.config)(
            checkpoint.config, dtype=precision
        )
        # Nobody reads a pooler that is drawn, so no line names it.
        restore(encoder, checkpoint, fresh)
        return cls(encoder, folder_tokenizer(source), settings, modules)

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
        by_token = self.settings.pooling == TOKENS
        vector = 4 * self.width * len(self._layers)
        special = self.tokenizer.packing.num_special(2)
        longest = self.max_seq_length
        group: list[Parts] = []
        characters = size = 0
        for number, text in enumerate(texts):
            parts = text_parts(text, f"texts[{number}]")
            if self._prompt:
                parts = (self._prompt + parts[0], *parts[1:])
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
        is_pair = np.array([len(parts) == 2 for parts in texts])
        self._check_pairs(is_pair, number)
        sides = [[parts[0] for parts in texts]]
        if is_pair.any():
            sides.append([parts[-1] * (len(parts) - 1) for parts in texts])
        ids, offsets = self._tokenized(sides)
        special = self.tokenizer.packing.num_special
        room = self.max_seq_length - np.where(is_pair, special(2), special(1))
        kept = truncate(ids[0], ids[1] if is_pair.any() else None, room)
        rows = pack_rows(
            np.arange(len(texts)), *kept, len(texts), self.tokenizer, is_pair
        )
        return Chunk(
            rows=rows,
            vectors=self._vectors(rows, number, computed),
            offsets=_row_offsets(rows, kept, offsets) if offsets else None,
            num_truncated=int(np.sum(sum(side.count for side in ids) > room)),
        )

    def _check_pairs(self, is_pair: np.ndarray, number: int) -> None:
        if not is_pair.any():
            return
        first = number + int(is_pair.argmax())
        types = self.encoder.config.segment_limit
        if types <= self.tokenizer.packing.second_segment:
            raise UserError(
                f"texts[{first}]: is a pair, and the model's type_vocab_size "
                f"is {types}, so it cannot tell the two texts apart."
            )
        least = self.tokenizer.packing.num_special(2) + 1
        if self.max_seq_length < least:
            raise UserError(
                f"max_seq_length={self.max_seq_length}: texts[{first}] is a "
                f"pair, which needs at least {least}, for special tokens and "
                "one other."
            )

    def _tokenized(
        self, sides: list[list[str]]
    ) -> tuple[list[TokenIds], list[np.ndarray]]:
        """The ids of the first and second texts; for tokens, offsets too."""
        if self.settings.pooling != TOKENS:
            return [tokenize_texts(s, self.tokenizer) for s in sides], []
        ids, offsets = [], []
        for side in sides:
            found, starts, ends = self.tokenizer.tokenize_with_offsets(side)
            count = found.row_lengths().numpy()
            begin = np.cumsum(count) - count
            ids.append(TokenIds(found.values.numpy(), begin, count))
            offsets.append(
                np.stack([starts.values.numpy(), ends.values.numpy()], axis=1)
            )
        return ids, offsets

    def _vectors(
        self,
        rows: EncodedRows,
        number: int,
        computed: Callable[[int], None],
    ) -> np.ndarray:
        """Computes the rows, those of like length together."""
        by_token = self.settings.pooling == TOKENS
        count = rows.starts[-1] if by_token else len(rows)
        shape = (count, len(self._layers), self.width)
        vectors = np.empty(shape, np.float32)
        batches = list(
            batches_by_length(rows.lengths, self.settings.batch_size)
        )

        def compute(chosen: np.ndarray) -> np.ndarray:
            return self._compiled(rows.batch(chosen)).numpy()

        results = side_by_side(compute, batches)
        for chosen, found in zip(batches, results, strict=True):
            if not np.isfinite(found).all():
                raise UserError(
                    f"texts[{number + int(chosen.min())}] or one behind it: "
                    "what the model gives is not finite; its weights are "
                    "broken, or it needs precision=float32."
                )
            computed(len(chosen))
            if not by_token:
                vectors[chosen] = found
                continue
            lengths = rows.lengths[chosen]
            stops = np.cumsum(lengths)
            for row, stop, length in zip(chosen, stops, lengths, strict=True):
                start = rows.starts[row]
                vectors[start : start + length] = found[stop - length : stop]
        return vectors

    def _run(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """float32 [B, K, H], or [T, K, H] of the batch's tokens."""
        if self.settings.pooling == POOLED:
            outputs = self.encoder(batch, training=False, pooled_only=True)
            return tf.cast(outputs["pooled_output"], tf.float32)[:, None]
        outputs = self.encoder(batch, training=False, return_all_layers=True)
        layers = (outputs["embedding_output"], *outputs["all_encoder_layers"])
        if self._sentence_vectors is not None:
            return self._sentence_vectors(
                layers[-1], batch["input_mask"], self._prompt_length
            )[:, tf.newaxis]
        is_token = tf.not_equal(batch["input_mask"], 0)
        found = [
            _pooled(
                tf.cast(layers[number], tf.float32),
                is_token,
                self.pooling,
                self.encoder.config.causal,
            )
            for number in self._layers
        ]
        return tf.stack(found, axis=1)


def _pooled(
    hidden: tf.Tensor, is_token: tf.Tensor, pooling: str, causal: bool
) -> tf.Tensor:
    """What `Settings` says of vectors float32 [B, S, H]."""
    if pooling == TOKENS:
        return tf.boolean_mask(hidden, is_token)
    return pool(
        hidden, is_token, LAST_TOKEN if causal and pooling == CLS else pooling
    )


def prompt_length(
    tokenizer: Tokenizer, prompt: str, max_seq_length: int
) -> int:
    """The tokens that a prompt takes at the begin of a row, [CLS] among them.

    As sentence-transformers counts them: those of the prompt as a row of its
    own, without the last [SEP].
    """
    if not prompt:
        return 0
    ids = tokenize_texts([prompt], tokenizer)
    packing = tokenizer.packing
    return min(len(packing.begin) + int(ids.count[0]), max_seq_length - 1)


def _row_offsets(
    rows: EncodedRows,
    texts: tuple[TokenIds, TokenIds | None],
    offsets: Sequence[np.ndarray],
) -> np.ndarray:
    """Offsets of the rows' tokens in their own texts, int32 [T, 2]."""
    place = ragged_range(rows.lengths)
    is_word = [
        (place >= np.repeat(begin, rows.lengths))
        & (place < np.repeat(end, rows.lengths))
        for begin, end in rows.bounds
    ]
    found = np.full((len(place), 2), NOWHERE, np.int32)
    # A row without a second text has no place for it either.
    for where, side, given in zip(is_word, texts, offsets, strict=False):
        if side is not None:
            found[where] = take_ranges(given, side.begin, side.count)
    return found
