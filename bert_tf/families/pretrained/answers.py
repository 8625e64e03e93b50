"""Answers of pre-trained models: tokens for masks, and vectors of texts."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from bert_tf.checkpoints import NEXT_SENTENCE, POOLER, Checkpoint
from bert_tf.checkpoints.sentence_modules import Modules, SparseModules
from bert_tf.config import AUTO, CLS, LAST_TOKEN, MEAN, PER_TOKEN, POOLED
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError, first_few, whole_number
from bert_tf.families.model_folder import restore_read_heads
from bert_tf.families.pretrained.settings import DEFAULTS, Settings
from bert_tf.families.requests import (
    Request,
    Tensors,
    sample_lengths,
    sample_text,
    signature,
    string_array,
    text_spec,
    unless,
)
from bert_tf.families.sentence_vectors import (
    SentenceVectors,
    pool,
    prompt_length,
)
from bert_tf.families.text_model import (
    COUNT_TOKENS,
    EMBED_WITH_PROMPT,
    PROMPT_NAME,
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    Arrays,
    InputRows,
    TextModel,
    encoder_of,
    largest,
)
from bert_tf.features import ENCODER_INPUTS
from bert_tf.layers.initialization import assigned_later
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.runtimes.runtime import Network, Runtime
from bert_tf.text.added_tokens import SPACE
from bert_tf.text.layout import HOST, TokenIds, ragged_range, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer

FILL_MASK, EMBED = "fill_mask", "embed"
SEQUENCE_OUTPUT, POOLED_OUTPUT = "sequence_output", "pooled_output"


class PretrainedModel(TextModel):
    """A pre-trained model of texts.

    Signatures:
      fill_mask, of a BertPretrainer that is not causal: text with [MASK],
        string [B] -> tokens, string [B, M, K], and scores, float32 [B, M, K],
        the best tokens for each mask, padded with "" and 0; see
        `bert_tf.fill_mask`.
      embed: text, string [B] -> cls and mean, float32 [B, H], of the last
        layer; with `modules` embedding, float32 [B, D]; see `bert_tf.embed`.
        Long texts are truncated.
      embed_with_prompt, of modules with prompts: text and prompt_name, string
        [B] -> embedding, float32 [B, D].
      count_tokens, with `modules`: text, string [B] -> num_tokens, int32 [B],
        as embed reads them, special ones included.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] ->
        sequence_output, float32 [B, S, H]; with `has_pooler` pooled_output
        [B, H]; with `modules` that pool the prompt, embedding [B, D].
      serving_default: the first of these; with `modules` embed.

    Args:
      model: a BertPretrainer or a BertEncoder.
      tokenizer: the tokenizer it was trained with.
      settings: the longest row, and what `compiled_vectors` computes.
      modules: the modules of the model's folder.
      has_pooler: whether the weights of the pooler are trained.
      top_k: K.
      max_masks: the most masks of a text.

    Attributes:
      width: D, the dimension of a text's vector.
      modules: the modules that the settings apply; None if there are none.
      prompt: the prompt that the settings name, or else the default one.
      prompt_length: its tokens in a row, including [CLS], as
        sentence-transformers counts them; 0 if it is empty.

    Raises:
      UserError: see `TextModel` and `Settings.applied`; or another model, or a
        number out of range.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        settings: Settings = DEFAULTS,
        modules: Modules | None = None,
        has_pooler: bool = True,
        top_k: int = 5,
        max_masks: int = 20,
    ):
        encoder = encoder_of(model)
        modules = settings.applied(modules, encoder.config, has_pooler)
        longest = encoder.config.longest_input
        if modules is not None:
            longest = min(longest, modules.max_seq_length)
        length = settings.max_seq_length or longest
        super().__init__(model, tokenizer, length)
        known = len(tokenizer.vocabulary)
        whole_number("top_k", top_k, 1, known, "the size of the vocabulary")
        whole_number("max_masks", max_masks, 1)
        if model is not encoder and not isinstance(model, BertPretrainer):
            raise UserError(
                f"the model {model.name!r} is no BertPretrainer and no "
                "BertEncoder."
            )
        self.encoder = encoder
        self.settings = settings
        # A causal model does not attend to the text after a mask.
        self._fills_masks = (
            self.reads_masks
            and model is not encoder
            and not encoder.config.causal
            and tokenizer.vocabulary.special.mask is not None
        )
        self.task = self.vector_kind
        if self._fills_masks:
            self.task = f"fill-mask and {self.task}"
        self.explains = self._fills_masks
        is_masked_lm = self._fills_masks and modules is None
        self._default = FILL_MASK if is_masked_lm else EMBED
        self.has_pooler = has_pooler
        self.modules = modules
        self.width = encoder.config.hidden_size
        self._last = encoder.config.num_blocks
        self._top_k, self._max_masks = top_k, max_masks
        self._room = self.max_seq_length - tokenizer.packing.num_special(1)
        self._sentence_vectors: Any = None
        if modules is not None:
            self._sentence_vectors = self._build_vectors(modules)
            self.width = modules.width(self.width)
            self.weights += [
                variable.value for variable in self._sentence_vectors.weights
            ]
            self.prompts = {k: v for k, v in modules.prompts.items() if v}
            self.default_prompt_name = modules.default_prompt_name
        # Tokenized eagerly, before a graph is traced.
        self.prompt, self.prompt_length = self._prompt(settings.prompt_name)

    # What it computes of texts, in words.
    vector_kind: ClassVar[str] = "embeddings"
    # Whether its masked-LM head, if it has one, predicts tokens.
    reads_masks: ClassVar[bool] = True

    def _build_vectors(self, modules: Any) -> Any:
        """Builds the function of hidden states that modules describe."""
        return SentenceVectors(modules)

    @property
    def batch_size(self) -> int:
        """The size of a batch of `compiled_vectors`; see `Settings`."""
        return self.settings.batch_size

    def _prompt(self, name: str | None) -> tuple[str, int]:
        """Returns a prompt, None for the default one, and its length."""
        text = self.modules.prompt(name) if self.modules else ""
        return text, prompt_length(text, self.tokenizer, self.max_seq_length)

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        found = {}
        if self._fills_masks:
            found[FILL_MASK] = signature(self.fill_mask, text_spec("text"))
        found[EMBED] = signature(self._embed, text_spec("text"))
        if self.modules is not None and self.prompts:
            prompts = {n: self._prompt(n) for n in self.modules.prompts}
            found[EMBED_WITH_PROMPT] = signature(
                functools.partial(self._embed_with_prompt, prompts=prompts),
                text_spec("text"),
                text_spec(PROMPT_NAME),
            )
        if self.modules is not None:
            count = signature(self._count_tokens, text_spec("text"))
            found[COUNT_TOKENS] = count
        found[SERVING_DEFAULT] = found[self._default]
        found[TOKENS] = self.tokens_signature()
        return found

    def requests(self) -> list[Request]:
        """See `TextModel`; texts to fill have one mask or two."""
        lengths = sample_lengths(self.max_seq_length)
        texts = [sample_text(words) for words in lengths]
        batches = [*([text] for text in texts), texts]
        found = []
        for batch in batches:
            inputs = {"text": string_array(batch)}
            found.append(Request(EMBED, inputs))
            if self.modules is not None:
                found.append(Request(COUNT_TOKENS, inputs))
            if self.prompts:
                names = [*self.prompts] * len(batch)
                named = {PROMPT_NAME: string_array(names[: len(batch)])}
                found.append(Request(EMBED_WITH_PROMPT, inputs | named))
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
        """Replaces every other of a text's first words by a mask.

        The text is truncated until it fits.
        """
        words = text.split(" ")
        # The tokenizer counts one token or more for a mask, so that it fits.
        for index in range(0, min(2 * masks, len(words)), 2):
            words[index] = self.tokenizer.vocabulary.require_mask()
        while True:
            tokens = self.tokenizer.tokenize(" ".join(words)).shape[0]
            if tokens <= self._room or len(words) <= 2 * masks:
                return " ".join(words)
            words = words[: max(len(words) * 3 // 4, 2 * masks)]

    def answers(self, text: tf.Tensor) -> Tensors:
        """The outputs of serving_default; see the class."""
        return (self._embed if self._default == EMBED else self.fill_mask)(text)

    def fill_mask(self, text: tf.Tensor, top_k: int = 0) -> Tensors:
        """Predicts the tokens at the masks of texts.

        Args:
          text: string [B].
          top_k: K; 0 takes the model's.

        Returns:
          See the signature `fill_mask`.
        """
        top_k = top_k or self._top_k
        with tf.device(HOST):
            masked, positions, masks = self.with_mask_ids(text)
            width = largest(masks)
        found = self.compute(
            masked,
            None,
            functools.partial(self._best, positions, top_k),
            {"ids": (None, top_k), "scores": (None, top_k)},
            width,
        )
        with tf.device(HOST):
            is_mask = (tf.range(width) < masks[:, tf.newaxis])[:, :, tf.newaxis]
            tokens = self.tokenizer.id_to_token(tf.cast(found["ids"], tf.int32))
            return {
                "tokens": tf.where(is_mask, tokens, ""),
                "scores": tf.where(is_mask, found["scores"], 0.0),
            }

    def with_mask_ids(
        self, text: tf.Tensor
    ) -> tuple[TokenIds, tf.Tensor, tf.Tensor]:
        """Tokenizes texts with masks.

        Returns:
          The ids; the positions of the masks in the rows, int32 [B, M], padded
          with 0; and the number of masks of each row, int32 [B].
        """
        vocabulary = self.tokenizer.vocabulary
        mask = vocabulary.require_mask()
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
        row, number = ragged_range(masks + 1)
        between = parts.flat_values
        if vocabulary.mask_takes_blanks:
            is_before = number < tf.gather(masks, row)
            bare = tf.strings.regex_replace(between, f"{SPACE}+$", "")
            between = tf.where(is_before, bare, between)
        pieces = tokenize(self.tokenizer, between)
        # A mask precedes every part but the first one of a row.
        has_mask = tf.cast(number > 0, tf.int32)
        piece, index = ragged_range(pieces.count + has_mask)
        index -= tf.gather(has_mask, piece)
        ids = tf.gather(
            tf.concat([pieces.ids, [vocabulary.mask_id]], 0),
            tf.where(
                index < 0,
                tf.size(pieces.ids),
                tf.gather(pieces.begin, piece) + index,
            ),
        )
        counts = tf.math.segment_sum(pieces.count + has_mask, row)
        counts = unless(
            counts > self._room,
            counts,
            "text: row {} has {} tokens besides special ones; this model "
            f"takes {self._room}.",
            counts,
        )
        begin = tf.cumsum(counts, exclusive=True)
        flat = tf.cast(tf.where(index < 0)[:, 0], tf.int32)
        owner, number = ragged_range(masks)
        positions = tf.scatter_nd(
            tf.stack([owner, number], 1),
            flat - tf.gather(begin, owner) + len(self.tokenizer.packing.begin),
            [tf.size(masks), largest(masks)],
        )
        return TokenIds(ids, begin, counts), positions, masks

    def _best(
        self,
        positions: tf.Tensor,
        top_k: int,
        inputs: Tensors,
        chosen: tf.Tensor,
    ) -> Tensors:
        """Computes ids and probabilities of the best tokens, [r, M, K]."""
        outputs = self._encoded(inputs, SEQUENCE_OUTPUT, unpadded=True)
        logits = self.model.masked_lm(
            outputs[SEQUENCE_OUTPUT],
            tf.gather(positions, chosen),
            self.encoder.embeddings.word_table,
        )
        # Some models pad the vocabulary to a round number.
        known = len(self.tokenizer.vocabulary)
        logits = tf.cast(logits[:, :, :known], tf.float32)
        ids = tf.math.top_k(logits, top_k).indices
        scores = tf.gather(tf.nn.softmax(logits), ids, batch_dims=2)
        return {"ids": ids, "scores": scores}

    @functools.cached_property
    def compiled_vectors(self) -> Callable[[Tensors], tf.Tensor]:
        """Computes the vectors of rows by the model's settings, in a graph."""
        layers = self.settings.layer_numbers(self.encoder.config)
        # One graph for all lengths, so that all round alike.
        specs = {
            feature.name: tf.TensorSpec([None, None], tf.int32)
            for feature in ENCODER_INPUTS
        }
        function = functools.partial(
            self._vectors,
            kinds=[(number, self.settings.pooling) for number in layers],
            prompt_length=self.prompt_length,
        )
        return tf.function(function, input_signature=[specs], autograph=False)

    def _vectors(
        self,
        inputs: Tensors,
        kinds: Sequence[tuple[int, str]],
        prompt_length: tf.Tensor | int = 0,
        unpadded: bool = False,
    ) -> tf.Tensor:
        """Computes vectors of rows, or of their tokens.

        Args:
          inputs: the encoder's, int32 [B, S].
          kinds: the layer, 0 for the embeddings, and the pooling of each of K
            vectors, see `Settings`. Modules and POOLED take only the last
            layer.
          prompt_length: the tokens of the prompt, a number or int32 [B].
          unpadded: see `BertEncoder`.

        Returns:
          float32 [B, K, D]; with PER_TOKEN [T, K, H], for T tokens.
        """
        pooling = kinds[0][1]
        if pooling == POOLED:
            outputs = self._encoded(inputs, POOLED_OUTPUT)
            return tf.cast(outputs[POOLED_OUTPUT], tf.float32)[:, tf.newaxis]
        # Not sequence_output, which may be the output of a BiLSTM.
        names = [f"layer_{number}" for number, _ in kinds]
        outputs = self._encoded(inputs, *names, unpadded=unpadded)
        mask = inputs["input_mask"]
        if self._sentence_vectors is not None and pooling == AUTO:
            last = outputs[f"layer_{self._last}"]
            found = self._sentence_vectors(
                last, mask, prompt_length=prompt_length
            )
            return found[:, tf.newaxis]
        is_token = tf.not_equal(mask, 0)
        found = []
        for name, (_, pooling) in zip(names, kinds, strict=True):
            hidden = tf.cast(outputs[name], tf.float32)
            if pooling == PER_TOKEN:
                found.append(tf.boolean_mask(hidden, is_token))
                continue
            # The [CLS] of a causal model attends only to itself.
            if pooling == CLS and self.encoder.config.causal:
                pooling = LAST_TOKEN
            mode = MEAN if pooling == AUTO else pooling
            found.append(pool(hidden, is_token, mode))
        return tf.stack(found, axis=1)

    def _embed(self, text: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            text = tf.strings.join([self.prompt, text])
            lengths = tf.fill([tf.size(text)], self.prompt_length)
        return self.embedded(text, lengths)

    def _count_tokens(self, text: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            text = tf.strings.join([self.prompt, text])
            count = tokenize(self.tokenizer, text).count
            special = self.tokenizer.packing.num_special(1)
            return {"num_tokens": tf.minimum(count, self._room) + special}

    def _embed_with_prompt(
        self,
        text: tf.Tensor,
        prompt_name: tf.Tensor,
        prompts: Mapping[str, tuple[str, int]],
    ) -> Tensors:
        with tf.device(HOST):
            same = tf.equal(prompt_name[:, tf.newaxis], list(prompts))
            known = tf.reduce_any(same, axis=1)
            number = tf.argmax(tf.cast(same, tf.int32), axis=1)
            # Names must not change the format string.
            listed = re.sub("[{}]", "", first_few(list(prompts)))
            number = unless(
                ~known,
                number,
                "prompt_name: row {} names none of this model's prompts, "
                f"which are {listed}.",
            )
            texts, lengths = zip(*prompts.values(), strict=True)
            text = tf.strings.join([tf.gather(texts, number), text])
            lengths = tf.gather(lengths, number)
        return self.embedded(text, lengths)

    def embedded(self, text: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Computes the outputs of embed of texts behind prompts."""
        poolings = {"cls": CLS, "mean": MEAN}
        if self.modules is not None:
            poolings = {"embedding": AUTO}
        kinds = [(self._last, pooling) for pooling in poolings.values()]
        with tf.device(HOST):
            texts = tokenize(self.tokenizer, text)
            texts, _ = truncate(texts, None, self._room)

        def compute(inputs: Tensors, chosen: tf.Tensor) -> Tensors:
            prompts = tf.gather(lengths, chosen)
            found = self._vectors(inputs, kinds, prompts, unpadded=True)
            return {"vectors": found}

        shape = {"vectors": (len(kinds), self.width)}
        vectors = self.compute(texts, None, compute, shape)["vectors"]
        return dict(zip(poolings, tf.unstack(vectors, axis=1), strict=True))

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """See `TextModel`: the tokens at each mask, or a text's vector."""
        if self._default == EMBED:
            name = "mean" if self.modules is None else "embedding"
            return [{"embedding": row} for row in outputs[name].tolist()]
        return [
            {
                "masks": [
                    [
                        {"token": token.decode(), "probability": score}
                        for token, score in zip(*mask, strict=True)
                    ]
                    # Padding has no tokens.
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
        names = [SEQUENCE_OUTPUT]
        if self.has_pooler:
            names.append(POOLED_OUTPUT)
        vectors, last = self._sentence_vectors, f"layer_{self._last}"
        # Ids do not show which tokens are the prompt's.
        if vectors is None or vectors.modules.leaves_prompts_out:
            return self._encoded(inputs, *names)
        found = self._encoded(inputs, *names, last)
        hidden = found.pop(last)
        mask = inputs["input_mask"]
        found["embedding"] = vectors(hidden, mask, prompt_length=0)
        return found

    def row_outputs(self, inputs: Tensors) -> Tensors:
        """See `TextModel`: the outputs of the signature `tokens`."""
        return self.answer_tokens(inputs)

    def compute_by(self, runtime: Runtime) -> None:
        """See `TextModel`."""
        self.runtime = runtime

    def _encoded(
        self, inputs: Tensors, *names: str, unpadded: bool = False
    ) -> Tensors:
        """Computes outputs of the encoder.

        Args:
          inputs: the encoder's, int32 [B, S].
          *names: sequence_output, pooled_output, or layer_K for the output of
            layer K, 0 for the embeddings.
          unpadded: see `BertEncoder`; other runtimes ignore it.
        """

        def compute(inputs: Tensors, unpadded: bool = False) -> Tensors:
            of_layers = any(name.startswith("layer_") for name in names)
            outputs = self.encoder(
                inputs,
                training=False,
                return_all_layers=of_layers,
                pooled_only=names == (POOLED_OUTPUT,),
                unpadded=unpadded,
            )
            if of_layers:
                layers = outputs.pop("all_encoder_layers")
                layers = (outputs["embedding_output"], *layers)
                outputs |= {
                    f"layer_{number}": hidden
                    for number, hidden in enumerate(layers)
                }
            return {name: outputs[name] for name in names}

        if self.runtime is None:
            return compute(inputs, unpadded)
        weights = [variable.value for variable in self.encoder.weights]
        network = Network(self.encoder.config, weights, self.max_seq_length)
        name = ",".join(names)
        compiled = self.runtime.compiled(compute, name, network)
        if compiled is None:
            return compute(inputs, unpadded)
        return compiled(inputs)


def open_pretrained(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    fills_masks: bool,
    dtype: str = "float32",
    settings: Settings = DEFAULTS,
    modules: Modules | None = None,
    max_masks: int = 20,
) -> PretrainedModel:
    """Opens a checkpoint as a pre-trained model.

    Args:
      checkpoint: the checkpoint.
      tokenizer: its tokenizer; see `text_tokenizer`.
      fills_masks: whether to build its masked-LM head.
      dtype: the dtype or policy of the layers.
      settings, modules, max_masks: see `PretrainedModel`.

    Raises:
      UserError: an array is missing or malformed; or see `PretrainedModel`.
    """
    is_sparse = isinstance(modules, SparseModules)
    kind: Any = encoder_class(checkpoint.config)
    if fills_masks or is_sparse:
        kind = BertPretrainer
    with assigned_later():
        model = kind(checkpoint.config, dtype=dtype)
        restore_read_heads(model, checkpoint, NEXT_SENTENCE, POOLER)
    if is_sparse:
        # Few folders are.
        from bert_tf.families.pretrained.sparse import SparseModel

        return SparseModel(model, tokenizer, settings, modules, False)
    return PretrainedModel(
        model,
        tokenizer,
        settings,
        modules,
        POOLER in checkpoint.heads,
        max_masks=max_masks,
    )
