"""An ELECTRA's pre-training: a generator replaces tokens, the discriminator
finds which.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import (
    MASKED_LM,
    REPLACED_TOKENS,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.encoders.electra import ElectraEmbeddings, ElectraEncoder
from bert_tf.errors import UserError
from bert_tf.layers import MaskedLMHead, ReplacedTokensHead
from bert_tf.named_weights import (
    NamedWeights,
    arrays_of,
    head_weights,
    restore_weights,
)
from bert_tf.pretraining.objective import ReplacedTokenDetection
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.progress import log
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.training.step import Objective

# Of a model folder.
GENERATOR = "generator"
# By which fields of a generator's configuration its embeddings are shared.
_SHARED = (
    *("vocab_size", "embedding_size", "max_position_embeddings"),
    *("type_vocab_size", "layer_norm_eps"),
)


def generator_of(folder: pathlib.Path) -> ElectraConfig | None:
    """The architecture of the generator in a discriminator's folder, if any.

    Raises:
      UserError: it is no ELECTRA.
    """
    place = folder / GENERATOR
    if not place.is_dir():
        return None
    config = load_checkpoint(place).config
    if not isinstance(config, ElectraConfig):
        raise UserError(
            f"{place}: its model_type is {config.model_type}; the generator "
            "of an electra is one too."
        )
    return config


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraPretrainer(BertPretrainer):
    """A discriminator and its generator (Clark et al. 2020, section 2).

    The generator predicts the masked tokens of a batch. One token is drawn from
    each of its distributions, without a gradient, and put into the text; the
    discriminator says of every token whether it is still the text's own. All
    embeddings are shared but the dense layers behind them. Without dropout,
    in evaluation, the same is drawn each time.

    As a `BertPretrainer`, whose folder is the discriminator's; the generator is
    in generator/ beneath.

    Args:
      config_or_encoder: the discriminator's architecture, or its encoder.
      dtype: Keras dtype policy or its name; None takes the encoder's, or
        Keras' global policy.
      name: name of the model.
      trainable: whether training changes the weights.
      objective: what it is trained for; None is `ReplacedTokenDetection()`.
      unpadded: computes on the tokens alone, see `BertEncoder`.
      generator: the generator's architecture; None is a quarter as wide.

    Call arguments:
      inputs: those of `BertPretrainer`, and masked_lm_ids int32 [B, P] and
        masked_lm_weights float32 [B, P], from which the text's own tokens are
        known.
      training: whether dropout is active.
      return_all_layers: adds the discriminator's all_encoder_layers and
        embedding_output.

    Returns:
      A dict: masked_lm_logits float32 [B, P, V], the generator's;
      replaced_token_logits float32 [B, S], above 0 where a token seems to be
      replaced, and replaced_tokens int32 [B, S], 1 where one is; and the
      discriminator's sequence_output and pooled_output.

    Raises:
      UserError: an input is missing, or the two do not have the same
        embeddings.
    """

    def __init__(
        self,
        config_or_encoder: BertConfig | BertEncoder,
        dtype: Any = None,
        name: str = "electra_pretrainer",
        trainable: bool = True,
        objective: "Objective | None" = None,
        unpadded: bool = False,
        generator: ElectraConfig | None = None,
    ) -> None:
        # Before the base class makes the heads, whose sizes it decides.
        self._generator_config = generator
        super().__init__(
            config_or_encoder,
            dtype=dtype,
            name=name,
            trainable=trainable,
            objective=objective or ReplacedTokenDetection(),
            unpadded=unpadded,
        )

    def _make_heads(self) -> None:
        own_config, policy = self.config, self.dtype_policy
        if not isinstance(own_config, ElectraConfig):
            raise UserError(
                f"{type(self).__name__}: takes an ElectraConfig or an "
                f"ElectraEncoder, not a {type(own_config).__name__}."
            )
        config = self._generator_config or own_config.generator(0.25)
        for name in _SHARED:
            own, theirs = getattr(own_config, name), getattr(config, name)
            if own != theirs:
                raise UserError(
                    f"{self.name}: {name} is {theirs} in the generator and "
                    f"{own} in the discriminator, whose embeddings it shares."
                )
        embeddings = ElectraEmbeddings(config, dtype=policy, name="embeddings")
        embeddings.build_sharing(self.encoder.embeddings)
        self.generator = ElectraEncoder(
            config,
            dtype=policy,
            name=GENERATOR,
            rematerialize=self.encoder.rematerialize,
            embeddings=embeddings,
        )
        self.masked_lm = MaskedLMHead(config, name="masked_lm", dtype=policy)
        self.next_sentence = None
        self.replaced_tokens = ReplacedTokensHead(
            self.config, name=REPLACED_TOKENS, dtype=policy
        )
        self.replaced_tokens.build(None)
        self.seed_generator = keras.random.SeedGenerator()

    def head_layers(self) -> dict[str, Any]:
        """The layers that an objective may train, by the heads' names."""
        return super().head_layers() | {REPLACED_TOKENS: self.replaced_tokens}

    def untrained(self) -> list[keras.Variable]:
        """The weights that the objective does not train."""
        return [*super().untrained(), *self.generator.pooler.weights]

    def call(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
    ) -> dict[str, Any]:
        """Replaces tokens of a batch and finds them; see the class."""
        self.check(inputs)
        generated = self.generator(
            inputs, training=training, unpadded=self.unpadded
        )
        positions = inputs["masked_lm_positions"]
        logits = self.masked_lm(
            generated["sequence_output"],
            positions,
            self.encoder.embeddings.word_table,
        )
        own, replaced = self._replace(inputs, logits, training)
        outputs = self.encoder(
            {**inputs, "input_ids": replaced},
            training=training,
            unpadded=self.unpadded,
            return_all_layers=return_all_layers,
        )
        found = self.replaced_tokens(
            outputs["sequence_output"], training=training
        )
        return {
            "masked_lm_logits": logits,
            "replaced_token_logits": found,
            "replaced_tokens": ops.cast(ops.not_equal(replaced, own), "int32"),
            **outputs,
        }

    def _replace(
        self, inputs: Mapping[str, Any], logits: Any, training: bool | None
    ) -> tuple[Any, Any]:
        """The text's own tokens and those with what is drawn, int32 [B, S]."""
        masked, positions = inputs["input_ids"], inputs["masked_lm_positions"]
        batch, predictions = ops.shape(positions)
        vocabulary = self.config.vocab_size
        drawn = keras.random.categorical(
            ops.stop_gradient(ops.reshape(logits, (-1, vocabulary))),
            1,
            seed=self.seed_generator if training else 0,
        )
        drawn = ops.reshape(drawn, (batch, predictions))
        used = ops.cast(inputs["masked_lm_weights"], "float32") > 0
        rows = ops.broadcast_to(
            ops.arange(batch, dtype=positions.dtype)[:, None],
            (batch, predictions),
        )
        places = ops.reshape(ops.stack([rows, positions], -1), (-1, 2))
        there = ops.take_along_axis(masked, positions, axis=1)

        def put(ids: Any) -> Any:
            # What counts for nothing stands at position 0, and adds nothing.
            change = ops.cast(ids, masked.dtype) - there
            change = ops.reshape(ops.where(used, change, 0), (-1,))
            return masked + ops.scatter(places, change, ops.shape(masked))

        return put(inputs["masked_lm_ids"]), put(drawn)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raises `UserError` on inputs that cannot be computed on."""
        super().check(inputs)
        for name in ("masked_lm_ids", "masked_lm_weights"):
            if name not in inputs:
                raise UserError(
                    f"{self.name}: missing input {name}, by which it knows the "
                    "text's own tokens."
                )

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """The outputs as symbols, without tracing every layer."""
        found = super().compute_output_spec(inputs, training)
        shape = inputs["input_ids"].shape
        return {
            "masked_lm_logits": found.pop("masked_lm_logits"),
            "replaced_token_logits": keras.KerasTensor(shape, dtype="float32"),
            "replaced_tokens": keras.KerasTensor(shape, dtype="int32"),
            **found,
        }

    def named_weights(self) -> NamedWeights:
        """The discriminator's, by their names in a model folder."""
        head = head_weights(self.config, REPLACED_TOKENS, self.replaced_tokens)
        return self.encoder.named_weights() | head

    def generator_weights(self) -> NamedWeights:
        """The generator's, by their names in a model folder of its own."""
        named = self.generator.named_weights()
        # Nothing reads it, and nothing trains it.
        named = {n: w for n, w in named.items() if "/pooler/" not in n}
        config = self.generator.config
        return named | head_weights(config, MASKED_LM, self.masked_lm)

    def save_beside(self, folder: pathlib.Path, tokenizer: Tokenizer) -> None:
        """Writes the generator as a model folder into `folder`/generator."""
        place = folder / GENERATOR
        place.mkdir(exist_ok=True)
        tokenizer.save(place)
        arrays = arrays_of(self.generator_weights())
        save_checkpoint(place, Checkpoint(self.generator.config, arrays))

    def load_beside(self, folder: str | os.PathLike) -> None:
        """Reads the generator; one line says where there is none.

        Raises:
          UserError: it is of another architecture.
        """
        place = pathlib.Path(folder) / GENERATOR
        if not place.is_dir():
            log(f"{folder}: has no {GENERATOR}; initialized randomly.")
            return
        # The embeddings are the discriminator's, which are read already.
        restore_weights(
            self.generator_weights(),
            self.generator.config,
            GENERATOR,
            load_checkpoint(place),
        )

    @classmethod
    def arguments_beside(cls, folder: pathlib.Path) -> dict[str, Any]:
        """The generator's configuration, which is in generator/."""
        return {GENERATOR: generator_of(folder)}

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return super().get_config() | {
            GENERATOR: self.generator.config.to_dict()
        }

    @classmethod
    def arguments_of(
        cls, config: dict[str, Any], custom_objects: Any
    ) -> dict[str, Any]:
        """The constructor's arguments of what `get_config` returned."""
        return super().arguments_of(config, custom_objects) | {
            GENERATOR: ElectraConfig.from_dict(config[GENERATOR], cls.__name__)
        }
