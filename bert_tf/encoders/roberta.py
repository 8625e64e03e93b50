"""RoBERTa (Liu et al. 2019): a BERT of one segment."""

import keras

from bert_tf.architectures.roberta import RobertaConfig
from bert_tf.encoders.bert import BertEncoder


@keras.saving.register_keras_serializable(package="bert_tf")
class RobertaEncoder(BertEncoder):
    """The encoder of Liu et al. 2019, section 3.1.

    As `BertEncoder`, but of a `RobertaConfig`: rows are of one segment, 0, and
    pooled_output is a dense layer with tanh on the first token, as in
    transformers' classifiers, which a pre-trained RoBERTa does not have: it is
    drawn then.
    """

    config_class = RobertaConfig
