"""ELECTRA (Clark et al. 2020): a BERT whose embeddings may be narrower."""

import keras

from bert_tf.architectures.electra import ElectraConfig
from bert_tf.encoders.bert import BertEncoder
from bert_tf.layers import FactorizedEmbeddings, GlorotDense


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraEmbeddings(FactorizedEmbeddings):
    """Embeddings whose projection has Glorot's initializer.

    Source: google-research/electra, modeling.py, BertModel.
    """

    project_class = GlorotDense


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraEncoder(BertEncoder):
    """The discriminator's or generator's encoder of Clark et al. 2020.

    A `BertEncoder` of an `ElectraConfig`: embeddings and word_embeddings have
    its embedding_size, and pooled_output is dropout and a dense layer with GELU
    on the first token, as in transformers' classifiers. A pre-trained ELECTRA
    has none; it is initialized randomly.
    """

    config_class = ElectraConfig
    embeddings_class = ElectraEmbeddings
