"""DistilBERT (Sanh et al. 2019): a BERT without segments and pooler."""

import keras

from bert_tf.architectures.distilbert import DistilBertConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import TransformerBlock


@keras.saving.register_keras_serializable(package="bert_tf")
class DistilBertBlock(TransformerBlock):
    """A block without dropout between attention and its residual.

    transformers 5.23.0, modeling_distilbert.py, TransformerBlock.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights of both sub-layers."""
        super().build(input_shape)
        self.attention_dropout = self.make_dropout(0.0, "attention_dropout")


@keras.saving.register_keras_serializable(package="bert_tf")
class DistilBertEncoder(BertEncoder):
    """The encoder of Sanh et al. 2019, section 3.

    A `BertEncoder` of a `DistilBertConfig`: segment_ids are ignored, blocks
    have one dropout less, and pooled_output is a dense layer with ReLU on the
    first token, the pre_classifier of transformers' classifiers. A pre-trained
    DistilBERT has none; it is initialized randomly.
    """

    config_class = DistilBertConfig
    block_class = DistilBertBlock
