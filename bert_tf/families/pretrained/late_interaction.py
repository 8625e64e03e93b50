"""Vectors of the tokens of queries and documents (ColBERT).

Khattab and Zaharia 2020. As sentence-transformers 6.2 computes them,
base/modules/transformer.py, preprocess, and multi_vector_encoder/modules.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.checkpoints import POOLER, Checkpoint
from bert_tf.checkpoints.sentence_modules import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    Expansion,
    MultiVectorModules,
    first_prompt,
)
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.families.model_folder import restore_read_heads
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.requests import (
    Request,
    Tensors,
    requests_of,
    sample_texts,
    signature,
    text_spec,
)
from bert_tf.families.sentence_vectors import build_steps
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    Arrays,
    InputRows,
    TextModel,
    largest,
)
from bert_tf.layers.initialization import assigned_later
from bert_tf.text.layout import HOST, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer

EMBED_QUERY, EMBED_DOCUMENT = "embed_query", "embed_document"
TOKEN_EMBEDDINGS, MASK = "token_embeddings", "mask"
_PROMPTS = {"query": QUERY_PROMPTS, "document": DOCUMENT_PROMPTS}


class LateInteractionModel(TextModel):
    """An encoder of queries and documents as vectors of their tokens.

    Signatures:
      embed_query, embed_document: text, string [B] -> token_embeddings,
        float32 [B, T, D], and mask, int32 [B, T], 1 = scored, 0 = padding or
        not scored, with a vector of zeros. Long texts are truncated.
      serving_default: embed_document.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] ->
        token_embeddings, float32 [B, S, D].

    Args:
      model: a BertEncoder.
      tokenizer: the tokenizer it was trained with.
      settings: the longest row.
      modules: the modules of the model's folder.

    Attributes:
      width: D.
      functions: those of embed_query and embed_document, by task.

    Raises:
      UserError: see `TextModel`.
    """

    task = "late interaction"
    explains = False

    def __init__(
        self,
        model: BertEncoder,
        tokenizer: Tokenizer,
        settings: Settings,
        modules: MultiVectorModules,
    ):
        longest = settings.max_seq_length or modules.max_seq_length
        super().__init__(model, tokenizer, longest)
        self.modules: MultiVectorModules = modules
        self.width = modules.width(model.config.hidden_size)
        self.prompts = {k: v for k, v in modules.prompts.items() if v}
        self._steps, weights = build_steps(modules.steps)
        self.weights += [variable.value for variable in weights]
        self.forward = tf.function(
            self.row_outputs, reduce_retracing=True, autograph=False
        )
        self.functions = {
            task: signature(self._function_of(task), text_spec("text"))
            for task in _PROMPTS
        }

    def _function_of(self, task: str) -> Callable[[tf.Tensor], Tensors]:
        """Prepares `_embed` of queries or of documents."""
        modules, vocabulary = self.modules, self.tokenizer.vocabulary
        expansion = modules.expansion if task == "query" else None
        length = modules.document_length
        if task == "query":
            length = modules.query_length
        if expansion and (expansion.is_fixed or length is not None):
            fixed = 0 if expansion.is_fixed else length or 0
            length = max(expansion.length, fixed)
        assert self.config is not None
        skipped = [
            vocabulary.ids[word]
            for word in modules.skipped_words
            if task in modules.skipped_tasks and word in vocabulary.ids
        ]
        return functools.partial(
            self._embed,
            prompt=modules.prompt(first_prompt(modules, _PROMPTS[task])),
            length=min(
                length or self.max_seq_length, self.config.longest_input
            ),
            expansion=expansion,
            skipped=skipped,
            scored=modules.scored_ids if task == "document" else (),
        )

    def _embed(
        self,
        text: tf.Tensor,
        prompt: str,
        length: int,
        expansion: Expansion | None,
        skipped: Sequence[int],
        scored: Sequence[int],
    ) -> Tensors:
        special = self.tokenizer.packing.num_special(1)
        with tf.device(HOST):
            text = tf.strings.join([prompt, text])
            rows, _ = truncate(
                tokenize(self.tokenizer, text), None, length - special
            )
            width = largest(rows.count + special)
            if expansion is not None:
                width = tf.maximum(width, expansion.length)

        def compute(inputs: Tensors, chosen: tf.Tensor) -> Tensors:
            del chosen
            with tf.device(HOST):
                is_scored = tf.not_equal(inputs["input_mask"], 0)
                if expansion is not None:
                    inputs, is_scored = self._expanded(inputs, expansion)
                ids = inputs["input_ids"]
                if skipped:
                    is_scored &= ~_is_among(ids, skipped)
                if scored:
                    is_scored &= _is_among(ids, scored)
            found = self.forward(inputs)[TOKEN_EMBEDDINGS]
            found = tf.where(is_scored[:, :, tf.newaxis], found, 0.0)
            return {TOKEN_EMBEDDINGS: found, MASK: is_scored}

        shapes = {TOKEN_EMBEDDINGS: (None, self.width), MASK: (None,)}
        found = self.compute(rows, None, compute, shapes, width)
        return found | {MASK: tf.cast(found[MASK], tf.int32)}

    def _expanded(
        self, inputs: Tensors, expansion: Expansion
    ) -> tuple[Tensors, tf.Tensor]:
        """Fills rows up to the length of queries.

        Returns:
          The inputs of the encoder, and which tokens are scored, bool [B, S].
        """
        missing = expansion.length - tf.shape(inputs["input_ids"])[1]
        amount = [[0, 0], [0, tf.maximum(missing, 0)]]
        inputs = {name: tf.pad(rows, amount) for name, rows in inputs.items()}
        ids, mask = inputs["input_ids"], inputs["input_mask"]
        is_token = tf.not_equal(mask, 0)
        is_near = tf.range(tf.shape(ids)[1]) < expansion.length
        is_added = ~is_token & is_near
        vocabulary = self.tokenizer.vocabulary
        added = vocabulary.mask_id
        if expansion.token is not None:
            added = vocabulary.ids[expansion.token]
        inputs["input_ids"] = tf.where(is_added, added, ids)
        if expansion.attend:
            inputs["input_mask"] = tf.where(is_added, 1, mask)
        return inputs, is_token | is_added

    def row_outputs(self, inputs: Tensors) -> Tensors:
        """See `TextModel`: the outputs of the signature `tokens`."""
        # The tokens of an expansion may be masked, so rows are not unpadded.
        outputs = self.model(inputs, training=False)
        vectors = tf.cast(outputs["sequence_output"], tf.float32)
        shape = tf.shape(vectors)
        vectors = tf.reshape(vectors, [-1, vectors.shape[2]])
        for step in self._steps:
            vectors = step(vectors)
        vectors = tf.reshape(vectors, [shape[0], shape[1], self.width])
        return {TOKEN_EMBEDDINGS: vectors}

    def answers(self, text: tf.Tensor) -> Tensors:
        """The outputs of serving_default; see the class."""
        return self.functions["document"](text)

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        query, document = self.functions.values()
        return {
            EMBED_QUERY: query,
            EMBED_DOCUMENT: document,
            SERVING_DEFAULT: document,
            TOKENS: self.tokens_signature(),
        }

    def requests(self) -> list[Request]:
        """See `TextModel`."""
        texts = [text for (text,) in sample_texts(self.max_seq_length, 1)]
        return [
            request
            for name in (EMBED_QUERY, EMBED_DOCUMENT)
            for request in requests_of(name, text=texts)
        ]

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """See `TextModel`: the vectors of the tokens that are scored."""
        del rows
        pairs = zip(outputs[TOKEN_EMBEDDINGS], outputs[MASK], strict=True)
        return [
            {TOKEN_EMBEDDINGS: vectors[mask != 0].tolist()}
            for vectors, mask in pairs
        ]


def _is_among(ids: tf.Tensor, numbers: Sequence[int]) -> tf.Tensor:
    """Returns which ids, int32 [B, S], are among others, bool [B, S]."""
    same = tf.equal(ids[:, :, tf.newaxis], list(numbers))
    return tf.reduce_any(same, axis=2)


def open_late_interaction(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    dtype: str,
    settings: Settings,
    modules: MultiVectorModules,
) -> LateInteractionModel:
    """Opens a checkpoint as a model of late interaction.

    Raises:
      UserError: an array is missing or malformed; or see
        `LateInteractionModel`.
    """
    with assigned_later():
        model = encoder_class(checkpoint.config)(checkpoint.config, dtype=dtype)
        restore_read_heads(model, checkpoint, POOLER)
    return LateInteractionModel(model, tokenizer, settings, modules)
