"""SWAG: which of four sentences comes next? Accuracy.

Zellers et al. 2018; train.csv, val.csv and test.csv of the official files.
"""

from bert_tf.finetuning import MultipleChoiceTask, SwagFiles

TASK = MultipleChoiceTask(
    name="swag",
    data=SwagFiles(),
    # Devlin et al. 2019, table 4: dev.
    paper={"accuracy": {"bert_base": 0.816, "bert_large": 0.866}},
    defaults={
        "train_file": "train.csv",
        "dev_file": "val.csv",
        "test_file": "test.csv",
        # Devlin et al. 2019, section 4.4.
        "train_batch_size": 16,
        "learning_rate": 2e-5,
        "num_train_epochs": 3.0,
    },
    hub_data_set="allenai/swag/regular",
)
