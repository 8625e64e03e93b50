"""Pre-training of ELECTRA: a generator and a discriminator."""

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

# Subfolder of a discriminator's model folder.
GENERATOR = "generator"
# Fields that must be equal, since the embeddings are shared.
_SHARED = (
    *("vocab_size", "embedding_size", "max_position_embeddings"),
    *("type_vocab_size", "layer_norm_eps"),
)


def generator_of(folder: pathlib.Path) -> ElectraConfig | None:
    """Reads the configuration of the generator in a model folder, if any.

    Raises:
      UserError: the generator is not an ELECTRA.
    """
    path = folder / GENERATOR
    if not path.is_dir():
        return None
    config = load_checkpoint(path).config
    if not isinstance(config, ElectraConfig):
        raise UserError(
            f"{path}: its model_type is {config.model_type}; the generator "
            "of an electra must be an electra."
        )
    return config


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraPretrainer(BertPretrainer):
    """A discriminator and its generator (Clark et al. 2020, section 2).

    The generator predicts the masked tokens of a batch. A token is sampled from
    each of its distributions, without a gradient, and replaces the mask; the
    discriminator classifies every token as original or replaced. All embeddings
    are shared but the dense layers after them. Evaluation samples the same
    tokens each time.

    A model folder holds the discriminator, and its subfolder generator/ the
    generator. Otherwise see `BertPretrainer`.

    Args:
      config_or_encoder: the discriminator's architecture, or its encoder.
      dtype: Keras dtype policy or its name; None takes the encoder's, or
        Keras' global policy.
      name: name of the model.
      trainable: whether training changes the weights.
      objective: the objective; None for `ReplacedTokenDetection()`.
      unpadded: computes on the tokens only, see `BertEncoder`.
      generator: the generator's architecture; None for a quarter of the width.

    Call arguments:
      inputs: the inputs of `BertPretrainer`, and masked_lm_ids int32 [B, P] and
        masked_lm_weights float32 [B, P], the original tokens.
      training: whether dropout is active.
      return_all_layers: adds the discriminator's all_encoder_layers and
        embedding_output.

    Returns:
      A dict: masked_lm_logits float32 [B, P, V] of the generator;
      replaced_token_logits float32 [B, S], positive for a token predicted as
      replaced, and replaced_tokens int32 [B, S], 1 for a replaced token; and
      sequence_output and pooled_output of the discriminator.

    Raises:
      UserError: an input is missing, or the embeddings of the two differ in
        size.
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
        # Read by `_make_heads`, which the base class calls.
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
        discriminator, policy = self.config, self.dtype_policy
        if not isinstance(discriminator, ElectraConfig):
            raise UserError(
                f"{type(self).__name__}: takes an ElectraConfig or an "
                f"ElectraEncoder, not a {type(discriminator).__name__}."
            )
        config = self._generator_config or discriminator.generator(0.25)
        for name in _SHARED:
            value, other = getattr(config, name), getattr(discriminator, name)
            if value != other:
                raise UserError(
                    f"{self.name}: {name} is {value} in the generator and "
                    f"{other} in the discriminator, whose embeddings it shares."
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
        """Returns head name to layer, for the heads an objective may train."""
        return super().head_layers() | {REPLACED_TOKENS: self.replaced_tokens}

    def untrained(self) -> list[keras.Variable]:
        """Returns the weights that the objective does not train."""
        return [*super().untrained(), *self.generator.pooler.weights]

    def call(
        self,
        inputs: Mapping[str, Any],
        training: bool | None = None,
        return_all_layers: bool = False,
    ) -> dict[str, Any]:
        """Replaces tokens and detects the replaced ones; see the class."""
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
        original, replaced = self._replace(inputs, logits, training)
        outputs = self.encoder(
            {**inputs, "input_ids": replaced},
            training=training,
            unpadded=self.unpadded,
            return_all_layers=return_all_layers,
        )
        is_replaced = ops.not_equal(replaced, original)
        return {
            "masked_lm_logits": logits,
            "replaced_token_logits": self.replaced_tokens(
                outputs["sequence_output"], training=training
            ),
            "replaced_tokens": ops.cast(is_replaced, "int32"),
            **outputs,
        }

    def _replace(
        self, inputs: Mapping[str, Any], logits: Any, training: bool | None
    ) -> tuple[Any, Any]:
        """Returns the original tokens and the replaced ones, int32 [B, S]."""
        masked, positions = inputs["input_ids"], inputs["masked_lm_positions"]
        batch, predictions = ops.shape(positions)
        vocabulary = self.config.vocab_size
        sampled = keras.random.categorical(
            ops.stop_gradient(ops.reshape(logits, (-1, vocabulary))),
            1,
            seed=self.seed_generator if training else 0,
        )
        sampled = ops.reshape(sampled, (batch, predictions))
        used = ops.cast(inputs["masked_lm_weights"], "float32") > 0
        rows = ops.broadcast_to(
            ops.arange(batch, dtype=positions.dtype)[:, None],
            (batch, predictions),
        )
        indices = ops.reshape(ops.stack([rows, positions], -1), (-1, 2))
        before = ops.take_along_axis(masked, positions, axis=1)

        def put(ids: Any) -> Any:
            # Unused predictions are at position 0, and add 0.
            change = ops.cast(ids, masked.dtype) - before
            change = ops.reshape(ops.where(used, change, 0), (-1,))
            return masked + ops.scatter(indices, change, ops.shape(masked))

        return put(inputs["masked_lm_ids"]), put(sampled)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raises `UserError` if an input is missing or invalid."""
        super().check(inputs)
        for name in ("masked_lm_ids", "masked_lm_weights"):
            if name not in inputs:
                raise UserError(
                    f"{self.name}: missing input {name}, which tells the "
                    "original tokens."
                )

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Returns the outputs' shapes and dtypes without tracing layers."""
        outputs = super().compute_output_spec(inputs, training)
        shape = inputs["input_ids"].shape
        return {
            "masked_lm_logits": outputs.pop("masked_lm_logits"),
            "replaced_token_logits": keras.KerasTensor(shape, dtype="float32"),
            "replaced_tokens": keras.KerasTensor(shape, dtype="int32"),
            **outputs,
        }

    def named_weights(self) -> NamedWeights:
        """Returns the discriminator's weights by their checkpoint names."""
        head = head_weights(self.config, REPLACED_TOKENS, self.replaced_tokens)
        return self.encoder.named_weights() | head

    def generator_weights(self) -> NamedWeights:
        """Returns the generator's weights by their checkpoint names."""
        named = self.generator.named_weights()
        # The generator's pooler is unused and untrained.
        named = {n: w for n, w in named.items() if "/pooler/" not in n}
        config = self.generator.config
        return named | head_weights(config, MASKED_LM, self.masked_lm)

    def save_beside(self, folder: pathlib.Path, tokenizer: Tokenizer) -> None:
        """Writes the generator as a model folder to `folder`/generator."""
        path = folder / GENERATOR
        path.mkdir(exist_ok=True)
        tokenizer.save(path)
        arrays = arrays_of(self.generator_weights())
        save_checkpoint(path, Checkpoint(self.generator.config, arrays))

    def load_beside(self, folder: str | os.PathLike) -> None:
        """Loads the generator of a folder; logs a line if there is none.

        Raises:
          UserError: it is of another architecture.
        """
        path = pathlib.Path(folder) / GENERATOR
        if not path.is_dir():
            log(f"{folder}: has no {GENERATOR}; initialized randomly.")
            return
        # The shared embeddings were loaded with the discriminator.
        restore_weights(
            self.generator_weights(),
            self.generator.config,
            GENERATOR,
            load_checkpoint(path),
        )

    @classmethod
    def arguments_beside(cls, folder: pathlib.Path) -> dict[str, Any]:
        """Returns the constructor argument `generator` of a folder."""
        return {GENERATOR: generator_of(folder)}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments as plain data."""
        return super().get_config() | {
            GENERATOR: self.generator.config.to_dict()
        }

    @classmethod
    def arguments_of(
        cls, config: dict[str, Any], custom_objects: Any
    ) -> dict[str, Any]:
        """Returns the constructor arguments of a `get_config`."""
        return super().arguments_of(config, custom_objects) | {
            GENERATOR: ElectraConfig.from_dict(config[GENERATOR], cls.__name__)
        }
