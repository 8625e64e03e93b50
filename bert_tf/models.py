"""Fine-tuning models: an encoder with a task head, as Keras models."""

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
    """Adds a classification layer to the pooled output.

    Devlin et al. 2019, section 4.1; google-research/bert, run_classifier.py,
    create_model: dropout, then a linear layer with the truncated normal
    initializer and a bias of zeros.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      num_classes: number of classes C; 1 for regression.
      dropout: dropout on the pooled output; None takes the architecture's, 0.1
        in a BERT.
      unpadded: computes without padding; see `BertEncoder`.

    Returns:
      A Keras model from a dict of input_ids, input_mask and segment_ids (int32
      [B, S]) to logits float32 [B, C].

    Raises:
      UserError: num_classes is below 1, or dropout lies outside [0, 1).
    """
    _check(encoder, num_classes, dropout)
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
    """Adds a classification layer to every token.

    Devlin et al. 2019, section 5.3: a linear layer on the last hidden state of
    each token, no CRF.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      num_classes: number of tags C.
      dropout: dropout on the sequence output.
      unpadded: computes without padding, see `BertEncoder`; the logits at
        padding must not be used then.

    Returns:
      A Keras model from a dict of input_ids, input_mask and segment_ids (int32
      [B, S]) to logits float32 [B, S, C].

    Raises:
      UserError: num_classes is below 1, or dropout lies outside [0, 1).
    """
    _check(encoder, num_classes, dropout)
    inputs = _inputs(None)
    sequence = _token_features(encoder, inputs, TOKEN_CLASSIFIER, unpadded)
    logits = _head(encoder, sequence, TOKEN_CLASSIFIER, num_classes, dropout)
    return keras.Model(inputs, logits, name="bert_token_classifier")


def bert_span_labeler(
    encoder: BertEncoder, unpadded: bool = False
) -> keras.Model:
    """Computes for every token the logits of the start and end of an answer.

    Devlin et al. 2019, section 4.2; google-research/bert, run_squad.py,
    create_model: a linear layer, softmax over all positions. Architectures with
    a span_dropout apply it before the layer.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      unpadded: computes without padding, see `BertEncoder`; the logits at
        padding must not be used then.

    Returns:
      A Keras model from a dict of input_ids, input_mask and segment_ids (int32
      [B, S]) to a dict of start_logits and end_logits, float32 [B, S].

    Raises:
      UserError: `encoder` is no BertEncoder.
    """
    _check(encoder, 2, None)
    inputs = _inputs(None)
    sequence = _token_features(encoder, inputs, SPAN, unpadded)
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
    head: str = MULTIPLE_CHOICE,
) -> keras.Model:
    """Scores the choices of each row.

    Devlin et al. 2019, section 4.4 (SWAG): the score of a choice is the product
    of its pooled output with a vector. The bias, which does not affect the
    softmax, is for compatibility with other libraries.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      dropout: dropout on the pooled output; None takes the architecture's, 0.1
        in a BERT.
      unpadded: computes without padding; see `BertEncoder`. Missing choices of
        a row need a token, too.
      head: the head in checkpoints, multiple_choice, or classifier for a
        `bert_classifier` of one output that scores the choices.

    Returns:
      A Keras model from a dict of input_ids, input_mask and segment_ids (int32
      [B, C, S], C choices) to logits float32 [B, C].

    Raises:
      UserError: dropout lies outside [0, 1).
    """
    _check(encoder, 1, dropout)
    inputs = _inputs(None, None)
    merged = {
        name: _MergeChoices(name=f"merge_{name}")(value)
        for name, value in inputs.items()
    }
    outputs = encoder(merged, pooled_only=True, unpadded=unpadded)
    pooled = outputs["pooled_output"]
    scores = _head(encoder, pooled, head, 1, dropout)
    split = _SplitChoices(name="split", dtype="float32")
    return keras.Model(
        inputs, split(scores, inputs["input_ids"]), name="bert_multiple_choice"
    )


def replaced_token_detector(
    encoder: BertEncoder, unpadded: bool = False
) -> keras.Model:
    """Detects replaced tokens: an ELECTRA's discriminator.

    Clark et al. 2020, section 2.

    Args:
      encoder: an `ElectraEncoder`, whose weights the model shares.
      unpadded: computes without padding, see `BertEncoder`; the logits at
        padding must not be used then.

    Returns:
      A Keras model from a dict of input_ids, input_mask and segment_ids (int32
      [B, S]) to logits float32 [B, S], positive for replaced tokens.

    Raises:
      UserError: the encoder's architecture has no head for this.
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
    """Flattens choices to rows: [B, C, S] to [B*C, S]."""

    def call(self, tensor: Any) -> Any:
        """Reshapes [B, C, S] to [B*C, S]."""
        return ops.reshape(tensor, (-1, ops.shape(tensor)[2]))

    def compute_output_spec(self, tensor: Any) -> Any:
        """The symbolic output."""
        return keras.KerasTensor((None, tensor.shape[2]), dtype=tensor.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class _SplitChoices(keras.layers.Layer):
    """Reshapes scores of rows to scores of choices: [B*C, 1] to [B, C]."""

    def call(self, scores: Any, merged: Any) -> Any:
        """Reshapes [B*C, 1] to [B, C], with C from `merged` [B, C, S]."""
        return ops.reshape(scores, (-1, ops.shape(merged)[1]))

    def compute_output_spec(self, scores: Any, merged: Any) -> Any:
        """The symbolic output."""
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


def _token_features(
    encoder: BertEncoder,
    inputs: dict[str, keras.KerasTensor],
    head: str,
    unpadded: bool,
) -> keras.KerasTensor:
    """Computes what the last layer of a head on tokens reads, [B, S, H]."""
    sequence = encoder(inputs, unpadded=unpadded)["sequence_output"]
    if encoder.token_head_class is None:
        return sequence
    transform = encoder.token_head_class(
        encoder.config, name=f"{head}_transform", dtype=encoder.dtype_policy
    )
    return transform(sequence)


def _head(
    encoder: BertEncoder,
    features: keras.KerasTensor,
    head: str,
    num_classes: int,
    dropout: float | None,
) -> keras.KerasTensor:
    """Applies dropout and a linear layer in float32.

    The name of the layer is that of the head in checkpoints, by which `restore`
    finds it. A `dropout` of None is the architecture's for pooled outputs.
    """
    if dropout is None:
        dropout = encoder.config.pooled_dropout
    features = keras.layers.Dropout(dropout, name="dropout")(features)
    dense = keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=encoder.config.initializer_range
        ),
        dtype="float32",
        name=head,
    )
    return dense(features)


def with_all_layers(network: keras.Model) -> keras.Model:
    """Adds the outputs of the encoder's layers to a model.

    Args:
      network: a model of this module; its layers are shared.

    Returns:
      A model from the same inputs to the output of `network` and a dict of
      embedding_output and all_encoder_layers; see `BertEncoder`.
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
    """Rebuilds a model with `unpadded` False.

    Args:
      network: a model of this module; its layers are shared.
    """

    def call(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        if isinstance(layer, BertEncoder):
            kwargs["unpadded"] = False
        return layer(*args, **kwargs)

    return keras.models.clone_model(
        network, clone_function=lambda layer: layer, call_function=call
    )


def _parts(model: keras.Model) -> tuple[BertEncoder, NamedWeights]:
    """Finds the encoder of a model and all weights by name."""
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
    layers = {layer.name: layer for layer in model.layers}
    for head, shapes in head_shapes(encoder.config).items():
        layer = layers.get(head)
        if isinstance(layer, keras.layers.Dense):
            *first, weights, bias = shapes
            named[weights] = Weight(layer.kernel, transposed=True)
            named[bias] = Weight(layer.bias)
            if first:
                parts = layers[f"{head}_transform"].part_weights()
                found = [weight for part in parts for weight in part.weights]
                named |= dict(zip(first, found, strict=True))
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
    """Assigns a checkpoint's weights to an encoder or a model with one.

    Args:
      model: a BertEncoder, a BertPretrainer, or the result of
        `bert_classifier`, `bert_token_classifier`, `bert_span_labeler`,
        `bert_multiple_choice` or `replaced_token_detector`.
      source: a checkpoint, or an argument of `load_checkpoint`.
      fresh: heads of the checkpoint that are not assigned, for other labels:
        pooler, masked_lm, next_sentence, classifier, token_classifier, span,
        multiple_choice, replaced_tokens or bilstm.
      labels: names of the outputs of the model's classifier or
        token_classifier, in their order, by which the rows of the checkpoint's
        head are reordered. If the names differ, the head is `fresh`, with a
        message. None keeps the order.

    Returns:
      The heads that are not assigned; a message on standard error names those
      that the checkpoint lacks.

    Raises:
      UserError: an array is missing or has another shape, the architectures
        compute differently, or `labels` are not those of a head of the model;
        no weight is changed. Or an array of a folder contains NaN or infinite
        values; arrays read before it are assigned.
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
    """The head of a model with these labels."""
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
    """The weights of an encoder or a model with one, for a `Checkpoint`.

    Args:
      model: as in `restore`.

    Returns:
      float32 arrays with the names and shapes of Google's TF1 checkpoints.
    """
    return arrays_of(_parts(model)[1])
