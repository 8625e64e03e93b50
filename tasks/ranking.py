"""Queries with documents and their labels, that settings describe.

bert-tf finetune --task=ranking --mode=train,eval --train_file=pairs.jsonl \\
    --query_column=query --document_columns=document --label_column=label \\
    --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserRankingTask

TASK = UserRankingTask(name="ranking")
