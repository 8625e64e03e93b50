"""STS-B by the similarity of two vectors. Correlations with the scores.

bert-tf finetune --task=stsb_embedding --data_dir=glue \\
    --mode=train,eval --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserEmbeddingTask

FILES = {
    "train_file": "STS-B/train.tsv",
    "dev_file": "STS-B/dev.tsv",
    "format": "tsv",
}
COLUMNS = {"anchor_column": "sentence1", "positive_column": "sentence2"}

TASK = UserEmbeddingTask(
    name="stsb_embedding",
    defaults=FILES | COLUMNS | {"score_range": "0,5", "num_train_epochs": 4.0},
    # Reimers and Gurevych 2019, table 2: the test set.
    paper={"spearman": {"bert_base": 0.847}},
)
