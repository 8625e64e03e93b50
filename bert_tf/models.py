"""Fine-tuning models: an encoder and a small head, as Keras models."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.checkpoints import (
    CLASSIFIER,
    LABELLED_HEADS,
    MULTIPLE_CHOICE,
    REPLACED_TOKENS,
    SPAN,
    TOKEN_CLASSIFIER,
    Checkpoint,
    head_shapes,
    load_checkpoint,
    place_labels,
)
from bert_tf.checkpoints.checkpoint import check_labels
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS
from bert_tf.layers import ReplacedTokensHead
from bert_tf.layers.part_weights import Weight
from bert_tf.named_weights import (
    NamedWeights,
    arrays_of,
    head_weights,
    restore_weights,
)
from bert_tf.recipe import Limits


def bert_classifier(
    encoder: BertEncoder,
    num_classes: int,
    dropout: float | None = None,
    unpadded: bool = False,
) -> keras.Model:
    """Puts a classification layer on the pooled output.

    Devlin et al. 2019, section 4.1; google-research/bert, run_classifier.py,
    create_model: dropout, then a linear layer drawn from the truncated normal
    with a bias of zeros.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      num_classes: number of classes C; 1 for regression.
      dropout: dropout on the pooled output; None takes the architecture's, 0.1
        of a BERT.
      unpadded: computes on the tokens alone; see `BertEncoder`.

    Returns:
      An ordinary Keras model from a dict of input_ids, input_mask and
      segment_ids (int32 [B, S]) to logits float32 [B, C].

    Raises:
      UserError: num_classes is below 1, or dropout lies outside [0, 1).
    """
    _check(encoder, num_classes, dropout)
    if dropout is None:
        dropout = encoder.config.pooled_dropout
    inputs = _inputs(None)
    outputs = encoder(inputs, pooled_only=True, unpadded=unpadded)
    pooled = outputs["pooled_output"]
    logits = _head(encoder, pooled, CLASSIFIER, num_classes, dropout)
    return keras.Model(inputs, logits, name="bert_classifier")


def bert_token_classifier(
    encoder: BertEncoder,
    num_classes: int,
    dropout: float = 0.1,
    unpadded: bool = False,
) -> keras.Model:
    """Puts a classification layer on every token.

    Devlin et al. 2019, section 5.3: a linear layer on the last hidden
    representation of each token, no CRF.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      num_classes: number of tags C.
      dropout: dropout on the sequence output.
      unpadded: computes on the tokens alone, see `BertEncoder`; then the
        logits of padding are to be left out of what follows.

    Returns:
      An ordinary Keras model from a dict of input_ids, input_mask and
      segment_ids (int32 [B, S]) to logits float32 [B, S, C].

    Raises:
      UserError: num_classes is below 1, or dropout lies outside [0, 1).
    """
    _check(encoder, num_classes, dropout)
    inputs = _inputs(None)
    sequence = encoder(inputs, unpadded=unpadded)["sequence_output"]
    logits = _head(encoder, sequence, TOKEN_CLASSIFIER, num_classes, dropout)
    return keras.Model(inputs, logits, name="bert_token_classifier")


def bert_span_labeler(
    encoder: BertEncoder, unpadded: bool = False
) -> keras.Model:
    """Scores every token as the start and as the end of an answer.

    Devlin et al. 2019, section 4.2; google-research/bert, run_squad.py,
    create_model: a linear layer, softmax over all positions; dropout before it
    where the architecture has that, which a BERT has not.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      unpadded: computes on the tokens alone, see `BertEncoder`; then the
        logits of padding are to be left out of what follows.

    Returns:
      An ordinary Keras model from a dict of input_ids, input_mask and
      segment_ids (int32 [B, S]) to a dict of start_logits and end_logits,
      float32 [B, S].

    Raises:
      UserError: `encoder` is no BertEncoder.
    """
    _check(encoder, 2, None)
    inputs = _inputs(None)
    sequence = encoder(inputs, unpadded=unpadded)["sequence_output"]
    dropout = encoder.config.span_dropout
    logits = _head(encoder, sequence, SPAN, 2, dropout)
    return keras.Model(
        inputs,
        {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]},
        name="bert_span_labeler",
    )


def bert_multiple_choice(
    encoder: BertEncoder,
    dropout: float | None = None,
    unpadded: bool = False,
) -> keras.Model:
    """Scores several texts of a row against each other.

    Devlin et al. 2019, section 4.4 (SWAG): the one new parameter is a vector
    whose product with the pooled output of a choice is its score. The bias,
    which softmax does not feel, is there because other libraries have one.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      dropout: dropout on the pooled output; None takes the architecture's, 0.1
        of a BERT.
      unpadded: computes on the tokens alone; see `BertEncoder`. Choices that a
        row lacks need a token too.

    Returns:
      An ordinary Keras model from a dict of input_ids, input_mask and
      segment_ids (int32 [B, C, S], C choices) to logits float32 [B, C].

    Raises:
      UserError: dropout lies outside [0, 1).
    """
    _check(encoder, 1, dropout)
    if dropout is None:
        dropout = encoder.config.pooled_dropout
    inputs = _inputs(None, None)
    merged = {
        name: _MergeChoices(name=f"merge_{name}")(value)
        for name, value in inputs.items()
    }
    outputs = encoder(merged, pooled_only=True, unpadded=unpadded)
    pooled = outputs["pooled_output"]
    scores = _head(encoder, pooled, MULTIPLE_CHOICE, 1, dropout)
    split = _SplitChoices(name="split", dtype="float32")
    return keras.Model(
        inputs, split(scores, inputs["input_ids"]), name="bert_multiple_choice"
    )


def replaced_token_detector(
    encoder: BertEncoder, unpadded: bool = False
) -> keras.Model:
    """Scores whether each token was replaced: an ELECTRA's discriminator.

    Clark et al. 2020, section 2.

    Args:
      encoder: an `ElectraEncoder`, whose weights the model shares.
      unpadded: computes on the tokens alone, see `BertEncoder`; then the
        logits of padding are to be left out of what follows.

    Returns:
      An ordinary Keras model from a dict of input_ids, input_mask and
      segment_ids (int32 [B, S]) to logits float32 [B, S], above 0 where a token
      seems to be replaced.

    Raises:
      UserError: the encoder's architecture has no such head.
    """
    _check(encoder, 1, None)
    if REPLACED_TOKENS not in head_shapes(encoder.config):
        raise UserError(
            f"encoder is a {type(encoder).__name__}; replaced tokens are "
            "detected by an ElectraEncoder."
        )
    inputs = _inputs(None)
    sequence = encoder(inputs, unpadded=unpadded)["sequence_output"]
    head = ReplacedTokensHead(
        encoder.config, name=REPLACED_TOKENS, dtype=encoder.dtype_policy
    )
    return keras.Model(inputs, head(sequence), name="replaced_token_detector")


@keras.saving.register_keras_serializable(package="bert_tf")
class _MergeChoices(keras.layers.Layer):
    """Makes each of a row's C texts a row: [B, C, S] to [B*C, S]."""

    def call(self, tensor: Any) -> Any:
        """Maps [B, C, S] to [B*C, S]."""
        return ops.reshape(tensor, (-1, ops.shape(tensor)[2]))

    def compute_output_spec(self, tensor: Any) -> Any:
        """The output as a symbol."""
        return keras.KerasTensor((None, tensor.shape[2]), dtype=tensor.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class _SplitChoices(keras.layers.Layer):
    """Puts the scores of a row's texts side by side: [B*C, 1] to [B, C]."""

    def call(self, scores: Any, merged: Any) -> Any:
        """Maps [B*C, 1] to [B, C], C being that of `merged` [B, C, S]."""
        return ops.reshape(scores, (-1, ops.shape(merged)[1]))

    def compute_output_spec(self, scores: Any, merged: Any) -> Any:
        """The output as a symbol."""
        return keras.KerasTensor(merged.shape[:2], dtype=scores.dtype)


def _check(encoder: Any, num_classes: int, dropout: float | None) -> None:
    if not isinstance(encoder, BertEncoder):
        raise UserError(
            f"encoder is {encoder!r}; it takes a BertEncoder, for example "
            "BertEncoder.from_checkpoint(folder)."
        )
    Limits(at_least=1).check("num_classes", num_classes)
    if dropout is not None:
        Limits(at_least=0, below=1).check("dropout", dropout)


def _inputs(*sizes: None) -> dict[str, keras.KerasTensor]:
    return {
        feature.name: keras.Input(sizes, dtype=feature.dtype, name=feature.name)
        for feature in ENCODER_INPUTS
    }


def _head(
    encoder: BertEncoder,
    features: keras.KerasTensor,
    name: str,
    num_classes: int,
    dropout: float,
) -> keras.KerasTensor:
    """Dropout and a linear layer in float32."""
    features = keras.layers.Dropout(dropout, name="dropout")(features)
    # Under the name of the head in a checkpoint, by which `restore` knows it.
    dense = keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=encoder.config.initializer_range
        ),
        dtype="float32",
        name=name,
    )
    return dense(features)


def with_all_layers(network: keras.Model) -> keras.Model:
    """A model on an encoder that gives the encoder's layers too.

    Args:
      network: what a function above made; its layers are shared.

    Returns:
      A model from the same inputs to what `network` gives and, beside it, a
      dict of embedding_output and all_encoder_layers; see `BertEncoder`.
    """
    layers: dict[str, Any] = {}

    def call(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(layer, BertEncoder):
            return layer(*args, **kwargs)
        pooled_only = kwargs.pop("pooled_only", False)
        outputs = layer(*args, **kwargs, return_all_layers=True)
        for name in ("embedding_output", "all_encoder_layers"):
            layers[name] = outputs.pop(name)
        if pooled_only:
            del outputs["sequence_output"]
        return outputs

    clone = keras.models.clone_model(
        network, clone_function=lambda layer: layer, call_function=call
    )
    return keras.Model(clone.input, (clone.output, layers))


def padded(network: keras.Model) -> keras.Model:
    """A model on an encoder that computes on padding too.

    Args:
      network: what a function above made; its layers are shared.

    Returns:
      The model that the function makes with `unpadded` False.
    """

    def call(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        if isinstance(layer, BertEncoder):
            kwargs["unpadded"] = False
        return layer(*args, **kwargs)

    return keras.models.clone_model(
        network, clone_function=lambda layer: layer, call_function=call
    )


def _parts(model: keras.Model) -> tuple[BertEncoder, NamedWeights]:
    """The encoder of a model and all of its weights by name."""
    if isinstance(model, BertEncoder):
        return model, model.named_weights()
    if hasattr(model, "named_weights"):
        return model.encoder, model.named_weights()
    encoders = [x for x in model.layers if isinstance(x, BertEncoder)]
    if len(encoders) != 1:
        raise UserError(
            f"the model {model.name!r} has {len(encoders)} BertEncoders among "
            "its layers; it takes a model with one."
        )
    (encoder,) = encoders
    named = encoder.named_weights()
    for head, shapes in head_shapes(encoder.config).items():
        for layer in model.layers:
            if layer.name == head and isinstance(layer, keras.layers.Dense):
                weights, bias = shapes
                named[weights] = Weight(layer.kernel, transposed=True)
                named[bias] = Weight(layer.bias)
    for layer in model.layers:
        if isinstance(layer, ReplacedTokensHead):
            named |= head_weights(encoder.config, REPLACED_TOKENS, layer)
    return encoder, named


def restore(
    model: keras.Model,
    source: Checkpoint | str | os.PathLike,
    fresh: Sequence[str] = (),
    labels: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Assigns a checkpoint's weights to an encoder or a model on one.

    Args:
      model: a BertEncoder, a BertPretrainer, or what `bert_classifier`,
        `bert_token_classifier`, `bert_span_labeler`, `bert_multiple_choice` or
        `replaced_token_detector` made.
      source: a checkpoint, or what `load_checkpoint` takes.
      fresh: heads to leave as they are although the checkpoint has them, for
        other labels: pooler, masked_lm, next_sentence, classifier,
        token_classifier, span, multiple_choice, replaced_tokens or bilstm.
      labels: names of the outputs of the model's classifier or
        token_classifier, in their order. The rows of the checkpoint's head are
        placed by them; of other names, which a line states, the head is
        `fresh`. None takes the rows as they are.

    Returns:
      The heads that stay as they were drawn; one line on standard error names
      those that the checkpoint lacks.

    Raises:
      UserError: an array is missing or of another shape, the architectures
        compute differently, or `labels` are not those of a head of the model;
        no weight is changed. Or an array of a folder
        holds NaN or infinite values; those read before it are assigned.
    """
    encoder, named = _parts(model)
    heads = head_shapes(encoder.config)
    if unknown := [head for head in fresh if head not in heads]:
        raise UserError(
            f"fresh: unknown head {unknown[0]!r}; the heads are "
            f"{', '.join(heads)}."
        )
    if not isinstance(source, Checkpoint):
        source = load_checkpoint(source)
    if labels is not None:
        head = _labelled_head(model, labels)
        if head in source.heads and head not in fresh:
            placed = place_labels(source, head, labels)
            source, fresh = (
                (source, (*fresh, head)) if placed is None else (placed, fresh)
            )
    return restore_weights(named, encoder.config, model.name, source, fresh)


def _labelled_head(model: keras.Model, labels: Sequence[str]) -> str:
    """The head of a model whose outputs have these names."""
    check_labels(labels, "`labels`")
    layers = [x for x in model.layers if x.name in LABELLED_HEADS]
    if len(layers) != 1 or layers[0].units != len(labels):
        outputs = [f"{x.name} of {x.units}" for x in layers]
        raise UserError(
            f"`labels`: names {len(labels)} outputs, and the model "
            f"{model.name!r} has {' and '.join(outputs) or 'no classifier'}; "
            "name each output of one head."
        )
    return str(layers[0].name)


def model_arrays(model: keras.Model) -> dict[str, np.ndarray]:
    """The weights of an encoder or a model on one, for a `Checkpoint`.

    Args:
      model: as in `restore`.

    Returns:
      float32 arrays with the names and shapes of Google's TF1 checkpoints.
    """
    return arrays_of(_parts(model)[1])
