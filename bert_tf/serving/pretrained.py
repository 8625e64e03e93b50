"""Pre-trained models: masks filled, and texts as vectors."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.layers.heads import at_positions, last_positions
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.serving.requests import (
    Request,
    sample_lengths,
    sample_text,
    signature,
    string_array,
    text_spec,
    unless,
)
from bert_tf.serving.rows import HOST, Tensors, largest
from bert_tf.serving.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    TextModel,
    encoder_of,
)
from bert_tf.text.packing import TokenIds, Tokenizer
from bert_tf.text.packing_graph import ragged_range, tokenize, truncate

FILL_MASK, EMBED = "fill_mask", "embed"


class PretrainedModel(TextModel):
    """A pre-trained model that takes text.

    Signatures:
      fill_mask, of a BertPretrainer that is not causal: text, string [B],
        with [MASK] in it -> tokens, string [B, M, K], and scores, float32
        [B, M, K], the best for each of the masks; rows with fewer are filled
        up with "" and 0. What `bert_tf.fill_mask` gives.
      embed: text, string [B] -> cls and mean, float32 [B, H], of the last
        layer. What `bert_tf.embed` gives, cls of a causal model too; longer
        texts are truncated.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] ->
        sequence_output, float32 [B, S, H], and pooled_output [B, H].
      serving_default: the first of these.

    Args:
      model: a BertPretrainer or a BertEncoder.
      tokenizer: the tokenizer it was trained with.
      max_seq_length: the longest row; None is the number of positions that
        the model has.
      top_k: K.
      max_masks: of a text; more are refused.

    Raises:
      UserError: see `TextModel`; or another model, or a number that is out of
        range.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_seq_length: int | None = None,
        top_k: int = 5,
        max_masks: int = 20,
    ):
        encoder = encoder_of(model)
        if max_seq_length is None:
            max_seq_length = encoder.config.max_position_embeddings
        super().__init__(model, encoder, tokenizer, max_seq_length)
        known = len(tokenizer.vocabulary)
        if not 1 <= top_k <= known:
            raise UserError(
                f"top_k={top_k}: give 1 to {known}, the size of the vocabulary."
            )
        if max_masks < 1:
            raise UserError(f"max_masks={max_masks}: it takes 1 or more.")
        if model is not encoder and not isinstance(model, BertPretrainer):
            raise UserError(
                f"the model {model.name!r} is no BertPretrainer and no "
                "BertEncoder."
            )
        self._encode = functools.partial(encoder, training=False)
        # A causal model sees nothing behind a mask.
        self._fills_masks = model is not encoder and not encoder.config.causal
        self.task = (
            "fill-mask and embeddings" if self._fills_masks else "embeddings"
        )
        self._hidden = encoder.config.hidden_size
        self._causal = encoder.config.causal
        self._top_k, self._max_masks = top_k, max_masks
        self._room = max_seq_length - tokenizer.packing.num_special(1)

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        found = {}
        if self._fills_masks:
            found[FILL_MASK] = signature(self._fill_mask, text_spec("text"))
        found[EMBED] = signature(self._embed, text_spec("text"))
        found[SERVING_DEFAULT] = next(iter(found.values()))
        found[TOKENS] = self.tokens_signature()
        return found

    def requests(self) -> list[Request]:
        """Texts of several lengths, with one mask or two."""
        lengths = sample_lengths(self.max_seq_length)
        texts = [sample_text(words) for words in lengths]
        batches = [*([text] for text in texts), texts]
        found = []
        for batch in batches:
            inputs = {"text": string_array(batch)}
            found.append(Request(EMBED, inputs))
            if not self._fills_masks:
                continue
            masked = [
                self._with_masks(text, 1 + number % 2)
                for number, text in enumerate(batch)
            ]
            inputs = {"text": string_array(masked)}
            found.append(Request(FILL_MASK, inputs))
        return found

    def _with_masks(self, text: str, masks: int) -> str:
        """A text with masks in place of its first words, one between two.

        It is truncated until it fits.
        """
        words = text.split(" ")
        places = range(0, min(2 * masks, len(words)), 2)
        # A mask in text counts as one token or more here, so there is room.
        for place in places:
            words[place] = self.tokenizer.vocabulary.special.mask
        while True:
            tokens = self.tokenizer.tokenize(" ".join(words)).shape[0]
            if tokens <= self._room or len(words) <= 2 * masks:
                return " ".join(words)
            words = words[: max(len(words) * 3 // 4, 2 * masks)]

    def _fill_mask(self, text: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            masked, places, masks = self._masked(text)
            width = largest(masks)
        found = self.compute(
            masked,
            None,
            functools.partial(self._best, places),
            {"ids": (None, self._top_k), "scores": (None, self._top_k)},
            width,
        )
        with tf.device(HOST):
            is_mask = (tf.range(width) < masks[:, tf.newaxis])[:, :, tf.newaxis]
            tokens = self.tokenizer.id_to_token(tf.cast(found["ids"], tf.int32))
            return {
                "tokens": tf.where(is_mask, tokens, ""),
                "scores": tf.where(is_mask, found["scores"], 0.0),
            }

    def _masked(self, text: tf.Tensor) -> tuple[TokenIds, tf.Tensor, tf.Tensor]:
        """Token ids with the mask's own id at each [MASK].

        Returns:
          The ids; the positions of the masks in the rows, int32 [B, M], 0 in
          unused places; and how many each row has, int32 [B].
        """
        vocabulary = self.tokenizer.vocabulary
        mask = vocabulary.special.mask
        parts = tf.strings.split(text, mask)
        masks = tf.cast(parts.row_lengths(), tf.int32) - 1
        masks = unless(masks == 0, masks, f"text: row {{}} holds no {mask}.")
        masks = unless(
            masks > self._max_masks,
            masks,
            f"text: row {{}} holds {{}} times {mask}; this model fills at "
            f"most {self._max_masks}.",
            masks,
        )
        pieces = tokenize(self.tokenizer, parts.flat_values)
        row, number = ragged_range(masks + 1)
        # Every part but a row's first has a mask before it.
        has_mask = tf.cast(number > 0, tf.int32)
        piece, place = ragged_range(pieces.count + has_mask)
        place -= tf.gather(has_mask, piece)
        ids = tf.gather(
            tf.concat([pieces.ids, [vocabulary.mask_id]], 0),
            tf.where(
                place < 0,
                tf.size(pieces.ids),
                tf.gather(pieces.begin, piece) + place,
            ),
        )
        counts = tf.math.segment_sum(pieces.count + has_mask, row)
        counts = unless(
            counts > self._room,
            counts,
            "text: row {} has {} tokens beside special ones; this model "
            f"takes {self._room}.",
            counts,
        )
        begin = tf.cumsum(counts, exclusive=True)
        flat = tf.cast(tf.where(place < 0)[:, 0], tf.int32)
        owner, number = ragged_range(masks)
        places = tf.scatter_nd(
            tf.stack([owner, number], 1),
            flat - tf.gather(begin, owner) + len(self.tokenizer.packing.begin),
            [tf.size(masks), largest(masks)],
        )
        return TokenIds(ids, begin, counts), places, masks

    def _best(
        self, places: tf.Tensor, inputs: Tensors, chosen: tf.Tensor
    ) -> Tensors:
        """The best tokens at masks, [r, M, K]; ids as floats, which are exact.

        See `RowComputer`, which passes floats.
        """
        model = self.model
        logits = model.masked_lm(
            self._encode(inputs, unpadded=True)["sequence_output"],
            tf.gather(places, chosen),
            model.encoder.embeddings.word_table,
        )
        # Some models have rows to spare, to make a round number.
        known = len(self.tokenizer.vocabulary)
        logits = tf.cast(logits[:, :, :known], tf.float32)
        ids = tf.math.top_k(logits, self._top_k).indices
        scores = tf.gather(tf.nn.softmax(logits), ids, batch_dims=2)
        return {"ids": ids, "scores": scores}

    def _embed(self, text: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            texts = tokenize(self.tokenizer, text)
            texts, _ = truncate(texts, None, self._room)
        shape = (self._hidden,)
        return self.compute(
            texts, None, self._vectors, {"cls": shape, "mean": shape}
        )

    def _vectors(self, inputs: Tensors, chosen: tf.Tensor) -> Tensors:
        del chosen
        # Not sequence_output, which may be that of a BiLSTM.
        layers = self._encode(inputs, return_all_layers=True, unpadded=True)
        hidden = tf.cast(layers["all_encoder_layers"][-1], tf.float32)
        weight = tf.cast(inputs["input_mask"], tf.float32)[:, :, tf.newaxis]
        total = tf.reduce_sum(hidden * weight, 1)
        cls = hidden[:, 0]
        if self._causal:
            cls = at_positions(hidden, last_positions(inputs["input_mask"]))
            cls = cls[:, 0]
        return {"cls": cls, "mean": total / tf.reduce_sum(weight, 1)}

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The best tokens at each mask; without such a head the mean vector."""
        if not self._fills_masks:
            return [{"embedding": row} for row in outputs["mean"].tolist()]
        return [
            {
                "masks": [
                    [
                        {"token": token.decode(), "probability": score}
                        for token, score in zip(*mask, strict=True)
                    ]
                    # What fills a row up has no tokens.
                    for mask in zip(tokens, scores, strict=True)
                    if mask[0][0]
                ]
            }
            for tokens, scores in zip(
                outputs["tokens"].tolist(),
                outputs["scores"].tolist(),
                strict=True,
            )
        ]

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        outputs = self._encode(inputs)
        names = ("sequence_output", "pooled_output")
        return {name: outputs[name] for name in names}
