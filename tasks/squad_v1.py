"""SQuAD 1.1: which words of a text answer a question? Exact match and F1.

Rajpurkar et al. 2016. Other files in the same format are read with
--train_file=... --dev_file=...
"""

from bert_tf.finetuning import QuestionAnsweringTask

TASK = QuestionAnsweringTask(
    name="squad_v1",
    train_name="train-v1.1.json",
    dev_name="dev-v1.1.json",
    with_null=False,
    main_metric="f1",
    # Devlin et al. 2019, table 2: dev, single models.
    paper={
        "f1": {"bert_base": 0.885, "bert_large": 0.909},
        "exact_match": {"bert_base": 0.808, "bert_large": 0.841},
    },
    # Devlin et al. 2019, section 4.2.
    defaults={
        "train_batch_size": 32,
        "learning_rate": 5e-5,
        "num_train_epochs": 3.0,
    },
    hub_data_set="rajpurkar/squad",
)
