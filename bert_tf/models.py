"""Fine-tuning models: an encoder and a small head, as Keras models."""

import keras

from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS


def bert_classifier(
    encoder: keras.Model, num_classes: int, dropout: float = 0.1
) -> keras.Model:
    """Puts a classification layer on the pooled output.

    Devlin et al. 2019, section 4.1; google-research/bert, run_classifier.py,
    create_model: dropout, then a linear layer drawn from the truncated normal
    with a bias of zeros.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      num_classes: number of classes C; 1 for regression.
      dropout: dropout on the pooled output.

    Returns:
      An ordinary Keras model from a dict of input_ids, input_mask and
      segment_ids (int32 [B, S]) to logits float32 [B, C].

    Raises:
      UserError: num_classes is below 1, or dropout lies outside [0, 1).
    """
    if not isinstance(encoder, keras.Model):
        raise UserError(
            f"encoder is {encoder!r}; it takes a BertEncoder, for example "
            "BertEncoder.from_checkpoint(folder)."
        )
    if num_classes < 1:
        raise UserError(f"num_classes is {num_classes}; it must be at least 1.")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout is {dropout}; it must lie in [0, 1).")
    inputs = {
        feature.name: keras.Input(
            (None,), dtype=feature.dtype, name=feature.name
        )
        for feature in ENCODER_INPUTS
    }
    pooled = encoder(inputs)["pooled_output"]
    pooled = keras.layers.Dropout(dropout, name="dropout")(pooled)
    logits = keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=encoder.config.initializer_range
        ),
        dtype="float32",
        name="logits",
    )(pooled)
    return keras.Model(inputs, logits, name="bert_classifier")
