"""RoBERTa (Liu et al. 2019): a BERT of one segment."""

import keras

from bert_tf.architectures.roberta import RobertaConfig
from bert_tf.encoders.bert import BertEncoder


@keras.saving.register_keras_serializable(package="bert_tf")
class RobertaEncoder(BertEncoder):
    """The encoder of Liu et al. 2019, section 3.1.

    A `BertEncoder` of a `RobertaConfig`: rows have one segment, 0, and
    pooled_output is a dense layer with tanh on the first token, as in
    transformers' classifiers. A pre-trained RoBERTa has none; it is initialized
    randomly.
    """

    config_class = RobertaConfig
