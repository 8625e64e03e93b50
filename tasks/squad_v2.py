"""SQuAD 2.0: which words of a text answer a question, if any do?

Rajpurkar et al. 2018. The threshold of no answer is tuned on dev and stored
with the model. Other files in the same format are read with
--train_file=... --dev_file=...
"""

from bert_tf.finetuning import QuestionAnsweringTask

TASK = QuestionAnsweringTask(
    name="squad_v2",
    train_name="train-v2.0.json",
    dev_name="dev-v2.0.json",
    with_null=True,
    # The threshold with the best F1 is stored.
    main_metric="best_f1",
    # Devlin et al. 2019, table 3: dev, a single model with its threshold.
    paper={
        "best_f1": {"bert_large": 0.819},
        "best_exact": {"bert_large": 0.787},
    },
    # Devlin et al. 2019, section 4.3.
    defaults={
        "train_batch_size": 48,
        "learning_rate": 5e-5,
        "num_train_epochs": 2.0,
    },
    hub_data_set="rajpurkar/squad_v2",
)
