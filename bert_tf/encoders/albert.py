"""ALBERT (Lan et al. 2020): a BERT whose layers share their blocks."""

import keras

from bert_tf.architectures.albert import AlbertConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import FactorizedEmbeddings


@keras.saving.register_keras_serializable(package="bert_tf")
class AlbertEncoder(BertEncoder):
    """The encoder of Lan et al. 2020, section 3.1.

    A `BertEncoder` of an `AlbertConfig`: embeddings and word_embeddings have
    its embedding_size, and all_encoder_layers are the outputs of every block,
    inner ones included.
    """

    config_class = AlbertConfig
    embeddings_class = FactorizedEmbeddings
