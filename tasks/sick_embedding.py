"""SICK by the similarity of two vectors (Marelli et al. 2014). Correlations.

bert-tf finetune --task=sick_embedding --data_dir=sick --mode=train,eval \\
    --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserEmbeddingTask

FILES = {
    "train_file": "SICK_train.txt",
    "dev_file": "SICK_trial.txt",
    "format": "tsv",
}
COLUMNS = {
    "anchor_column": "sentence_A",
    "positive_column": "sentence_B",
    "score_column": "relatedness_score",
}

TASK = UserEmbeddingTask(
    name="sick_embedding",
    defaults=FILES | COLUMNS | {"score_range": "1,5", "num_train_epochs": 4.0},
)
