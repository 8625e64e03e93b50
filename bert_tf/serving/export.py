"""A classifier and its tokenizer as one SavedModel: strings in."""

import functools
import pathlib

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS
from bert_tf.files import written_beside
from bert_tf.text.packing_graph import SentencePacker


class _TextClassifier(tf.Module):
    """Two signatures over one model: text, and tokens."""

    def __init__(self, model: keras.Model, pack: SentencePacker):
        super().__init__()
        # The variables, not the Keras model: with that, each would be written
        # twice, and TensorFlow Serving's loader would leave one unset.
        self.weights = [variable.value for variable in model.variables]
        self._forward = functools.partial(model, training=False)
        self.pack = pack

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="text")],
        autograph=False,
    )
    def from_text(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._classify(self.pack(text))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], feature.dtype, name=feature.name)
            for feature in ENCODER_INPUTS
        ],
        autograph=False,
    )
    def from_tokens(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        return self._classify(
            {
                "input_ids": input_ids,
                "input_mask": input_mask,
                "segment_ids": segment_ids,
            }
        )

    def _classify(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        logits = tf.cast(self._forward(inputs), tf.float32)
        if logits.shape[-1] == 1:
            return {"logits": logits}
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}


def export_saved_model(
    model: keras.Model,
    export_dir: str | pathlib.Path,
    text_input: SentencePacker,
) -> None:
    """Writes a classifier as a SavedModel that takes text.

    Signatures:
      serving_default: text string [B] -> logits and, for two classes or
        more, probabilities, float32 [B, classes].
      tokens: input_ids, input_mask, segment_ids int32 [B, S] -> the same.

    Whoever loads it needs TensorFlow Text's ops (`import tensorflow_text`);
    TensorFlow Serving has them built in.

    Args:
      model: takes a dict of the encoder's inputs, returns logits [B, classes].
      export_dir: the version folder to write, such as "export/sst2/1"; it
        appears whole or not at all.
      text_input: tokenizes and packs text as in training.

    Raises:
      UserError: `export_dir` exists.
    """
    export_dir = pathlib.Path(export_dir)
    if export_dir.exists():
        raise UserError(
            f"{export_dir}: exists already; export to a new version, TF "
            "Serving takes the highest number."
        )
    module = _TextClassifier(model, text_input)
    with written_beside(export_dir) as beside:
        tf.saved_model.save(
            module,
            str(beside),
            signatures={
                "serving_default": module.from_text,
                "tokens": module.from_tokens,
            },
        )
