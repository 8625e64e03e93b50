"""QQP by the similarity of two vectors: do two questions ask the same?

bert-tf finetune --task=qqp_embedding --data_dir=glue \\
    --mode=train,eval --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserEmbeddingTask

FILES = {
    "train_file": "QQP/train.tsv",
    "dev_file": "QQP/dev.tsv",
    "format": "tsv",
}
COLUMNS = {"anchor_column": "question1", "positive_column": "question2"}
# The official files have a few cut rows and a few empty questions.
FAULTS = {"bad_rows": "skip", "empty_text": "keep"}

TASK = UserEmbeddingTask(
    name="qqp_embedding",
    defaults=FILES | COLUMNS | FAULTS | {"label_column": "is_duplicate"},
)
