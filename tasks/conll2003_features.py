"""CoNLL-2003 by a BiLSTM on features of a frozen encoder; entity F1."""

from bert_tf.finetuning import FeatureTaggingTask

from .conll2003 import TASK as FINE_TUNED

TASK = FeatureTaggingTask(
    name="conll2003_features",
    data=FINE_TUNED.data,
    # Devlin et al. 2019, table 7: BERT-base, dev; all is weighted_sum_all.
    paper={
        "f1": {
            "embeddings": 0.910,
            "second_to_last": 0.956,
            "last": 0.949,
            "weighted_last_four": 0.959,
            "concat_last_four": 0.961,
            "weighted_all": 0.955,
        }
    },
    defaults={"score_test": True},
    hub_data_set="eriktks/conll2003",
)
