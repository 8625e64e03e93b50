"""XLM-R (Conneau et al. 2020): computes what a RoBERTa does."""

import keras

from bert_tf.architectures.xlm_roberta import XlmRobertaConfig
from bert_tf.encoders.roberta import RobertaEncoder


@keras.saving.register_keras_serializable(package="bert_tf")
class XlmRobertaEncoder(RobertaEncoder):
    """A `RobertaEncoder` of an `XlmRobertaConfig`."""

    config_class = XlmRobertaConfig
